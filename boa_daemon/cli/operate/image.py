"""``boa image``: build, list and remove node images with everything installed, so that boots are fast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from boa_daemon.backends.aws.cloud import AwsCloud
from boa_daemon.backends.aws.image_builder.build import ImageBuilder
from boa_daemon.backends.aws.image_builder.recipe import BuildFailed, BuildResult, builder_request
from boa_daemon.backends.aws.image_builder.script import check
from boa_daemon.backends.aws.instances.images import (
    OwnImage,
    most_usd_per_hour,
    outdated,
    own_images,
    remove,
    staleness,
)
from boa_daemon.backends.aws.instances.launch_request import LaunchTarget
from boa_daemon.backends.aws.prices.extra_costs import HOURS_OF_A_MONTH
from boa_daemon.backends.aws.prices.region_prices import catalog_of
from boa_daemon.backends.aws.prices.side_prices import side_prices
from boa_daemon.backends.settings import BUILT, AwsSettings
from boa_daemon.cli.common.aws_options import (
    DEFAULT_CONFIG,
    ClusterOption,
    ConfigOption,
    RegionOption,
    settings_of,
)
from boa_daemon.cli.common.output import (
    OutputFormat,
    OutputOption,
    a_table,
    show,
    stderr_console,
    stdout_console,
)
from boa_daemon.cli.common.toml_keys import write_keys
from boa_daemon.cli.operate.image_plan import ImagePlan, image_plan
from boa_daemon.clock import SystemClock
from boa_daemon.daemon.loop.auxiliary_costs import check_cap_room, enter_bill
from boa_daemon.daemon.loop.lock import Lock
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.daemon.settings.daemon_paths import daemon_paths, make_folder
from boa_daemon.daemon.settings.setting_layers import load_settings
from boa_daemon.errors import InputError
from boa_daemon.tick.facts.offers import Offer
from policies.money_text import in_dollars, price_in_dollars

app = typer.Typer(help="Build, list and remove images for nodes.", no_args_is_help=True)
_OVERTIME_MINUTES, _USUAL_MINUTES = 10.0, 20.0
"""Most minutes from launch to the first script; and the assumed minutes of a build."""
_NO_CAPACITY = "InsufficientInstanceCapacity"


@app.command("build")
def build(
    *,
    instance_type: Annotated[
        str | None,
        typer.Option("--type", help="Instance type to build on. Default: the cheapest of instance_types."),
    ] = None,
    pip: Annotated[
        list[str] | None,
        typer.Option(help="Python package to install, such as torch==2.9.0; may be repeated."),
    ] = None,
    container: Annotated[
        list[str] | None, typer.Option(help="Container image to pull; may be repeated.")
    ] = None,
    script: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Script to run as root at the end.")
    ] = None,
    minutes: Annotated[
        float, typer.Option(min=10.0, max=600.0, help="Minutes after which the builder ends at the latest.")
    ] = 60.0,
    keep: Annotated[int, typer.Option(min=1, help="Images to keep, including the new one.")] = 2,
    yes: Annotated[bool, typer.Option("--yes", help="Build it; without this nothing is rented.")] = False,
    config: ConfigOption = DEFAULT_CONFIG,
    region: RegionOption = None,
    cluster: ClusterOption = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Show what building a node image costs; with --yes build it, and let nodes boot from it.

    A node is rented, prepared and stopped; its disk becomes the image. A killed build resumes when rerun.
    """
    settings = settings_of(config, region=region, cluster=cluster)
    whole = load_settings(config if config.exists() else None).settings
    packages, containers = tuple(pip or ()), tuple(container or ())
    check(pip=packages, containers=containers)
    cloud = _looking(settings)
    plan = image_plan(
        cloud, config, instance_type,
        pip=packages, containers=containers, script="" if script is None else _read(script),
        minutes=minutes, keep=keep,
    )  # fmt: skip
    built = _build(cloud, whole, plan) if yes else None
    if built is not None:
        write_keys(config, {"cloud": {"image": BUILT}})
    document = _document(plan, settings, config, built)
    show(output, document, rows=lambda: [document], table=lambda: _print(document))


@app.command("list")
def list_images(
    *,
    config: ConfigOption = DEFAULT_CONFIG,
    region: RegionOption = None,
    cluster: ClusterOption = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """List the cluster's images, newest first: age, contents, and what is out of date."""
    cloud = _looking(settings_of(config, region=region, cluster=cluster))
    now = SystemClock().now()
    rows = [_row(cloud, image, now) for image in own_images(cloud.calls)]
    show(
        output,
        {"cluster": cloud.settings.cluster, "region": cloud.settings.region, "images": rows},
        rows=lambda: [{**row, "stale": "; ".join(row["stale"])} for row in rows],
        table=lambda: _print_images(rows),
    )


@app.command("remove")
def remove_images(
    images: Annotated[list[str] | None, typer.Argument(help="Image ids, such as ami-0ab.")] = None,
    *,
    keep: Annotated[
        int | None, typer.Option(min=0, help="Instead of ids: remove all but the newest N.")
    ] = None,
    config: ConfigOption = DEFAULT_CONFIG,
    region: RegionOption = None,
    cluster: ClusterOption = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Remove images of the cluster with their snapshots, which are what costs money."""
    if bool(images) == (keep is not None):
        raise InputError("name images, or give --keep N", hint="`boa image list` lists them")
    cloud = _looking(settings_of(config, region=region, cluster=cluster))
    found = own_images(cloud.calls)
    unknown = sorted({*(images or ())} - {image.id for image in found})
    if unknown:
        raise InputError(f"{', '.join(unknown)}: no image of cluster {cloud.settings.cluster}")
    going = [image for image in found if image.id in (images or ())]
    gone = remove(cloud.calls, outdated(found, keep=keep) if keep is not None else going)
    show(
        output,
        {"cluster": cloud.settings.cluster, "removed": gone},
        rows=lambda: [{"id": name} for name in gone],
        table=lambda: stdout_console().print(f"Removed: {', '.join(gone) or 'nothing'}."),
    )


def _looking(settings: AwsSettings) -> AwsCloud:
    """Return a read-only AWS cloud."""
    return AwsCloud(settings, catalog=catalog_of(settings), clock=SystemClock(), touches=False)


def _read(path: Path) -> str:
    """Return the text of a script.

    Raises:
        InputError: when it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the script: {error}", file=path) from error


def _build(cloud: AwsCloud, whole: Settings, plan: ImagePlan) -> BuildResult:
    """Build the image in the first zone with capacity, and enter the builder's bill in the ledger.

    Raises:
        NoRoom: when the build could exceed a cap.
        BuildFailed: when no zone has capacity, or the build failed.
    """
    folder = daemon_paths(whole).state
    make_folder(folder / "image")
    lock = Lock(folder / "image")
    lock.take()
    try:
        check_cap_room(
            whole,
            plan.usd(plan.recipe.minutes + _OVERTIME_MINUTES),
            plan.usd_per_hour,
            standing_usd_per_hour=_standing(cloud, plan),
        )
        builder = ImageBuilder(cloud.calls, folder, SystemClock(), say=_say)
        for number, (offer, site) in enumerate(plan.places, 1):

            def request_of(
                build: str, lease: float, offer: Offer = offer, site: LaunchTarget = site
            ) -> Mapping[str, Any]:
                return builder_request(
                    plan.instance_type, build, lease, minutes=plan.recipe.minutes, offer=offer, site=site,
                    settings=cloud.settings, catalog=catalog_of(cloud.settings),
                )  # fmt: skip

            try:
                return builder.build(plan.recipe, request_of)
            except BuildFailed as error:
                if error.code != _NO_CAPACITY or number == len(plan.places):
                    raise
                _say(f"{offer.zone} has no capacity; trying the next zone")
        raise AssertionError("there is at least one place")
    finally:
        _enter_bills(cloud, whole)
        lock.give_back()


def _standing(cloud: AwsCloud, plan: ImagePlan) -> float:
    """Return the highest cost of images per hour with one more: old images are removed after the build."""
    settings = cloud.settings
    one = settings.volume_gib * side_prices(settings).snapshot_usd_per_gb_month / HOURS_OF_A_MONTH
    return most_usd_per_hour(own_images(cloud.calls), settings) + one


def _enter_bills(cloud: AwsCloud, whole: Settings) -> None:
    """Enter the bills of ended builders in the ledger; a running daemon does so itself."""
    for node in _looking(cloud.settings).nodes():
        if node.ended_at is not None and node.launched_by.startswith("image-"):
            enter_bill(whole, node)


def _say(sentence: str) -> None:
    stderr_console().print(escape(sentence), soft_wrap=True)


def _row(cloud: AwsCloud, image: OwnImage, now: float) -> dict[str, Any]:
    return {
        "id": image.id,
        "name": image.name,
        "state": image.state,
        "days_old": round(image.days_old(now), 1),
        "base": image.base,
        "base_name": image.base_name,
        "holds": image.holds,
        "volume_gib": image.volume_gib,
        "stale": list(staleness(cloud.calls, image, now)),
    }


def _document(
    plan: ImagePlan, settings: AwsSettings, config: Path, built: BuildResult | None
) -> dict[str, Any]:
    sides, recipe = side_prices(settings), plan.recipe
    return {
        "cluster": settings.cluster,
        "region": settings.region,
        "instance_type": plan.instance_type,
        "zones": [offer.zone for offer, _ in plan.places],
        "base": recipe.base,
        "base_name": recipe.base_name,
        "pip": list(recipe.pip),
        "containers": list(recipe.containers),
        "has_script": bool(recipe.script),
        "usd": round(plan.usd(_USUAL_MINUTES), 4),
        "assumed_minutes": _USUAL_MINUTES,
        "most_usd": round(plan.usd(recipe.minutes + _OVERTIME_MINUTES), 4),
        "most_usd_per_month": round(settings.volume_gib * sides.snapshot_usd_per_gb_month, 2),
        "snapshot_usd_per_gb_month": sides.snapshot_usd_per_gb_month,
        "lacks": [sid for sid, _ in plan.lacks],
        "fixes": [said for _, said in plan.lacks],
        "is_built": built is not None,
        "image": None if built is None else built.image.id,
        "holds": None if built is None else built.image.holds,
        "builder": None if built is None else built.builder,
        "removed": [] if built is None else list(built.removed),
        "seconds": None if built is None else round(built.seconds, 1),
        "writes": str(config),
    }


def _print(document: Mapping[str, Any]) -> None:
    console = stdout_console()
    if document["is_built"]:
        console.print(
            f"Image {document['image']} in {document['seconds']:.0f} s. It holds: {document['holds']}.",
            soft_wrap=True, markup=False,
        )  # fmt: skip
        if document["removed"]:
            console.print(f"Removed: {', '.join(document['removed'])}.", soft_wrap=True)
        console.print(
            f'Wrote [cloud] image = "{BUILT}" to {document["writes"]}.', soft_wrap=True, markup=False
        )
        return
    what = [*document["pip"], *document["containers"], *(["your script"] if document["has_script"] else [])]
    rows = (
        ("base", f"{document['base']}, {document['base_name']}"),
        ("adds", ", ".join(what) or "nothing to the base image"),
        ("builder", f"a {document['instance_type']} on demand in {' or '.join(document['zones'])}"),
        (
            "costs",
            f"{in_dollars(document['usd'])} for {document['assumed_minutes']:g} minutes (assumed), "
            f"{in_dollars(document['most_usd'])} at the most",
        ),
        (
            "then",
            f"{price_in_dollars(document['snapshot_usd_per_gb_month'])} per GB on the disk and month, "
            f"{in_dollars(document['most_usd_per_month'])} a month at the most",
        ),
    )
    for name, said in rows:
        console.print(f"{name}: {said}", soft_wrap=True, markup=False)
    for sid, said in zip(document["lacks"], document["fixes"], strict=True):
        console.print(f"Missing permission {sid}: {said}", soft_wrap=True, markup=False)
    console.print("Nothing was rented. `boa image build --yes` builds it.")


def _print_images(rows: Sequence[Mapping[str, Any]]) -> None:
    table = a_table("Images", "id", "state", "days old", "GiB", "holds", "stale", right=("days old", "GiB"))
    for row in rows:
        table.add_row(
            row["id"], row["state"], f"{row['days_old']:.1f}", str(row["volume_gib"]), escape(row["holds"]),
            escape("; ".join(row["stale"])),
        )  # fmt: skip
    stdout_console().print(table)
