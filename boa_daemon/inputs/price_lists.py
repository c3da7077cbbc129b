"""Price lists of others as a price file: one row per instance type, region and market, with currency and day.

The rows go to CSV in the columns of a price file (`boa_daemon.inputs.price_file`), so that ``--prices`` reads
them. Of one type, region and market there is one row: zones give the cheapest and the dearest price.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal, TypeAlias

from boa_daemon.csv_text import csv_rows, delimiter_of
from boa_daemon.errors import InputError
from boa_daemon.job.whole_files import write_whole
from boa_daemon.text_files import is_parquet, open_text, parquet_cells, parquet_columns

Market: TypeAlias = Literal["on-demand", "spot"]

COLUMNS = (
    *(
        "instance_type",
        "gpus",
        "gpu_model",
        "gpu_memory_mib",
        "vcpus",
        "memory_mib",
        "cloud",
        "region",
        "market",
    ),
    *("currency", "as_of", "usd_per_hour", "spot_usd_per_hour_min", "spot_usd_per_hour_max", "spot_as_of"),
    "source",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPrice:
    """A price of an instance per hour; `usd_low` is that of the cheapest zone, `usd_per_hour` of the dearest.

    Specifications are None where the catalogue has the type, or the list does not state them.
    """

    instance_type: str
    region: str
    market: Market
    usd_per_hour: float
    usd_low: float
    as_of: str
    source: str
    cloud: str = ""
    gpus: int | None = None
    gpu_model: str | None = None
    gpu_memory_mib: int | None = None
    vcpus: int | None = None
    memory_mib: int | None = None

    def to_row(self) -> dict[str, object]:
        """Return the row of a price file."""
        row: dict[str, object] = {
            name: getattr(self, name, None) for name in COLUMNS if not name.startswith("spot_")
        }
        row["currency"] = "USD"
        if self.market == "spot":
            row |= {"spot_usd_per_hour_min": self.usd_low, "spot_usd_per_hour_max": self.usd_per_hour}
            row["spot_as_of"] = self.as_of or None
        return row


@dataclass(slots=True)
class PriceList:
    """What was read: prices, the number of rows left out by reason, and notes."""

    prices: list[ListedPrice]
    left_out: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)

    def only(self, regions: Sequence[str], market: Market | None, *, path: Path) -> PriceList:
        """Return the prices of these regions and this market; all of them where none is given.

        Raises:
            InputError: when the list has no price of a region, or none is left.
        """
        known = sorted({price.region for price in self.prices})
        for region in regions:
            if region not in known:
                hint = f"It has {', '.join(known[:12])}{' and others' if len(known) > 12 else ''}"
                raise InputError(f"no price in region {region!r}", file=path, hint=hint if known else "")
        kept = [
            price
            for price in self.prices
            if (not regions or price.region in regions) and market in (None, price.market)
        ]
        if not kept:
            reasons = ", ".join(f"{count} {reason}" for reason, count in self.left_out.items() if count)
            what = f"{market} price" if market else "price of a machine with GPUs"
            raise InputError(f"no {what} is left{f' ({reasons})' if reasons else ''}", file=path)
        left_out = self.left_out + Counter({"of other regions or markets": len(self.prices) - len(kept)})
        return PriceList(kept, left_out, self.notes)


def _rows_of(
    lines: IO[str],
    path: Path,
    needed: Sequence[str],
    *,
    hint: str,
    delimiter: str,
    column_of: Callable[[str], str],
) -> Iterator[tuple[int, dict[str, str]]]:
    reader = csv_rows(lines, delimiter=delimiter)
    cut_short = "The file may be cut short: fetch it again"
    try:
        columns = [column_of(name.strip()) for name in next(reader, [])]
        _check_columns(columns, needed, path, hint)
        for cells in reader:
            if not any(cells):
                continue
            if len(cells) != len(columns):
                problem = f"{len(cells)} cells where the header has {len(columns)}"
                raise InputError(problem, file=path, line=reader.line_num, hint=cut_short)
            yield reader.line_num, dict(zip(columns, (cell.strip() for cell in cells), strict=True))
    except csv.Error as error:
        problem = f"not valid CSV: {error}"
        raise InputError(problem, file=path, line=reader.line_num, hint=cut_short) from error


def table_rows(
    path: Path, needed: Sequence[str], *, hint: str, column_of: Callable[[str], str] = str
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield (line, cells by column) of each row of a list in CSV or Parquet, also packed; read as a stream.

    Columns end at commas, semicolons or tabs, whichever the header has most of. The line of a row of Parquet
    is its number.

    Raises:
        InputError: naming the line, when the file is no such list or breaks off.
    """
    if is_parquet(path):
        columns = [column_of(name) for name in parquet_columns(path)]
        _check_columns(columns, needed, path, hint)
        for line, cells in enumerate(parquet_cells(path), start=1):
            yield line, dict(zip(columns, cells, strict=True))
        return
    with open_text(path) as file:
        delimiter = delimiter_of(file.readline())
    with open_text(path) as file:
        yield from _rows_of(file, path, needed, hint=hint, delimiter=delimiter, column_of=column_of)


def _check_columns(columns: Sequence[str], needed: Sequence[str], path: Path, hint: str) -> None:
    for name in needed:
        if columns.count(name) != 1:
            raise InputError(f"column {name!r} must occur exactly once", file=path, line=1, hint=hint)


def write_price_list(prices: Iterable[ListedPrice], path: Path) -> None:
    """Write prices as a price file, replaced whole.

    Raises:
        InputError: when the file cannot be written.
    """
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for price in sorted(prices, key=lambda one: (one.region, one.instance_type, one.market)):
        writer.writerow({name: "" if value is None else value for name, value in price.to_row().items()})
    try:
        write_whole(path, text.getvalue())
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", file=path) from error
