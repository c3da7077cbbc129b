"""Tables of prices as small clouds publish them (Lambda, RunPod, CoreWeave, Vast ...), in CSV or Parquet.

Columns are known by the names that people give them; a row is a machine. A price per GPU is multiplied by its
GPUs. A table states its cloud in a column, or the flag ``--cloud`` does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path

from boa_daemon.errors import InputError
from boa_daemon.inputs.money_cells import usd_cell
from boa_daemon.inputs.price_lists import ListedPrice, Market, PriceList
from boa_daemon.inputs.tables import TableRow, read_rows
from boa_daemon.number_text import NotOneNumber, number_of
from policies.speedup import MAX_GPUS

_NAMES: Mapping[str, tuple[str, ...]] = {
    "instance_type": (
        "instancetype",
        "instance",
        "name",
        "machine",
        "machinetype",
        "type",
        "sku",
        "shape",
        "plan",
    ),
    "gpu_model": ("gpumodel", "gpu", "gputype", "gpuname", "accelerator", "acceleratorname", "card"),
    "gpus": ("gpus", "gpucount", "numgpus", "ngpus", "acceleratorcount", "count", "qty", "numberofgpus"),
    "region": ("region", "location", "datacenter", "zone", "country"),
    "cloud": ("cloud", "provider", "vendor"),
    "market": ("market", "purchaseoption", "pricingmodel"),
    "currency": ("currency", "currencycode"),
    "as_of": ("asof", "date", "day", "updated", "updatedat"),
    "vcpus": ("vcpus", "vcpu", "cpus", "cores"),
    "memory_gib": ("memorygib", "memorygb", "ram", "ramgb", "ramgib", "memory"),
    "gpu_memory_gib": ("gpumemorygib", "gpumemorygb", "vram", "vramgb", "vramgpu", "vrampergpu", "gpumemory"),
}
_MONEY = re.compile(r"price|usd|cost|ondemand|hourly|^hr$|perhour|perhr|spot|interruptible|preemptible")
_TERM = re.compile(r"year|month|reserved|commit|currency|week|perday|daily|storage|disk|setup")
"""Prices of other terms than an hour."""
_HINT = "A table of prices has a machine, its gpu and gpus, and a price per hour of it or of one GPU"


def read_price_table(path: Path, *, as_of: str, cloud: str) -> PriceList:
    """Return the prices of a table.

    Raises:
        InputError: naming file and line, when a column is missing or two mean the same, a price is none or
            ambiguous, or two rows are of one machine, region and market.
    """
    found = PriceList([])
    lines: dict[tuple[str, str, str, Market], int] = {}
    for row in read_rows(path, (), column_of=_columns(path)):
        line, cells = row.line, row.cells
        if not lines and not found.left_out:
            _check(cells, path)
        gpus = _gpus(row)
        if gpus is None:
            found.left_out["without GPUs"] += 1
            continue
        name = cells.get("instance_type", "") or f"{gpus}x-{cells.get('gpu_model', '')}".lower().replace(
            " ", "-"
        )
        own = (cells.get("cloud") or cloud).strip().lower()
        if not own:
            hint = "Give --cloud NAME, such as lambda"
            raise InputError("the table does not say whose prices these are", file=path, line=line, hint=hint)
        if (currency := cells.get("currency", "")) and currency.upper() not in ("USD", "US$", "$"):
            problem = f"a price in {currency}: budgets and caps count USD"
            raise InputError(problem, file=path, line=line, hint="Convert the list to USD")
        region = cells.get("region", "") or "any"
        prices = _prices(row, gpus)
        if not prices:
            found.left_out["without a price"] += 1
        for market, usd in prices:
            first = lines.setdefault((own, name, region, market), line)
            if first != line:
                problem = f"a second price of {name} in {region}; the first is on line {first}"
                raise InputError(problem, file=path, line=line, hint="Keep the row that you pay by")
            memory, gpu_memory = (_number(row, key) for key in ("memory_gib", "gpu_memory_gib"))
            vcpus = _number(row, "vcpus")
            found.prices.append(
                ListedPrice(
                    instance_type=name,
                    cloud=own,
                    region=region,
                    market=market,
                    usd_per_hour=usd,
                    usd_low=usd,
                    as_of=as_of or _day(cells),
                    source=f"{own}'s prices {path.name}",
                    gpus=gpus,
                    gpu_model=_model(row),
                    gpu_memory_mib=None if gpu_memory is None else round(gpu_memory * 1024),
                    vcpus=None if vcpus is None else int(vcpus),
                    memory_mib=None if memory is None else round(memory * 1024),
                )
            )
    if not all(price.as_of for price in found.prices):
        found.notes.append(
            "rows name no day such as 2026-11-28: give --as-of YYYY-MM-DD, so that plans say how old they are"
        )
    return found


def _columns(path: Path) -> Callable[[str], str]:
    """Return what a column means, from its name, and refuse a second one that means the same."""
    seen: dict[str, str] = {}

    def column_of(name: str) -> str:
        meaning = _meaning(name)
        if meaning is None:
            return name
        if meaning in seen:
            problem = f"columns {seen[meaning]!r} and {name!r} both say the {meaning.replace('_', ' ')}"
            raise InputError(problem, file=path, line=1, hint="Remove the one that does not count")
        seen[meaning] = name
        return meaning

    return column_of


def _meaning(name: str) -> str | None:
    """Return what a column means, from its name; None where it means nothing here."""
    plain = re.sub(r"[^a-z0-9]", "", name.lower().replace("$", "usd"))
    for meaning, names in _NAMES.items():
        if plain == meaning.replace("_", "") or plain in names:
            return meaning
    if _TERM.search(plain) or not _MONEY.search(plain):
        return None
    is_spot = re.search(r"spot|interruptible|preemptible|community", plain)
    return f"{'spot_' if is_spot else ''}{'gpu' if 'gpu' in plain else 'machine'}_price"


def _check(cells: Mapping[str, str], path: Path) -> None:
    """Refuse a table without the columns that it needs."""
    if "gpu_model" not in cells and "instance_type" not in cells:
        raise InputError("no column with the machine or its GPU", file=path, line=1, hint=_HINT)
    if "gpu_model" not in cells:
        raise InputError("no column with the GPU", file=path, line=1, hint=_HINT)
    if not any(name.endswith("_price") for name in cells):
        raise InputError("no column with a price", file=path, line=1, hint=_HINT)


def _gpus(row: TableRow) -> int | None:
    """Return the GPUs of a row: its column, else the number before the model (``8x A100``); None for none."""
    cells = row.cells
    stated = re.match(r"\s*(\d+)\s*[x×]\s", cells.get("gpu_model", ""))
    text = cells.get("gpus", "")
    if not text:
        return int(stated[1]) if stated else (1 if cells.get("gpu_model", "") else None)
    try:
        value = number_of(text.lower().rstrip("x× "), has_decimal_commas=row.has_decimal_commas)
    except NotOneNumber as error:
        raise row.refuse(f"gpus must be a whole number; got {text!r}", hint=error.hint) from None
    if not 0 <= value <= MAX_GPUS or value != int(value):
        raise row.refuse(f"gpus must be a whole number; got {text!r}")
    if stated and int(stated[1]) != value:
        problem = f"{int(value)} GPUs in their column, and {stated[0].strip()} in the name of the GPU"
        raise row.refuse(problem, hint="Write the model alone, and how many in the other column")
    return int(value) or None


def _model(row: TableRow) -> str:
    """Return the maker and name of a GPU: ``NVIDIA A100`` for ``8x A100 SXM4 (40 GB)``."""
    name = re.sub(r"^\s*\d+\s*[x×]\s*", "", row.cells.get("gpu_model", "")).strip()
    name = re.sub(r"^(nvidia|tesla|amd)\s+", "", name, flags=re.IGNORECASE)
    if not name:
        raise row.refuse("the GPU is empty")
    return f"{'AMD' if name.upper().startswith('MI') else 'NVIDIA'} {name}"


def _prices(row: TableRow, gpus: int) -> list[tuple[Market, float]]:
    """Return (market, dollars per hour of the machine) of a row."""
    cells = row.cells
    market: Market = "spot" if "spot" in cells.get("market", "").lower() else "on-demand"

    def usd(column: str, name: str) -> float | None:
        return usd_cell(
            cells.get(column, ""), name, row.path, row.line, has_decimal_commas=row.has_decimal_commas
        )

    whole, each = usd("machine_price", "the price"), usd("gpu_price", "the price of a GPU")
    if whole is not None and each is not None and abs(whole - each * gpus) > 0.02 * whole:
        problem = f"{whole:g} USD for the machine, and {each:g} USD for each of its {gpus} GPUs"
        raise row.refuse(problem, hint="Keep the column that you pay by")
    whole = whole if whole is not None else None if each is None else each * gpus
    spot, each = usd("spot_machine_price", "the spot price"), usd("spot_gpu_price", "the spot price of a GPU")
    if spot is not None and "machine_price" not in cells and "gpu_price" in cells:
        # A table of prices per GPU has spot prices per GPU.
        spot *= gpus
    spot = spot if spot is not None else None if each is None else each * gpus
    found: list[tuple[Market, float]] = []
    if whole:
        found.append((market, whole))
    if spot:
        found.append(("spot", spot))
    return found


def _day(cells: Mapping[str, str]) -> str:
    """Return the day of a row as an ISO date; empty for other spellings, which differ by country."""
    try:
        return date.fromisoformat(cells.get("as_of", "")[:10]).isoformat()
    except ValueError:
        return ""


def _number(row: TableRow, name: str) -> float | None:
    """Return a number of a column that is no price; None where it is none."""
    text = re.sub(r"\s*(gib|gb|g)$", "", row.cells.get(name, "").strip(), flags=re.IGNORECASE)
    try:
        return number_of(text, has_decimal_commas=row.has_decimal_commas)
    except NotOneNumber:
        return None
