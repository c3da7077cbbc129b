"""``boa prices import``: the price lists of others as a price file for ``--prices``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from boa_daemon.backends.aws.prices.offer_file import read_offers
from boa_daemon.backends.aws.prices.spot_history import read_spot_history
from boa_daemon.cli.common.output import OutputFormat, OutputOption, a_table, show, stdout_console
from boa_daemon.cli.common.planning_options import MarketName
from boa_daemon.errors import InputError
from boa_daemon.inputs.price_lists import PriceList, write_price_list
from boa_daemon.inputs.skypilot_catalog import read_skypilot


class PriceSource(StrEnum):
    """Kinds of price lists that are read."""

    skypilot = "skypilot"
    aws = "aws"
    spot_history = "spot-history"


def import_prices(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The price list.")],
    *,
    source: Annotated[PriceSource, typer.Option("--from", help="Kind of the price list.")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE.csv", help="The price file to write.")] = Path(
        "prices.csv"
    ),
    region: Annotated[
        list[str] | None, typer.Option(metavar="REGION", help="Only prices of this region; may be repeated.")
    ] = None,
    market: Annotated[MarketName | None, typer.Option(help="Only prices of this market.")] = None,
    as_of: Annotated[
        str | None,
        typer.Option(metavar="YYYY-MM-DD", help="Day of the prices, for lists that do not name it."),
    ] = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Write the prices of SkyPilot's catalogue, an AWS price list or a spot history as a price file."""
    if out.suffix.lower() != ".csv":
        raise InputError(f"--out {out}: the price file is CSV", hint=f"Write --out {out.with_suffix('.csv')}")
    if out.exists() and file.exists() and out.samefile(file):
        raise InputError(f"--out {out} is the price list itself", hint="Name another file to write")
    day = _day(as_of)
    if source is PriceSource.skypilot:
        read = read_skypilot(file, as_of=day)
    elif source is PriceSource.aws:
        read = read_offers(file, as_of=day)
    else:
        if day:
            raise InputError("--as-of does not apply to --from spot-history: its entries have times")
        read = read_spot_history(file)
    found = read.only(region or [], None if market is None else market.value, path=file)
    write_price_list(found.prices, out)
    rows = [
        {
            "instance_type": price.instance_type,
            "region": price.region,
            "market": price.market,
            "currency": "USD",
            "as_of": price.as_of or None,
            "usd_per_hour": price.usd_per_hour,
        }
        for price in found.prices
    ]
    document = {
        "source": source.value,
        "prices": rows,
        "left_out": {reason: count for reason, count in found.left_out.items() if count},
        "notes": [*found.notes, *_choices(found)],
        "file": str(out),
    }
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
    return (f"the file has {said}: a plan needs the prices of one region, so add --region",)


def _print(document: dict[str, Any]) -> None:
    numbers = ("USD/h",)
    table = a_table(
        f"{len(document['prices'])} prices", "type", "region", "market", *numbers, "as of", right=numbers
    )
    for row in document["prices"][:40]:
        table.add_row(
            row["instance_type"],
            row["region"],
            row["market"],
            f"{row['usd_per_hour']:.4g}",
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
    console.print(
        f"Wrote {document['file']}. Use it with --prices {document['file']}.", markup=False, soft_wrap=True
    )
