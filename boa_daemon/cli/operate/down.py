"""``boa down``: the daemon releases all instances; ``--all`` ends everything of the cluster without it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.backends.aws.instances.images import most_usd_per_hour, own_images
from boa_daemon.backends.aws.instances.receipt import Receipt, end_everything
from boa_daemon.backends.aws.instances.sweep import Sweeper
from boa_daemon.backends.aws.prices.extra_costs import HOURS_OF_A_MONTH
from boa_daemon.backends.aws.prices.side_prices import side_prices
from boa_daemon.backends.aws.stack.deployment import Stack
from boa_daemon.cli.common.aws_options import (
    DEFAULT_CONFIG,
    ClusterOption,
    ConfigOption,
    in_each_region,
    regions_of,
    settings_of,
)
from boa_daemon.cli.common.cluster_resources import SIMULATED, end_simulated, simulated_settings
from boa_daemon.cli.common.daemon_client import SocketOption
from boa_daemon.cli.common.daemon_status import release_everything
from boa_daemon.cli.common.output import OutputFormat, OutputOption, show, stdout_console
from boa_daemon.cli.operate.gc import RegionsOption, print_receipts, say_unanswered
from boa_daemon.clock import SystemClock
from boa_daemon.daemon.loop.auxiliary_costs import billed_usd, close_standing
from boa_daemon.daemon.settings.setting_layers import load_settings
from boa_daemon.errors import PARTLY_DONE, InputError, MissingPrice
from boa_daemon.units import counted
from policies.money_text import in_dollars, price_in_dollars


def down(
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="End everything of this cluster directly, without the daemon.")
    ] = False,
    stack: Annotated[
        bool, typer.Option("--stack", help="With --all: also delete what `boa up` made, except the bucket.")
    ] = False,
    data: Annotated[
        bool,
        typer.Option("--data", help="With --stack: also delete the bucket, with all checkpoints and logs."),
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Let the daemon start jobs again.")] = False,
    socket: SocketOption = None,
    config: ConfigOption = DEFAULT_CONFIG,
    region: RegionsOption = None,
    cluster: ClusterOption = None,
    wait_seconds: Annotated[
        float, typer.Option(min=0.0, help="Seconds to wait until everything has ended.")
    ] = 600.0,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Stop renting: running jobs write checkpoints and wait, and all instances end.

    Nothing new starts until --resume. --all ends all instances, disks, interfaces and spot requests of this
    cluster in all regions of the settings, or in those named, whoever started them. Stop the daemon first,
    or it will rent again. --stack also deletes what `boa up` made, once nothing is rented. On the simulated
    cloud --all also ends the job processes. Exit code 4 if something is left.
    """
    if (stack and not everything) or (data and not stack):
        raise InputError("--stack goes with --all, and --data with --all --stack")
    if not everything:
        release_everything(
            resume=resume, wait_seconds=wait_seconds, config=config, socket=socket, form=output
        )
        return
    if resume:
        raise InputError("--all and --resume exclude each other")
    simulated = simulated_settings(config) if region is None and cluster is None else None
    if simulated is not None:
        if stack:
            raise InputError("--stack is for AWS: the simulated cloud has no stack")
        receipt = end_simulated(simulated)
        _show(SIMULATED, [receipt], None, stack=False, form=output, billed=billed_usd(simulated))
        return
    settings = settings_of(config, cluster=cluster)
    clock = SystemClock()
    calls = AwsCalls(settings)
    sweeper = Sweeper(settings, calls, clock)
    regions = regions_of(region, settings)
    receipts, unanswered = in_each_region(
        regions, lambda where: end_everything(sweeper, where, clock=clock, wait_seconds=wait_seconds)
    )
    is_clean = not unanswered and all(receipt.is_clean for receipt in receipts)
    # Keep the stack while something is rented: it holds the roles that can end instances.
    further = [each for each in settings.regions if each != settings.region] if region is None else []
    for where in further if stack and is_clean else ():
        # Before the home region's, which has the roles.
        Stack(AwsCalls(settings.in_region(where))).remove(wait_seconds=wait_seconds)
    gone = _take_away(Stack(calls), wait_seconds, data=data) if stack and is_clean else None
    whole = load_settings(config).settings if cluster is None and config.exists() else None
    if gone is not None and whole is not None:
        close_standing(whole)
    _show(
        settings.cluster, receipts, gone, stack=stack, form=output,
        images=_images(calls), billed=None if whole is None else billed_usd(whole),
    )  # fmt: skip
    say_unanswered(unanswered)
    if not is_clean:
        raise typer.Exit(PARTLY_DONE)


def _images(calls: AwsCalls) -> dict[str, Any] | None:
    """Return the number of images left and their highest cost; None where AWS or a price fails."""
    try:
        images = own_images(calls)
        usd = most_usd_per_hour(images, calls.settings) * HOURS_OF_A_MONTH
    except (CallFailed, MissingPrice):
        return None
    return {"count": len(images), "most_usd_per_month": round(usd, 4)}


def _show(
    cluster: str,
    receipts: list[Receipt],
    gone: dict[str, Any] | None,
    *,
    stack: bool,
    form: OutputFormat,
    images: dict[str, Any] | None = None,
    billed: Mapping[str, float] | None = None,
) -> None:
    """Show the receipts, what is left, the bill by kind, and what became of the stack."""
    document: dict[str, Any] = {
        "cluster": cluster,
        "regions": [receipt.row() for receipt in receipts],
        "images": images,
        "billed_usd": billed,
    }
    if stack:
        document["stack"] = gone
    show(
        form,
        document,
        rows=lambda: [{**receipt.row(), "failed": len(receipt.failed)} for receipt in receipts],
        table=lambda: _print(document, receipts, gone, asked=stack),
    )


def _take_away(stack: Stack, wait_seconds: float, *, data: bool) -> dict[str, Any]:
    """Delete the stack, and return what became of its bucket.

    Raises:
        CallFailed: when AWS refuses.
    """
    bucket = stack.outputs().get("BucketName") or stack.bucket()
    was_there = stack.remove(wait_seconds=wait_seconds)
    kept = stack.kept(bucket, delete=data)
    try:
        usd = side_prices(stack.settings).s3_usd_per_gb_month
    except MissingPrice:
        usd = None
    price = 0.0 if kept.is_gone else None if usd is None else round(kept.size_bytes / 1e9 * usd, 4)
    return {
        "name": stack.name,
        "removed": was_there,
        "bucket": bucket,
        "bucket_removed": kept.is_gone,
        "objects": kept.objects,
        "gb": round(kept.size_bytes / 1e9, 6),
        "usd_per_month": price,
    }


def _print(
    document: Mapping[str, Any], receipts: list[Receipt], gone: dict[str, Any] | None, *, asked: bool
) -> None:
    print_receipts(receipts)
    console = stdout_console()
    if images := document["images"]:
        console.print(
            f"{counted(images['count'], 'image')} left, at most "
            f"{price_in_dollars(images['most_usd_per_month'])}/month; "
            "`boa image remove --keep 0` removes them."
            if images["count"]
            else "0 images.",
            soft_wrap=True,
        )
    if billed := document["billed_usd"]:
        parts = ", ".join(f"{kind} {in_dollars(usd)}" for kind, usd in billed.items())
        console.print(
            f"billed, as the ledger has it: {in_dollars(sum(billed.values()))} ({parts}).", soft_wrap=True
        )
    if gone is None:
        if asked:
            console.print(
                "The stack was kept, because something is still rented. Run the same command again."
            )
        return
    console.print(f"stack {gone['name']}: " + ("gone." if gone["removed"] else "there was none."))
    if gone["bucket_removed"]:
        console.print(f"bucket {gone['bucket']}: gone.", soft_wrap=True)
    else:
        price = (
            "an unknown price" if gone["usd_per_month"] is None else price_in_dollars(gone["usd_per_month"])
        )
        console.print(
            f"bucket {gone['bucket']} stays: {gone['objects']} objects, {gone['gb']:g} GB, "
            f"{price}/month; --data deletes it.",
            soft_wrap=True,
        )
