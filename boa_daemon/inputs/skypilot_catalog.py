"""SkyPilot's catalogue, ``catalogs/vN/CLOUD/vms.csv``: a row per instance type, region and zone.

Read are InstanceType, AcceleratorName, AcceleratorCount, Price and Region, and where present SpotPrice,
AvailabilityZone, vCPUs, MemoryGiB and GpuInfo. The file names no day.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from boa_daemon.errors import InputError
from boa_daemon.inputs.catalog import Catalog
from boa_daemon.inputs.money_cells import NOTHING
from boa_daemon.inputs.price_lists import OTHER_ACCELERATORS, ListedPrice, Market, PriceList, gpu_name
from boa_daemon.inputs.tables import TableRow, read_rows
from policies.money_text import price_in_dollars
from policies.speedup import MAX_GPUS

NEEDED = ("InstanceType", "AcceleratorName", "AcceleratorCount", "Price", "Region")
_Key = tuple[str, str]
_Zones = dict[str, tuple[int, float]]
"""Line and price by zone."""


def read_skypilot(path: Path, *, as_of: str) -> PriceList:
    """Return the prices of machines with GPUs: of several zones of a region, the dearest and the cheapest.

    Raises:
        InputError: naming file and line, when it is no such catalogue, a row is damaged or in another
            currency, or two rows of one type state different GPUs, or different prices in one zone.
    """
    found = PriceList([])
    known = Catalog.load().entries
    machines: dict[_Key, tuple[int, dict[str, Any]]] = {}
    listed: dict[Market, dict[_Key, _Zones]] = {"on-demand": defaultdict(dict), "spot": defaultdict(dict)}
    hint = f"A vms.csv of SkyPilot's catalogue has {', '.join(NEEDED)}"
    for row in read_rows(path, NEEDED, header_hint=hint):
        line, cells = row.line, row.cells
        name, region = cells["InstanceType"], cells["Region"]
        machine = _machine(row, found)
        if machine is None:
            continue
        key = (name, region)
        first, other = machines.setdefault(key, (line, machine))
        if other != machine:
            problem = f"a second row for {name} in {region} with other GPUs; the first is on line {first}"
            raise InputError(problem, file=path, line=line)
        if (currency := _currency(cells)) != "USD":
            raise row.refuse(f"a price in {currency}: budgets and caps count USD", "Convert the list to USD")
        has_price = False
        for column, (market, by_key) in zip(("Price", "SpotPrice"), listed.items(), strict=True):
            if (usd := _price(row, column)) is not None:
                has_price = True
                zone = cells.get("AvailabilityZone", "")
                first, before = by_key[key].setdefault(zone, (line, usd))
                if before != usd:
                    raise _two_prices(row, market, usd, before, first)
        if not has_price:
            found.left_out["without a price"] += 1
    source = f"SkyPilot's catalogue {path.name}"
    for key, (_, machine) in machines.items():
        # Links, quotas and disks of these types are those of the shipped catalogue.
        specs = {} if key[0] in known else machine
        for market, by_key in listed.items():
            if usd_of_zones := [usd for _, usd in by_key.get(key, {}).values()]:
                found.prices.append(
                    ListedPrice(
                        instance_type=key[0],
                        region=key[1],
                        market=market,
                        usd_per_hour=max(usd_of_zones),
                        usd_low=min(usd_of_zones),
                        as_of=as_of,
                        source=source,
                        **specs,
                    )
                )
    if by_zone := sum(one.usd_low < one.usd_per_hour for one in found.prices if one.market == "on-demand"):
        found.notes.append(f"{by_zone} prices on demand differ by zone: the dearest of a region counts")
    if not as_of:
        found.notes.append(
            "the catalogue names no day: give --as-of YYYY-MM-DD, so that plans can say how old it is"
        )
    return found


def _currency(cells: Mapping[str, str]) -> str:
    """Return the currency of a row; SkyPilot's own catalogues name none, and are in dollars."""
    found = next((cell for name, cell in cells.items() if name.lower() == "currency"), "")
    return found.upper() or "USD"


def _two_prices(row: TableRow, market: Market, usd: float, before: float, first: int) -> InputError:
    """Return the error for a row with another price than one with the same key."""
    name, region, zone = (
        row.cells.get(column, "") for column in ("InstanceType", "Region", "AvailabilityZone")
    )
    where = f"{region}{f' ({zone})' if zone else ''}{' on spot' if market == 'spot' else ''}"
    problem = (
        f"{name} in {where} costs {price_in_dollars(usd)}/hour here and "
        f"{price_in_dollars(before)} on line {first}, and nothing in the rows tells them apart"
    )
    return row.refuse(problem, hint="Keep the row that you pay by")


def _machine(row: TableRow, found: PriceList) -> dict[str, Any] | None:
    """Return the specifications of a row, or None for one that is left out."""
    cells = row.cells
    model = cells["AcceleratorName"]
    if not model:
        found.left_out["without GPUs"] += 1
        return None
    if not cells["InstanceType"]:
        found.left_out["of a GPU without its machine"] += 1
        return None
    if model.lower().startswith(OTHER_ACCELERATORS):
        found.left_out["with other accelerators"] += 1
        return None
    gpus = _number(row, "AcceleratorCount")
    if not cells["Region"]:
        raise row.refuse("Region is empty")
    if gpus is None or gpus != int(gpus):
        found.left_out["with a part of a GPU"] += 1
        return None
    if not 1 <= gpus <= MAX_GPUS:
        raise row.refuse(f"AcceleratorCount must be 1 to {MAX_GPUS}; got {gpus:g}")
    maker, memory = _gpu_info(cells.get("GpuInfo", ""))
    vcpus, gib = (_number(row, name) for name in ("vCPUs", "MemoryGiB"))
    return {
        "gpus": int(gpus),
        "gpu_model": f"{maker} {model}" if maker else gpu_name(model),
        "gpu_memory_mib": memory,
        "vcpus": None if vcpus is None else int(vcpus),
        "memory_mib": None if gib is None else round(gib * 1024),
    }


def _gpu_info(text: str) -> tuple[str, int | None]:
    """Return the maker, if stated, and the MiB of one GPU from the GpuInfo cell, a Python dictionary."""
    try:
        gpu = ast.literal_eval(text)["Gpus"][0]
        return str(gpu.get("Manufacturer") or "").upper(), int(gpu["MemoryInfo"]["SizeInMiB"])
    except (ValueError, SyntaxError, LookupError, TypeError, AttributeError, RecursionError, MemoryError):
        return "", None


def _price(row: TableRow, column: str) -> float | None:
    """Return a price, or None where there is none: an empty cell, or zero."""
    usd = _number(row, column)
    return usd or None


def _number(row: TableRow, column: str) -> float | None:
    text = row.cells.get(column, "")
    return None if text.lower() in NOTHING else row.number(column)
