"""``boa prices import``: the price lists of others as a price file for ``--prices``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import typer

from boa_daemon.cli.common.output import OutputFormat, OutputOption, a_table, show, stdout_console
from boa_daemon.cli.common.planning_options import MarketName, PricesOption
from boa_daemon.cli.plan.price_kinds import PRICE_KINDS, PriceFlags
from boa_daemon.cli.plan.spot_world import WorldChoice, write_spot_world
from boa_daemon.errors import InputError, not_one_of
from boa_daemon.inputs.price_lists import PriceList, write_price_list
from boa_daemon.text_files import regular_file
from policies.money_text import in_dollars


def _known(name: str) -> str:
    """Return the name of a kind, or raise an error that lists the kinds."""
    if name not in PRICE_KINDS:
        raise typer.BadParameter(not_one_of(name, PRICE_KINDS))
    return name


def import_prices(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The price list.")],
    *,
    source: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="KIND",
            callback=_known,
            help=f"Kind of the price list: {', '.join(PRICE_KINDS)}.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE.csv", help="The price file to write.")] = Path(
        "prices.csv"
    ),
    region: Annotated[
        list[str] | None, typer.Option(metavar="REGION", help="Only prices of this region; may be repeated.")
    ] = None,
    market: Annotated[MarketName | None, typer.Option(help="Only prices of this market.")] = None,
    cloud: Annotated[
        str | None, typer.Option(metavar="NAME", help="Cloud of the prices, for lists that do not name it.")
    ] = None,
    as_of: Annotated[
        str | None,
        typer.Option(metavar="YYYY-MM-DD", help="Day of the prices, for lists that do not name it."),
    ] = None,
    world: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.yaml",
            help="With spot-history: also write a world with these prices, for simulate, compare and plan.",
        ),
    ] = None,
    instance_type: Annotated[
        str | None,
        typer.Option(metavar="TYPE", help="With --world: the machine, if the history has several."),
    ] = None,
    zone: Annotated[
        str | None, typer.Option(metavar="ZONE", help="With --world: the zone. Default: the cheapest.")
    ] = None,
    prices: PricesOption = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Write the price list of a cloud, of SkyPilot, or what was paid, as a price file."""
    if out.suffix.lower() != ".csv":
        raise InputError(f"--out {out}: the price file is CSV", hint=f"Write --out {out.with_suffix('.csv')}")
    if out.exists() and file.exists() and out.samefile(file):
        raise InputError(f"--out {out} is the price list itself", hint="Name another file to write")
    kind = PRICE_KINDS[source]
    if cloud is not None and kind.cloud not in ("", cloud):
        raise InputError(f"--cloud {cloud}: --from {source} is always of {kind.cloud}", hint="Leave it out")
    if world is None and (instance_type or zone or prices):
        raise InputError("--instance-type, --zone and --prices are for a world", hint="Add --world FILE.yaml")
    if world is not None and source != "spot-history":
        raise InputError(f"--world does not apply to --from {source}", hint="It is for spot-history")
    with regular_file(file) as path:
        if world is not None:
            choice = WorldChoice(
                instance_type=instance_type, zone=zone, region=region or (), prices=prices or ()
            )
            made = write_spot_world(path, world, choice)
        read = kind.reader(path, PriceFlags(as_of=_day(as_of), cloud=(cloud or "").lower()))
    read = replace(read, prices=[replace(price, cloud=price.cloud or kind.cloud) for price in read.prices])
    found = read.only(region or [], None if market is None else market.value, path=file)
    write_price_list(found.prices, out)
    rows = [
        {
            "instance_type": price.instance_type,
            "cloud": price.cloud or None,
            "region": price.region,
            "market": price.market,
            "currency": "USD",
            "as_of": price.as_of or None,
            "usd_per_hour": price.usd_per_hour,
        }
        for price in found.prices
    ]
    document = {
        "source": source,
        "prices": rows,
        "left_out": {reason: count for reason, count in found.left_out.items() if count},
        "notes": [*found.notes, *_choices(found)],
        "file": str(out),
    }
    if world is not None:
        document["world"] = made
        document["notes"] += made["notes"]
    show(output, document, rows=lambda: rows, table=lambda: _print(document))


def _day(text: str | None) -> str:
    """Return an ISO date, or nothing.

    Raises:
        InputError: when the text is no date.
    """
    try:
        return "" if text is None else date.fromisoformat(text).isoformat()
    except ValueError:
        raise InputError(f"--as-of {text!r} is no day", hint="Write it as 2026-11-28") from None


def _choices(found: PriceList) -> Sequence[str]:
    """Return a note if a plan cannot choose among the regions of the file."""
    regions = sorted({price.region for price in found.prices})
    if len(regions) < 2:
        return ()
    said = ", ".join(regions[:4]) + (f" and {len(regions) - 4} more" if len(regions) > 4 else "")
    return (f"the file has {said}: add --region, or compare them with boa plan --cloud all --prices FILE",)


def _print(document: dict[str, Any]) -> None:
    numbers = ("per hour",)
    table = a_table(
        f"{len(document['prices'])} prices", "type", "region", "market", *numbers, "as of", right=numbers
    )
    for row in document["prices"][:40]:
        table.add_row(
            row["instance_type"],
            row["region"],
            row["market"],
            in_dollars(row["usd_per_hour"]),
            row["as_of"] or "",
        )
    console = stdout_console()
    console.print(table)
    if len(document["prices"]) > 40:
        console.print(f"and {len(document['prices']) - 40} more")
    for reason, count in document["left_out"].items():
        console.print(f"Left out: {count} rows {reason}.")
    for note in document["notes"]:
        console.print(f"Note: {note}.", markup=False, soft_wrap=True)
    if "world" in document:
        name = document["world"]["file"]
        console.print(
            f"Wrote {name}. Use it with simulate, compare and plan: --world {name}.",
            markup=False,
            soft_wrap=True,
        )
    console.print(
        f"Wrote {document['file']}. Use it with --prices {document['file']}.", markup=False, soft_wrap=True
    )
