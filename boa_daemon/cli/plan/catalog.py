"""``boa catalog``: the instance types that BOA knows, with GPUs, prices and the date of each price."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from boa_daemon.cli.common.output import OutputFormat, OutputOption, a_table, show, stdout_console
from boa_daemon.errors import InputError, did_you_mean
from boa_daemon.inputs.catalog import Catalog, CatalogEntry
from policies.money_text import in_dollars


def list_types(
    *,
    family: Annotated[str | None, typer.Option(help="Only this family, such as p4d.")] = None,
    gpu_type: Annotated[str | None, typer.Option(help="Only types with this GPU, such as a100.")] = None,
    with_retired: Annotated[
        bool, typer.Option("--all", help="Also list retired types, which cannot be rented.")
    ] = False,
    prices: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="Your prices and discounts; may be repeated.")
    ] = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """List instance types with GPUs, network, price per hour and per GPU-hour, and price date."""
    catalog = Catalog.load(*(prices or []))
    _check("family", family, {entry.family for entry in catalog.entries.values()})
    _check("GPU type", gpu_type, {entry.gpu_type for entry in catalog.entries.values()})
    entries = catalog.select(family=family, gpu_type=gpu_type, with_retired=with_retired)
    rows = [_row(entry) for entry in entries]
    hidden = 0 if with_retired else _retired(catalog, family, gpu_type)
    show(
        output,
        {"instance_types": rows},
        rows=lambda: rows,
        table=lambda: _print_table(entries, hidden=hidden),
    )


def _check(what: str, wanted: str | None, known: set[str]) -> None:
    """Raise `InputError` for a filter that matches nothing in the whole catalogue."""
    if wanted is not None and wanted not in known:
        raise InputError(f"unknown {what} {wanted!r}", hint=did_you_mean(wanted, known))


def _retired(catalog: Catalog, family: str | None, gpu_type: str | None) -> int:
    return sum(
        entry.is_retired for entry in catalog.select(family=family, gpu_type=gpu_type, with_retired=True)
    )


def _row(entry: CatalogEntry) -> dict[str, Any]:
    """Return an entry for JSON and CSV; an unknown price is null, never zero."""
    return {
        "instance_type": entry.name,
        "family": entry.family,
        "gpu_type": entry.gpu_type,
        "gpus": entry.gpus,
        "gpu_memory_mib": entry.gpu_memory_mib,
        "vcpus": entry.vcpus,
        "link_gigabits_per_second": entry.link_gigabits_per_second,
        "instance_store_gb": entry.instance_store_gb,
        "usd_per_hour": entry.usd_per_hour,
        "usd_per_gpu_hour": entry.usd_per_gpu_hour,
        "spot_usd_per_hour_min": entry.spot_usd_per_hour_min,
        "spot_usd_per_hour_max": entry.spot_usd_per_hour_max,
        "spot_as_of": entry.spot_as_of or None,
        "vcpu_quota_on_demand": entry.vcpu_quota_on_demand or None,
        "vcpu_quota_spot": entry.vcpu_quota_spot or None,
        "status": entry.status,
        "as_of": entry.as_of or None,
        "source": entry.source or None,
    }


def _print_table(entries: Sequence[CatalogEntry], *, hidden: int) -> None:
    """Print the entries as a table; `hidden` is the number of retired types left out."""
    numbers = ("GPUs", "Gbit/s", "per hour", "per GPU-h")
    table = a_table("Instance types", "type", "GPU", *numbers, "as of", "status", right=numbers)
    for column in table.columns:
        column.no_wrap = True
    for entry in entries:
        table.add_row(
            entry.name,
            entry.gpu_type,
            str(entry.gpus),
            f"{entry.link_gigabits_per_second:g}",
            "no price" if entry.usd_per_hour is None else in_dollars(entry.usd_per_hour),
            "" if entry.usd_per_gpu_hour is None else f"${entry.usd_per_gpu_hour:.3f}",
            entry.as_of,
            entry.status.removesuffix(" generation"),
        )
    console = stdout_console()
    console.print(table)
    if hidden:
        console.print(f"{hidden} retired types are not shown; --all shows them.")
