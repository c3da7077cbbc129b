"""What the doctor checks on this machine, whatever the cloud: settings, plan, database, disk, socket."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from sqlalchemy.exc import SQLAlchemyError

from boa_daemon.api.client import Client, DaemonUnreachable
from boa_daemon.backends.aws.doctor_check import DoctorCheck
from boa_daemon.daemon.assembly import cloud_class
from boa_daemon.daemon.config import Settings
from boa_daemon.daemon.daemon_paths import DaemonPaths, daemon_paths, socket_of
from boa_daemon.daemon.planner import Planner
from boa_daemon.engines.engine_kinds import ENGINE_KINDS, fitting
from boa_daemon.errors import BoaError, InputError
from boa_daemon.store.database_setup import StoreUnusable, check_integrity, open_engine, sqlite_url
from boa_daemon.units import counted
from policies.errors import PolicyError

LEAST_FREE_GB = 5.0
"""A database of a month's ticks with its backups, and what a local job prints and saves."""


def local_checks(settings: Settings) -> Iterator[DoctorCheck]:
    """Yield what can be said without asking a cloud; nothing is made or started."""
    yield _plan(settings)
    yield _engine(settings)
    try:
        there = daemon_paths(settings)
    except InputError as error:
        yield DoctorCheck(name="state folder", status="failed", said=error.problem, fix=error.hint)
        return
    yield _disk(there)
    yield _database(settings, there)
    yield _daemon(settings)


def _plan(settings: Settings) -> DoctorCheck:
    """Whether classes and machines make a plan under the budget."""
    name, budget = "plan", settings.budget.mean_usd_per_hour
    try:
        planner = Planner(settings, cloud=cloud_class(settings))
        planner.record(()).build()
    except InputError as error:
        return DoctorCheck(name=name, status="failed", said=error.problem, fix=error.hint)
    except PolicyError as error:
        said = f"{budget:g} USD/hour: {error}"
        return DoctorCheck(name=name, status="warning", said=said, fix="The daemon then makes a best effort")
    dearest = max(machine.usd_per_hour for machine in planner.machines.values())
    cap = settings.budget.usd_per_day_cap
    if cap is not None and cap < dearest:
        said = f"{cap:g} USD a day do not pay an hour of the dearest type ({dearest:g} USD)"
        return DoctorCheck(name=name, status="warning", said=said, fix="Raise [budget] usd_per_day_cap")
    kinds = ", ".join(machine.name for machine in planner.machines.values())
    return DoctorCheck(name=name, status="ok", said=f"{counted(len(planner.classes), 'class')} on {kinds}")


def _engine(settings: Settings) -> DoctorCheck:
    """Whether the engine goes with the cloud."""
    engine, cloud = settings.engine.name, settings.cloud.provider
    # What another package adds says itself, when it is opened, with what it does not go.
    fits = fitting(cloud)
    if fits and engine in ENGINE_KINDS and engine not in fits:
        said = f"{engine!r} does not go with the provider {cloud!r}"
        return DoctorCheck(
            name="engine", status="failed", said=said, fix=f"[engine] name: {' or '.join(fits)}"
        )
    return DoctorCheck(name="engine", status="ok", said=f"{engine} on {cloud}")


def _disk(there: DaemonPaths) -> DoctorCheck:
    """Whether the state folder's disk has room."""
    folder = there.state
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free / 1e9
    said = f"{free:.1f} GB free for {there.state}"
    if free < LEAST_FREE_GB:
        fix = "A full disk starts nothing: free some, or set [daemon] state_dir"
        return DoctorCheck(name="disk", status="warning", said=said, fix=fix)
    return DoctorCheck(name="disk", status="ok", said=said)


def _database(settings: Settings, there: DaemonPaths) -> DoctorCheck:
    """Whether the database can be read by this version."""
    url = settings.daemon.database
    if url is None and not there.database.exists():
        return DoctorCheck(name="database", status="ok", said="none yet; the daemon makes it")
    engine = open_engine(url or sqlite_url(there.database))
    try:
        check_integrity(engine)
    except (StoreUnusable, SQLAlchemyError) as error:
        fix = "`boa recover` makes it again from the newest backup and the cloud's list"
        return DoctorCheck(name="database", status="failed", said=str(error).splitlines()[0], fix=fix)
    finally:
        engine.dispose()
    return DoctorCheck(name="database", status="ok", said=engine.url.render_as_string())


def _daemon(settings: Settings) -> DoctorCheck:
    """Whether a daemon answers; that none does is no fault."""
    try:
        with Client(socket_of(settings)) as client:
            status = client.get("/status")
    except DaemonUnreachable:
        return DoctorCheck(name="daemon", status="skipped", said="none listens")
    except BoaError as error:
        return DoctorCheck(name="daemon", status="failed", said=str(error))
    if status["fault"]:
        return DoctorCheck(name="daemon", status="failed", said=status["fault"], fix="See the daemon's log")
    return DoctorCheck(name="daemon", status="ok", said=f"answers; tick {status.get('tick', 0)}")
