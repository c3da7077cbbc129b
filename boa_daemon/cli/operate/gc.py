"""``boa gc``: find leaked resources of the cluster, and end them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.instances.receipt import Receipt, end_everything, iso_time
from boa_daemon.backends.aws.instances.sweep import OwnedResource, Sweeper
from boa_daemon.cli.common.aws_options import (
    DEFAULT_CONFIG,
    ClusterOption,
    ConfigOption,
    in_each_region,
    regions_of,
    settings_of,
)
from boa_daemon.cli.common.cluster_resources import (
    SIMULATED,
    end_simulated,
    find_simulated,
    simulated_settings,
)
from boa_daemon.cli.common.output import OutputFormat, OutputOption, a_table, show, stdout_console
from boa_daemon.clock import SystemClock
from boa_daemon.errors import DRIFT_FOUND, PARTLY_DONE
from boa_daemon.units import counted

RegionsOption = Annotated[
    list[str] | None,
    typer.Option("--region", help="AWS region, may be repeated. Default: all of the settings."),
]


def gc(
    *,
    config: ConfigOption = DEFAULT_CONFIG,
    region: RegionsOption = None,
    cluster: ClusterOption = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only report leaks; exit code 6 if there are any.")
    ] = False,
    wait_seconds: Annotated[
        float, typer.Option(min=0.0, help="Seconds to wait until everything has ended.")
    ] = 600.0,
    output: OutputOption = OutputFormat.table,
) -> None:
    """End leaked instances, disks, network interfaces and spot requests of this cluster.

    A leak has the cluster's tag, and no daemon intended it, its lease ran out, or it is attached to nothing.
    Resources without the tag are never touched. On the simulated cloud a leak is a node that no daemon wants.
    """
    simulated = simulated_settings(config) if region is None and cluster is None else None
    unanswered: dict[str, str] = {}
    if simulated is not None:
        name, found = SIMULATED, find_simulated(simulated)
    else:
        settings, clock = settings_of(config, cluster=cluster), SystemClock()
        name, sweeper = settings.cluster, Sweeper(settings, AwsCalls(settings), clock)
        regions = regions_of(region, settings)
        by_region, unanswered = in_each_region(regions, lambda where: sweeper.find(region=where))
        found = [each for mine in by_region for each in mine]
        regions = [where for where in regions if where not in unanswered]
    leaks = [each for each in found if each.leak]
    ids = {each.id for each in leaks}
    receipts: list[Receipt] = []
    if not check and simulated is not None:
        receipts = [end_simulated(simulated, ids)]
    elif not check:
        receipts, lost = in_each_region(
            regions,
            lambda where: end_everything(
                sweeper, where, clock=clock, wait_seconds=wait_seconds, which=lambda each: each.id in ids
            ),
        )
        unanswered |= lost
    rows, wanted = [_row(each) for each in leaks], len(found) - len(leaks)
    document = {
        "cluster": name,
        "leaks": rows,
        "wanted": wanted,
        "regions": [each.row() for each in receipts],
        "unanswered": unanswered,
    }
    show(
        output,
        document,
        rows=lambda: rows,
        table=lambda: _print(name, leaks, wanted, receipts, is_check=check),
    )
    say_unanswered(unanswered)
    if check and leaks:
        raise typer.Exit(DRIFT_FOUND)
    if unanswered or not all(receipt.is_clean for receipt in receipts):
        raise typer.Exit(PARTLY_DONE)


def _row(found: OwnedResource) -> dict[str, Any]:
    return {
        "kind": found.kind,
        "id": found.id,
        "region": found.region,
        "instance_type": found.instance_type or None,
        "since": None if found.since is None else iso_time(found.since),
        "leak": found.leak,
    }


def _print(
    cluster: str, leaks: list[OwnedResource], wanted: int, receipts: list[Receipt], *, is_check: bool
) -> None:
    console = stdout_console()
    if leaks:
        table = a_table(f"Leaks of cluster {cluster}", "kind", "id", "region", "since", "why")
        for each in leaks:
            since = "" if each.since is None else iso_time(each.since)
            table.add_row(each.kind, each.id, each.region, since, each.leak)
        console.print(table)
    console.print(f"{len(leaks)} leaks, {wanted} wanted.")
    if leaks and is_check:
        console.print("Nothing was ended; `boa gc` without --check ends them.")
    print_receipts(receipts)


def say_unanswered(unanswered: Mapping[str, str]) -> None:
    """Say on standard error which regions did not answer."""
    for region, why in unanswered.items():
        typer.echo(f"{region} does not answer, so what is left there is not known: {why}", err=True)


def print_receipts(receipts: list[Receipt]) -> None:
    """Print the receipts, one line per region."""
    console = stdout_console()
    for receipt in receipts:
        left = receipt.left
        pool = f", {receipt.of_warm_pool} of the warm pool" if receipt.of_warm_pool else ""
        console.print(
            f"{receipt.region}: {counted(left['instance'], 'instance')}, "
            f"{counted(left['volume'], 'volume')}, "
            f"{counted(left['network-interface'], 'interface')}, "
            f"{counted(left['spot-request'], 'spot request')} left; "
            f"{receipt.ended} ended{pool}.",
            soft_wrap=True,
        )
        if receipt.stopped_at is not None:
            console.print(f"{receipt.region}: billing stopped at {iso_time(receipt.stopped_at)}.")
        for name, why in receipt.failed.items():
            console.print(f"{name} was not ended: {why}", soft_wrap=True, markup=False)
