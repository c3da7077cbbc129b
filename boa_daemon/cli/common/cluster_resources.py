"""Resources of a cluster that still exist, on any cloud: for receipts, `boa gc` and `boa down --all`.

The simulated cloud and the local cloud keep their nodes in files of the state folder. Jobs on these nodes are
processes on this machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from boa_daemon.api.client import Client, DaemonUnreachable
from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.instances.receipt import KINDS, Receipt
from boa_daemon.backends.aws.instances.sweep import OwnedResource, Sweeper
from boa_daemon.backends.cloud_kinds import cloud_kind
from boa_daemon.backends.simulated import FileCloud
from boa_daemon.cli.common.aws_options import DEFAULT_CONFIG
from boa_daemon.clock import SystemClock
from boa_daemon.daemon.settings.config import Settings, aws_settings
from boa_daemon.daemon.settings.daemon_paths import StateFile, daemon_paths, socket_of
from boa_daemon.daemon.settings.setting_layers import load_settings
from boa_daemon.engines.local import LocalEngine
from boa_daemon.errors import BoaError, InputError
from boa_daemon.tick.facts.actions import TerminateNode
from boa_daemon.units import format_hours

SIMULATED = "simulated"
"""Region shown for nodes of the simulated cloud."""


class StillManaged(BoaError):
    """A daemon is running, and would rent again what is ended without it."""


def simulated_settings(config: Path) -> Settings | None:
    """Return the settings if they name the simulated cloud; None if the verb is to use AWS.

    Raises:
        InputError: when the settings are wrong, or the named file does not exist.
    """
    if config != DEFAULT_CONFIG and not config.exists():
        raise InputError("there is no such settings file", file=config)
    settings = load_settings(config if config.exists() else None).settings
    is_said = "provider" in settings.cloud.model_fields_set
    return settings if is_said and cloud_kind(settings.cloud.provider).in_a_file else None


def count_resources(settings: Settings) -> Mapping[str, int]:
    """Return the number of existing resources by kind."""
    if cloud_kind(settings.cloud.provider).on_aws:
        given = aws_settings(settings.cloud)
        found = Sweeper(given, AwsCalls(given), SystemClock()).find()
        count = Counter(each.kind for each in found if not each.is_ending)
        return {kind: count[kind] for kind in KINDS}
    state = daemon_paths(settings).state
    jobs = sum(not report.is_over for report in LocalEngine(state / StateFile.jobs).reattach().values())
    if not cloud_kind(settings.cloud.provider).in_a_file:
        return {"job process": jobs}
    with _cloud(settings) as cloud:
        return {"instance": sum(node.ended_at is None for node in cloud.everything()), "job process": jobs}


def find_simulated(settings: Settings) -> list[OwnedResource]:
    """Return the running nodes of the simulated cloud; a leak is a node that no daemon wants."""
    with _cloud(settings) as cloud:
        silent = cloud.unwanted()
        return [
            OwnedResource(
                kind="instance",
                id=node.id,
                region=SIMULATED,
                leak=_leak(silent.get(node.id)),
                since=node.launched_at,
                instance_type=node.instance_type.name,
            )
            for node in cloud.everything()
            if node.ended_at is None
        ]


def end_simulated(settings: Settings, which: Collection[str] | None = None) -> Receipt:
    """End the nodes in `which`; None ends all nodes and all job processes. Return the receipt.

    Raises:
        StillManaged: when all nodes are to end while a daemon runs.
    """
    if which is None:
        _check_unmanaged(settings)
    with _cloud(settings) as cloud:
        live = [node.id for node in cloud.everything() if node.ended_at is None]
        ending = [name for name in live if which is None or name in which]
        cloud.terminate([TerminateNode(id=f"down-{name}", node=name, reason="ordered") for name in ending])
        left = [
            node
            for node in cloud.everything()
            if node.ended_at is None and (which is None or node.id in which)
        ]
    if which is None:
        _end_processes(settings)
    return Receipt(
        region=SIMULATED,
        left={kind: len(left) if kind == "instance" else 0 for kind in KINDS},
        ended=len(ending),
        stopped_at=SystemClock().now() if ending else None,
        failed={},
    )


def end_local(settings: Settings) -> None:
    """Kill the job processes of the local cloud, whose nodes are this machine.

    Raises:
        StillManaged: while a daemon runs.
    """
    _check_unmanaged(settings)
    _end_processes(settings)


def _check_unmanaged(settings: Settings) -> None:
    """Raise an error while a daemon listens.

    Raises:
        StillManaged: when a daemon answers.
    """
    with suppress(DaemonUnreachable), Client(socket_of(settings)):
        raise StillManaged(
            "a daemon is running and would rent again: stop it first, or run `boa down` without --all"
        )


def _end_processes(settings: Settings) -> None:
    """Kill the job processes of the state folder on this machine."""
    engine = LocalEngine(daemon_paths(settings).state / StateFile.jobs)
    for report in engine.reattach().values():
        if not report.is_over:
            engine.kill(report.job, report.generation)


@contextmanager
def _cloud(settings: Settings) -> Iterator[FileCloud]:
    """Open the simulated cloud; raise an error where it does not exist, instead of making one."""
    state = daemon_paths(settings).state
    if not state.is_dir():
        raise InputError(
            f"there is no state folder {state}: nothing was ever rented here",
            hint="Give --config, or set [daemon] state_dir",
        )
    cloud = FileCloud(state / StateFile.simulated_cloud, SystemClock())
    try:
        yield cloud
    finally:
        cloud.close()


def _leak(silent_seconds: float | None) -> str:
    """Return why a node is a leak; empty if it is none."""
    if silent_seconds is None:
        return ""
    return f"no daemon has wanted it for {format_hours(silent_seconds / 3600.0)}"
