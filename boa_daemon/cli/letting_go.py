"""``boa down``: through the daemon, or with ``--all`` past it, everything of the cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from boa_daemon.cli import down as past_the_daemon
from boa_daemon.cli import state
from boa_daemon.cli.aws_site import DEFAULT_CONFIG, ClusterOption
from boa_daemon.cli.gc import RegionsOption
from boa_daemon.cli.output import JsonOption, OutputFormat, OutputOption
from boa_daemon.cli.talking import ConfigOption, SocketOption
from boa_daemon.errors import InputError

_DAEMON_SECONDS, _CLOUD_SECONDS = 120.0, 600.0


def down(
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="Past the daemon: all instances and leftovers of this cluster.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Take work up again.")] = False,
    region: RegionsOption = None,
    cluster: ClusterOption = None,
    wait_seconds: Annotated[
        float | None, typer.Option("--wait-seconds", "--wait", min=0.0, help="How long to wait for the ends.")
    ] = None,
    config: ConfigOption = None,
    socket: SocketOption = None,
    output: OutputOption = OutputFormat.table,
    as_json: JsonOption = False,
) -> None:
    """Let everything go: jobs checkpoint, instances are given back, nothing new is started.

    With --all no daemon is asked: stop it first, or it will rent anew. Exit code 4 when something is left.
    """
    if everything:
        if resume or socket is not None:
            raise InputError("--all goes past the daemon: it takes neither --resume nor --socket")
        past_the_daemon.down(
            everything=True,
            config=config or DEFAULT_CONFIG,
            region=region,
            cluster=cluster,
            wait_seconds=_CLOUD_SECONDS if wait_seconds is None else wait_seconds,
            output=output,
            as_json=as_json,
        )
        return
    if region is not None or cluster is not None:
        raise InputError("--region and --cluster go with --all", hint="boa down --all")
    state.down(
        resume=resume,
        wait=_DAEMON_SECONDS if wait_seconds is None else wait_seconds,
        config=config,
        socket=socket,
        output=output,
        as_json=as_json,
    )
