"""``boa down``: the daemon lets everything go; ``--all`` ends everything of the cluster, with a receipt."""

from __future__ import annotations

from typing import Annotated

import typer

from boa_daemon.backends.aws_calls import AwsCalls
from boa_daemon.backends.aws_receipt import end_everything
from boa_daemon.backends.aws_sweep import Sweeper
from boa_daemon.cli.aws_site import DEFAULT_CONFIG, ClusterOption, ConfigOption, settings_of
from boa_daemon.cli.gc import RegionsOption, print_receipts
from boa_daemon.cli.output import JsonOption, OutputFormat, OutputOption, chosen_format, show
from boa_daemon.cli.state import let_go
from boa_daemon.cli.talking import SocketOption
from boa_daemon.clock import SystemClock
from boa_daemon.errors import PARTLY_DONE, InputError


def down(
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="Everything of this cluster, without the daemon.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="The daemon takes work up again.")] = False,
    socket: SocketOption = None,
    config: ConfigOption = DEFAULT_CONFIG,
    region: RegionsOption = None,
    cluster: ClusterOption = None,
    wait_seconds: Annotated[float, typer.Option(min=0.0, help="How long to wait for the ends.")] = 600.0,
    output: OutputOption = OutputFormat.table,
    as_json: JsonOption = False,
) -> None:
    """Let everything go: jobs checkpoint and wait, instances are given back, nothing new is started.

    With --all end all instances, disks, interfaces and spot requests of this cluster, in each region named,
    whoever started them; stop the daemon first, or it will rent anew. Exit code 4 when something is left.
    """
    if not everything:
        form = chosen_format(output, as_json)
        let_go(resume=resume, wait_seconds=wait_seconds, config=config, socket=socket, form=form)
        return
    if resume:
        raise InputError("--all and --resume exclude each other")
    settings = settings_of(config, cluster=cluster)
    clock = SystemClock()
    sweeper = Sweeper(settings, AwsCalls(settings), clock)
    regions = list(dict.fromkeys(region or [settings.region]))
    receipts = [end_everything(sweeper, where, clock=clock, wait_seconds=wait_seconds) for where in regions]
    show(
        chosen_format(output, as_json),
        {"cluster": settings.cluster, "regions": [receipt.row() for receipt in receipts]},
        rows=lambda: [{**receipt.row(), "failed": len(receipt.failed)} for receipt in receipts],
        table=lambda: print_receipts(receipts),
    )
    if not all(receipt.is_clean for receipt in receipts):
        raise typer.Exit(PARTLY_DONE)
