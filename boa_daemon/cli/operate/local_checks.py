"""Checks of `boa doctor` on this machine, for any cloud: plan, engine, disk, database, daemon."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from boa_daemon.api.client import Client, DaemonUnreachable
from boa_daemon.backends.aws.doctor.check import DoctorCheck
from boa_daemon.daemon.loop.assembly import cloud_class
from boa_daemon.daemon.planner.planner import Planner
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.daemon.settings.daemon_paths import DaemonPaths, daemon_paths, socket_of
from boa_daemon.daemon.settings.setting_conflicts import warned_of
from boa_daemon.engines.engine_kinds import ENGINE_KINDS, fitting
from boa_daemon.errors import BoaError, InputError
from boa_daemon.store.database_setup import (
    StoreTooNew,
    StoreUnreachable,
    StoreUnusable,
    check_version,
    look_into,
    look_into_server,
    parsed_url,
)
from boa_daemon.units import counted
from policies.errors import PolicyError
from policies.money_text import price_in_dollars

LEAST_FREE_GB = 5.0
"""Enough for a database of a month's ticks with its backups, and the logs and checkpoints of local jobs."""


def local_checks(settings: Settings) -> Iterator[DoctorCheck]:
    """Yield the checks that need no cloud; nothing is made or started."""
    yield from _together(settings)
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


def _together(settings: Settings) -> Iterator[DoctorCheck]:
    """Yield a warning for each pair of settings that does not go together."""
    for conflict in warned_of(settings):
        yield DoctorCheck(name="settings", status="warning", said=conflict.problem, fix=conflict.hint)


def _plan(settings: Settings) -> DoctorCheck:
    """Check that a plan exists for the classes and machines under the budget."""
    name, budget = "plan", settings.budget.mean_usd_per_hour
    try:
        planner = Planner(settings, cloud=cloud_class(settings))
        planner.record(()).build()
    except InputError as error:
        return DoctorCheck(name=name, status="failed", said=error.problem, fix=error.hint)
    except PolicyError as error:
        said = f"{price_in_dollars(budget)}/hour: {error}"
        return DoctorCheck(
            name=name,
            status="warning",
            said=said,
            fix="The daemon serves as many jobs as it can; raise the budget to serve all",
        )
    dearest = max(machine.usd_per_hour for machine in planner.machines.values())
    cap = settings.budget.usd_per_day_cap
    if cap is not None and cap < dearest:
        said = (
            f"{price_in_dollars(cap)} a day do not pay for an hour of the most "
            f"expensive type ({price_in_dollars(dearest)})"
        )
        return DoctorCheck(name=name, status="warning", said=said, fix="Raise [budget] usd_per_day_cap")
    kinds = ", ".join(machine.name for machine in planner.machines.values())
    return DoctorCheck(name=name, status="ok", said=f"{counted(len(planner.classes), 'class')} on {kinds}")


def _engine(settings: Settings) -> DoctorCheck:
    """Check that the engine works with the cloud."""
    engine, cloud = settings.engine.name, settings.cloud.provider
    # An engine or cloud of a plug-in checks this itself when it is opened.
    fits = fitting(cloud)
    if fits and engine in ENGINE_KINDS and engine not in fits:
        said = f"{engine!r} does not work with the provider {cloud!r}"
        return DoctorCheck(
            name="engine", status="failed", said=said, fix=f"[engine] name: {' or '.join(fits)}"
        )
    return DoctorCheck(name="engine", status="ok", said=f"{engine} on {cloud}")


def _disk(there: DaemonPaths) -> DoctorCheck:
    """Check the free space on the state folder's disk."""
    folder = there.state
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free / 1e9
    said = f"{free:.1f} GB free for {there.state}"
    if free < LEAST_FREE_GB:
        fix = "With a full disk nothing is started: free space, or set [daemon] state_dir"
        return DoctorCheck(name="disk", status="warning", said=said, fix=fix)
    return DoctorCheck(name="disk", status="ok", said=said)


def _database(settings: Settings, there: DaemonPaths) -> DoctorCheck:
    """Check that this version can read the database."""
    url = settings.daemon.database
    if url is None and not there.database.exists():
        return DoctorCheck(name="database", status="ok", said="none yet; the daemon creates it")
    try:
        # It is only read: nothing is created, migrated or repaired.
        file = there.database if url is None else _sqlite_file(url)
        facts = look_into_server(str(url)) if file is None else look_into(file)
        check_version(facts.revision)
    except StoreUnusable as error:
        fix = "`boa recover` rebuilds it from the newest backup and the cloud's list of instances"
        if isinstance(error, StoreUnreachable):
            fix = "The daemon goes on by itself once that is over"
        elif isinstance(error, StoreTooNew):
            fix = "Install the version of boa that wrote it"
        return DoctorCheck(name="database", status="failed", said=str(error).splitlines()[0], fix=fix)
    said = str(there.database) if url is None else parsed_url(url).render_as_string()
    return DoctorCheck(name="database", status="ok", said=said)


def _sqlite_file(url: str) -> Path | None:
    """Return the file of a SQLite URL; None for a server."""
    parsed = parsed_url(url)
    return Path(parsed.database or "") if parsed.get_backend_name() == "sqlite" else None


def _daemon(settings: Settings) -> DoctorCheck:
    """Check that the daemon, if one is running, answers without a fault."""
    try:
        with Client(socket_of(settings)) as client:
            status = client.status()
    except DaemonUnreachable:
        return DoctorCheck(name="daemon", status="skipped", said="none listens")
    except BoaError as error:
        return DoctorCheck(name="daemon", status="failed", said=str(error))
    if status["fault"]:
        return DoctorCheck(name="daemon", status="failed", said=status["fault"], fix="See the daemon's log")
    return DoctorCheck(name="daemon", status="ok", said=f"answers; tick {status.get('tick', 0)}")
