"""Assemble the daemon: open the cloud, the engine and the storage that the settings name.

Only this module opens clouds and engines by name. `boa_daemon.backends.cloud_kinds` and
`boa_daemon.engines.engine_kinds` describe them for planning without opening them.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Engine

from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.client.resource_names import bucket_of, claim_key
from boa_daemon.backends.aws.cloud import RELOADED, AwsCloud
from boa_daemon.backends.aws.cluster_claim import ClusterClaim
from boa_daemon.backends.aws.prices.region_prices import catalog_of
from boa_daemon.backends.aws.regions import RegionalCloud
from boa_daemon.backends.aws.rights.policy_statements import NO_OTHER_RESOURCES, UsedResources
from boa_daemon.backends.cloud_kinds import cloud_kind
from boa_daemon.backends.local import LocalCloud
from boa_daemon.backends.settings import AwsSettings
from boa_daemon.backends.simulated import FileCloud, SimulatedLimits
from boa_daemon.backends.slurm import SlurmCloud
from boa_daemon.clock import SteadyClock
from boa_daemon.daemon.loop.components import World
from boa_daemon.daemon.loop.gate_endpoint import GateEndpoint, gate_endpoint, job_door, open_gate
from boa_daemon.daemon.loop.last_state import LastStateFile
from boa_daemon.daemon.loop.loop import Daemon
from boa_daemon.daemon.planner.machines_and_classes import machines_of, partition_of, site_catalog
from boa_daemon.daemon.planner.warm_pool import start_seconds_of
from boa_daemon.daemon.settings.config import Settings, aws_settings
from boa_daemon.daemon.settings.daemon_paths import (
    DaemonPaths,
    StateFile,
    daemon_paths,
    let_jobs_through,
    make_folder,
)
from boa_daemon.engines.engine_kinds import engine_kind
from boa_daemon.engines.local import LocalEngine
from boa_daemon.engines.ray import RayEngine
from boa_daemon.engines.slurm import SlurmEngine
from boa_daemon.engines.ssm import SsmEngine, SsmSettings
from boa_daemon.engines.ssm_starts import AT_ONCE
from boa_daemon.errors import InputError, did_you_mean
from boa_daemon.gate.companion import JobDoor
from boa_daemon.inputs.sqlite_urls import sqlite_url
from boa_daemon.job.whole_files import remove_torn
from boa_daemon.slurm.commands import Slurm
from boa_daemon.store.database import Database
from boa_daemon.store.database_setup import (
    RECOVERED,
    StoreOfOthers,
    StoreTooNew,
    StoreUnreachable,
    StoreUnusable,
    check_integrity,
    check_version,
    look_into,
    look_into_server,
    migrate,
    open_engine,
    parsed_url,
    unusable,
)
from boa_daemon.store.database_troubles import PASSING
from boa_daemon.store.decisions import DaemonStore
from boa_daemon.store.documents import Documents
from boa_daemon.store.leader import LEASE_SECONDS, RENEW_SECONDS, Leadership, LedElsewhere
from boa_daemon.store.queue import JobQueue, numbered_jobs
from boa_daemon.store.storage import Storage
from boa_daemon.tick.facts.node_lives import instance_of
from boa_daemon.tick.facts.ports import Clock, PersistableRunner, Provider, Runner
from policies import plugins
from policies.model import NodeId

_LOG = logging.getLogger("boa.cloud")
AGAIN_SECONDS, DAMAGED_SECONDS, TORN_SECONDS = 1.0, 60.0, 600.0
"""Seconds until a database is tried again: one whose trouble passes, and one that a person must mend; and for
how long a part of a file may still be written by somebody whose processes are not seen here."""
_Part = TypeVar("_Part")


def gate_endpoint_of(settings: Settings) -> GateEndpoint:
    """Return the address of the daemon's gate.

    Raises:
        InputError: when the gate's address cannot be listened on.
    """
    try:
        machines = machines_of(settings, site_catalog(settings))
    except InputError as error:
        # Listing and releasing nodes needs no machines; planning reports this error.
        return GateEndpoint(why_off=str(error))
    return gate_endpoint(settings, daemon_paths(settings).socket, machines)


def open_world(
    settings: Settings, state: Path, clock: Clock, *, ledger_id: str = "", site: GateEndpoint | None = None
) -> World:
    """Open the configured cloud and engine; `ledger_id` is the database's name, which the cloud stores.

    Raises:
        InputError: when cloud and engine do not go together, or an extra is missing.
    """
    cloud = _named("boa.clouds", CLOUDS, settings.cloud.provider, "[cloud] provider")(
        settings, state, clock, ledger_id
    )
    with ExitStack() as undone:
        undone.callback(cloud.close)
        door = job_door(settings, gate_endpoint_of(settings) if site is None else site, state)
        runner = _named("boa.engines", ENGINES, settings.engine.name, "[engine] name")(
            settings, state, door, cloud
        )
        if isinstance(runner, SsmEngine):
            runner.tell_time(clock.now)
        undone.pop_all()
    return World(clock=clock, cloud=cloud, runner=runner)


def _aws(settings: Settings, state: Path, clock: Clock, ledger_id: str) -> Provider:
    del state
    given = aws_settings(settings.cloud)
    calls = AwsCalls(given)
    if isinstance(clock, SteadyClock):
        calls.on_date = clock.hear
    uses = UsedResources(reports_queue_url=settings.engine.queue_url, uri=settings.engine.uri)
    claim = None
    if settings.engine.uri and ledger_id and not settings.daemon.observe:
        claim = ClusterClaim(
            calls,
            bucket=bucket_of(settings.engine.uri),
            key=claim_key(given),
            cluster=given.cluster,
            ledger_id=ledger_id,
            clock=clock,
            say=_LOG.warning,
        )

    def in_region(own: AwsSettings) -> AwsCloud:
        is_home = own.region == given.region
        return AwsCloud(
            own,
            catalog=catalog_of(own),
            clock=clock,
            calls=calls if is_home else AwsCalls(own),
            ledger_id=ledger_id,
            touches=not settings.daemon.observe,
            say=_LOG.info,
            claim=claim if is_home else None,
            uses=uses if is_home else NO_OTHER_RESOURCES,
        )

    if not given.regions:
        return in_region(given)
    ordered = [given.region, *(region for region in given.regions if region != given.region)]
    clouds = {region: in_region(given.in_region(region)) for region in ordered}
    return RegionalCloud(clouds, say=_LOG.info)


def reload_cloud(cloud: Provider, settings: Settings) -> tuple[str, ...]:
    """Give an open cloud the changed settings that it can use without a restart; return their keys."""
    if not isinstance(cloud, AwsCloud | RegionalCloud):
        return ()
    cloud.use(aws_settings(settings.cloud))
    return RELOADED


def _simulated(settings: Settings, state: Path, clock: Clock, ledger_id: str) -> Provider:
    """Return the simulated cloud, which keeps its state in a file."""
    del ledger_id
    cloud = settings.cloud
    limits = SimulatedLimits(
        boot_seconds=cloud.boot_seconds,
        start_seconds=start_seconds_of(settings, cloud.boot_seconds),
        stock=cloud.stock,
    )
    return FileCloud(state / StateFile.simulated_cloud, clock, limits=limits)


def _this_machine(settings: Settings, state: Path, clock: Clock, ledger_id: str) -> Provider:
    del ledger_id
    cloud = settings.cloud
    most = 4 if cloud.stock is None else cloud.stock
    return LocalCloud(
        clock, most_nodes=most, boot_seconds=cloud.boot_seconds, file=state / StateFile.local_cloud
    )


def _slurm_cluster(settings: Settings, state: Path, clock: Clock, ledger_id: str) -> Provider:
    """Return the cloud whose nodes are those of a Slurm cluster."""
    del ledger_id
    if not settings.cloud.partitions:
        raise InputError(
            "the provider slurm needs partitions whose nodes it may use",
            hint='For example [cloud.partitions.gpu] with gpu = "a100" and gpus = 4',
            setting=("cloud", "provider"),
        )
    if engine_kind(settings.engine.name).on_this_machine:
        raise InputError(
            "the local engine runs jobs here, not on the nodes of Slurm",
            hint='Set [engine] name = "slurm"',
            setting=("engine", "name"),
        )
    partitions = {name: partition_of(name, one) for name, one in settings.cloud.partitions.items()}
    slurm = Slurm(ssh=settings.engine.slurm_ssh)
    return SlurmCloud(slurm, clock, partitions=partitions, file=state / StateFile.slurm_cloud)


CLOUDS: Mapping[str, Callable[[Settings, Path, Clock, str], Provider]] = {
    "aws": _aws,
    "simulated": _simulated,
    "local": _this_machine,
    "slurm": _slurm_cluster,
}
"""Functions that open each `[cloud] provider`."""
CLOUD_CLASSES: Mapping[str, type[Provider]] = {
    "aws": AwsCloud,
    "simulated": FileCloud,
    "local": LocalCloud,
    "slurm": SlurmCloud,
}


def cloud_class(settings: Settings) -> type[Provider]:
    """Return the class of the configured cloud, without opening the cloud."""
    return CLOUD_CLASSES.get(settings.cloud.provider, Provider)


def _processes(settings: Settings, state: Path, door: JobDoor | None, cloud: Provider) -> Runner:
    del cloud
    if cloud_kind(settings.cloud.provider).on_aws:
        raise InputError(
            "the local engine runs jobs here, not on AWS",
            hint='Set [engine] name = "ssm"',
            setting=("engine", "name"),
        )
    return LocalEngine(
        state / StateFile.jobs,
        gate=door,
        own_user=settings.engine.own_user,
        secrets_file=settings.engine.secrets_file,
    )


def _ssm(settings: Settings, state: Path, door: JobDoor | None, cloud: Provider) -> Runner:
    """Return the engine that runs jobs over SSM; it uses the AWS clients of the cloud."""
    engine = settings.engine
    if not isinstance(cloud, AwsCloud | RegionalCloud):
        raise InputError(
            f"the engine {engine.name!r} does not go with the provider {settings.cloud.provider!r}",
            hint='"local" goes with "simulated" and "local", "ssm" with "aws", "ray" with any',
            setting=("engine", "name"),
        )
    if not (engine.queue_url and engine.uri):
        raise InputError(
            "the ssm engine needs [engine] queue_url and uri",
            hint="`boa up` makes the queue and the bucket, and writes both",
            setting=("engine", "name"),
        )
    if engine.queue_url == cloud.settings.queue_url:
        raise InputError(
            "[engine] queue_url and [cloud] queue_url are one queue: each would take the other's messages",
            hint="Make two; `boa up` does",
            setting=("engine", "queue_url"),
        )
    if not cloud.settings.instance_profile:
        raise InputError(
            "the ssm engine needs [cloud] instance_profile: a node without one never comes online in SSM",
            hint="`boa up` makes the profile, and writes it",
            setting=("engine", "name"),
        )
    calls = cloud.calls

    def address_of(node: NodeId) -> str:
        listed = calls.call("ec2:DescribeInstances", InstanceIds=[instance_of(node)])
        return str(listed["Reservations"][0]["Instances"][0]["PrivateIpAddress"])

    given = SsmSettings(
        queue_url=engine.queue_url,
        uri=engine.uri,
        state_file=state / StateFile.ssm_jobs,
        region=cloud.settings.region,
        own_user=engine.own_user,
    )
    ssm, sqs, s3 = (calls.client(name) for name in ("ssm", "sqs", "s3"))
    return SsmEngine(
        ssm, sqs, s3, given,
        address_of=address_of, gate=door, starts_at_once=AT_ONCE, efa_of=cloud.efa_cards,
        region_of=lambda node: cloud.cloud_of(node).settings.region,
    )  # fmt: skip


def _ray(settings: Settings, state: Path, door: JobDoor | None, cloud: Provider) -> Runner:
    del state, cloud
    engine = settings.engine
    if not engine.shared_dir:
        raise InputError(
            "the ray engine needs [engine] shared_dir, a folder that all nodes share",
            setting=("engine", "name"),
        )
    if settings.cloud.gpu_places:
        raise InputError(
            "[cloud] gpu_places does not go with the ray engine: Ray gives a job whole GPUs only",
            hint='Leave it out, or use "local" or "ssm"',
            setting=("cloud", "gpu_places"),
        )
    return RayEngine(
        Path(engine.shared_dir), address=engine.ray_address, gate=door, secrets_file=engine.secrets_file
    )


def _slurm(settings: Settings, state: Path, door: JobDoor | None, cloud: Provider) -> Runner:
    del state
    engine = settings.engine
    if not engine.shared_dir:
        raise InputError(
            "the slurm engine needs [engine] shared_dir, a folder that the daemon and all nodes share",
            setting=("engine", "name"),
        )
    if not isinstance(cloud, SlurmCloud):
        raise InputError(
            f"the engine 'slurm' does not go with the provider {settings.cloud.provider!r}",
            hint='Set [cloud] provider = "slurm", with its partitions',
            setting=("engine", "name"),
        )
    try:
        return SlurmEngine(
            Path(engine.shared_dir),
            slurm=cloud.slurm,
            options=engine.slurm_options,
            gpus_of={name: one.gpus for name, one in settings.cloud.partitions.items()},
            gate=door,
            own_user=engine.own_user,
            secrets_file=engine.secrets_file,
        )
    except ValueError as error:
        raise InputError(f"[engine] {error}", setting=("engine", "slurm_options")) from None


ENGINES: Mapping[str, Callable[[Settings, Path, JobDoor | None, Provider], Runner]] = {
    "local": _processes,
    "ssm": _ssm,
    "ray": _ray,
    "slurm": _slurm,
}
"""Functions that open each `[engine] name`."""


def _named(group: plugins.PluginGroup, table: Mapping[str, _Part], name: str, key: str) -> _Part:
    """Return the built-in part of this name, or a plug-in's.

    Raises:
        InputError: when there is no such part.
    """
    found: _Part | None = table.get(name) or plugins.load(group, name)
    if found is None:
        known = (*table, *plugins.names(group))
        raise InputError(f"{key}: {name!r} is not known", hint=did_you_mean(name, known))
    return found


def open_storage(
    url: str, *, durable: bool = True, lead: Callable[[Engine], Leadership] | None = None
) -> Storage:
    """Open a database as `Storage` and migrate its schema; `lead` makes this process its only writer.

    Raises:
        StoreUnreachable: when the database cannot be used now.
        StoreTooNew: when a newer version of BOA wrote it; nothing is written then.
        StoreUnusable: when the database cannot be read.
        LedElsewhere: when another process is the writer.
    """
    engine, leadership = open_engine(url, durable=durable), None
    try:
        if engine.dialect.name != "sqlite":
            check_integrity(engine)
        elif not _is_new(url):
            # Only read: opening it for writing would change a database of another version.
            check_version(look_into(_file_of(url)).revision)
        migrate(engine)
        database = Database(engine)
        if lead is not None:
            # Lead first: rows that another writer adds after they are read would be missing in memory.
            leadership = lead(engine)
            database.fence = leadership.fence
        queue = JobQueue(database)
        return Storage(store=DaemonStore(database, queue), queue=queue, leadership=leadership)
    except BaseException as error:
        if leadership is not None:
            leadership.give_up()
        engine.dispose()
        if isinstance(error, PASSING):
            raise unusable(error, "the database cannot be used") from None
        if isinstance(error, ValueError | TypeError | LookupError | AttributeError):
            # SQLite finds no fault in a row whose text is cut short.
            raise StoreUnusable(f"a row of the database cannot be read: {error}") from error
        raise


def _file_of(url: str) -> Path:
    return Path(parsed_url(url).database or "")


def _is_new(url: str) -> bool:
    """Whether the SQLite file does not exist yet, or is empty because the disk was full when it was made."""
    name = parsed_url(url).database
    if name in (None, "", ":memory:"):
        return True
    try:
        return Path(str(name)).stat().st_size == 0
    except FileNotFoundError:
        return True


def database_url(settings: Settings) -> str:
    """Return the URL of the database."""
    return settings.daemon.database or sqlite_url(daemon_paths(settings).database)


def take_lead(engine: Engine) -> Leadership:
    """Make this process the leader on a database.

    Raises:
        LedElsewhere: when another process leads.
    """
    leadership = Leadership(engine)
    other = leadership.take()
    if other is not None:
        raise LedElsewhere(f"this cluster is led by {other.sentence}")
    return leadership


def wait_out_the_dead(engine: Engine) -> Leadership:
    """Make this process the leader; wait for the lease of a leader that does not renew it any more.

    A process that was killed leaves its lease in the database. Its successor would find it there, and observe
    only, although nobody leads.

    Raises:
        LedElsewhere: when another process leads and renews its lease.
    """
    leadership, until = Leadership(engine), time.monotonic() + LEASE_SECONDS + RENEW_SECONDS
    first: float | None = None
    while (other := leadership.take()) is not None:
        expires = leadership.expires_at
        first = expires if first is None else first
        if leadership.is_of_a_file or expires != first or time.monotonic() > until:
            raise LedElsewhere(f"this cluster is led by {other.sentence}")
        time.sleep(0.5)
    return leadership


def open_database(settings: Settings, lead: Callable[[Engine], Leadership]) -> Storage:
    """Open the daemon's database, and lead on it unless the settings only observe.

    Raises:
        LedElsewhere: when another process leads.
        StoreUnreachable: when it cannot be used now; trying again may succeed.
        StoreTooNew: when a newer version of BOA wrote it.
        StoreOfOthers: when another daemon, with another state folder, has filled it.
        StoreUnusable: when it is damaged, or empty although there was one before.
    """
    there, url = daemon_paths(settings), database_url(settings)
    if numbered_jobs(there.next_job) > 0 and _has_no_tables(url):
        # Tables are not made in a database that was named, or is looked for, by mistake.
        raise StoreUnusable(_EMPTIED)
    opened = open_storage(url, lead=None if settings.daemon.observe else lead)
    try:
        if not opened.store.flag(RECOVERED):
            if opened.queue.is_emptied(there.next_job):
                raise StoreUnusable(_EMPTIED)
            _check_owner(opened, there)
        elif not settings.daemon.observe:
            _end_recovery(opened, there)
        opened.queue.mark_in(there.next_job)
    except PASSING as error:
        opened.close()
        raise unusable(error, "the database cannot be used") from None
    except BaseException:
        opened.close()
        raise
    return opened


def _end_recovery(opened: Storage, there: DaemonPaths) -> None:
    """Take a recovered database for an ordinary one once a tick and a job of this folder are in it."""
    last = LastStateFile(there.last_state).ledger_id()
    if last == opened.store.name and opened.queue.has_had_jobs:
        opened.store.set_flag(RECOVERED, False)


_EMPTIED = "the database is empty, and there was one before, as the file next_job says"


def _has_no_tables(url: str) -> bool:
    """Whether a database is new."""
    if parsed_url(url).get_backend_name() == "sqlite":
        return _is_new(url)
    return look_into_server(url).revision is None


def _check_owner(opened: Storage, there: DaemonPaths) -> None:
    """Refuse a database with the jobs of another daemon, which would be started here a second time.

    Raises:
        StoreOfOthers: when the last tick of this state folder was recorded in another database.
    """
    last = LastStateFile(there.last_state).ledger_id()
    if last and last != opened.store.name and opened.queue.has_had_jobs:
        raise StoreOfOthers(
            f"the database is another daemon's: the last tick of {there.state} was recorded in {last}, and "
            f"this is {opened.store.name}. Name its own in [daemon] database, or put its file back; "
            f"if this one is meant, delete {there.last_state}"
        )


def try_database(
    settings: Settings, lead: Callable[[Engine], Leadership] = wait_out_the_dead
) -> tuple[Storage | None, str, float | None]:
    """Return the database, or None with the reason, and the seconds after which to try again."""
    keeps = "only observes" if settings.daemon.observe else "keeps the caps and the leases"
    try:
        return open_database(settings, lead), "", None
    except LedElsewhere as error:
        return None, f"{error}. This daemon only observes; `boa daemon --standby` takes over", None
    except StoreUnreachable as error:
        return None, f"{error}. Until then the daemon {keeps}, and goes on by itself", AGAIN_SECONDS
    except (StoreTooNew, StoreOfOthers) as error:
        return None, f"{error}. Until then the daemon {keeps}", DAMAGED_SECONDS
    except StoreUnusable as error:
        said = f"{error}. Until then the daemon {keeps}; `boa recover` makes a new database"
        return None, said, DAMAGED_SECONDS


def open_daemon(
    settings: Settings,
    *,
    clock: Clock | None = None,
    lead: Callable[[Engine], Leadership] = wait_out_the_dead,
    storage: Storage | None = None,
) -> Daemon:
    """Open the daemon that the settings describe, on `storage` if that is open already.

    Without a database it keeps only what an earlier process left; `awaited_seconds` says when to try again.
    """
    there = daemon_paths(settings)
    make_folder(there.state)
    for folder in (there.state, there.backups):
        # A half backup may be what fills the disk; a fresh one may be that of a leader in another container.
        remove_torn(folder, unless_of_last_seconds=TORN_SECONDS)
    engine = engine_kind(settings.engine.name)
    if settings.engine.own_user and engine.on_this_machine and os.geteuid() == 0:
        with suppress(OSError):
            let_jobs_through(there.state)
    clock = clock or SteadyClock()
    fault, again = "", None
    if storage is None:
        storage, fault, again = try_database(settings, lead)
    if storage is not None:
        for folder in (there.state, there.backups):
            remove_torn(folder)
    if fault:
        _LOG.error("%s", fault)
    last_file = LastStateFile(there.last_state)
    last = None if storage is not None or again is None else last_file.read()
    site = gate_endpoint_of(settings)
    with ExitStack() as undone:
        named = "" if last is None else last.ledger_id
        if storage is not None:
            undone.callback(storage.close)
            named = storage.store.name
        world = open_world(settings, there.state, clock, ledger_id=named, site=site)
        undone.callback(world.cloud.close)
        if storage is not None and isinstance(world.runner, PersistableRunner):
            documents = Documents(storage.store.database, f"engine {settings.engine.name}")
            world.runner.remember_in(documents.read, documents.write)
        if storage is not None and isinstance(world.runner, SsmEngine):
            world.runner.starts.may_act = storage.check_leads
        gate = open_gate(settings, site, there.state)
        if gate is not None:
            undone.callback(gate.close)
        daemon = Daemon(
            settings,
            world,
            storage,
            fault=fault,
            gate=gate,
            why_no_gate=site.why_off,
            last_state=last,
            last_state_file=last_file,
        )
        undone.pop_all()
    daemon.awaited_seconds = again
    return daemon
