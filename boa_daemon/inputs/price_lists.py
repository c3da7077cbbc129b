"""Price lists of others as a price file: one row per instance type, region and market, with currency and day.

The rows go to CSV in the columns of a price file (`boa_daemon.inputs.price_file`), so that ``--prices`` reads
them. Of one type, region and market there is one row: zones give the cheapest and the dearest price.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from boa_daemon.errors import InputError
from boa_daemon.job.whole_files import write_whole

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


OTHER_ACCELERATORS = ("inferentia", "trainium", "tpu", "gaudi", "dl1", "fpga", "radeon pro v520")
"""How the names of accelerators begin that are no GPUs for training here, in lower case."""


def gpu_name(model: str) -> str:
    """Return the maker and the model of a GPU: ``NVIDIA A100``, ``AMD MI300X``."""
    bare = re.sub(r"^(?:nvidia|tesla|amd|instinct)\s+", "", model.strip(), flags=re.IGNORECASE)
    bare = re.sub(r"^(?:tesla|instinct)\s+", "", bare, flags=re.IGNORECASE)
    return f"{'AMD' if re.match(r'MI[0-9]|Radeon', bare, re.IGNORECASE) else 'NVIDIA'} {bare}"


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
