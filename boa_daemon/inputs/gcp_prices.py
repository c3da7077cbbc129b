"""Google Cloud's list: SKUs of Compute Engine from the Cloud Billing Catalog API, in JSON.

``GET https://cloudbilling.googleapis.com/v1/services/6F81-5844-456A/skus``: one answer (``skus``), a list of
answers, or a list of SKUs. Google prices GPUs, cores and memory apart: a machine of
`data/cloud_machines.csv` costs

    gpus x GPU + vCPUs x core + GiB x memory

with the SKUs of its series in its region. A machine of which a part is not in the file has no price.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from boa_daemon.errors import InputError
from boa_daemon.inputs.cloud_machines import machines_of
from boa_daemon.inputs.document_file import entries_of, json_pages, names_next_page
from boa_daemon.inputs.money_cells import usd_number
from boa_daemon.inputs.price_lists import ListedPrice, Market, PriceList
from boa_daemon.text_files import read_whole_text
from policies.money_text import price_in_dollars

_HINT = "Save what .../v1/services/6F81-5844-456A/skus answers, all pages, as a list"
_MARKETS: Mapping[str, Market] = {"OnDemand": "on-demand", "Preemptible": "spot"}
_PART = re.compile(
    r"(?:spot preemptible |preemptible )?(?P<series>a2|a3|a3plus|a3ultra|g2)"
    r"(?: (?:high|mega|ultra))? instance (?P<part>core|ram)\b",
    re.IGNORECASE,
)
_GPU = re.compile(
    r"nvidia (?:tesla )?(?P<card>l4|a100|h100|h200)(?: (?P<gib>\d+) ?gb)?(?: (?P<form>mega|plus))? gpu\b",
    re.IGNORECASE,
)
_SERIES = {
    "a2-highgpu": ("a2", "a100"),
    "a2-megagpu": ("a2", "a100"),
    "a2-ultragpu": ("a2", "a100-80"),
    "a3-highgpu": ("a3", "h100"),
    "a3-megagpu": ("a3plus", "h100-mega"),
    "a3-ultragpu": ("a3ultra", "h200"),
    "g2-standard": ("g2", "l4"),
}


def read_gcp(path: Path, *, as_of: str) -> PriceList:
    """Return the price of each machine whose parts all have one, by region and market.

    Raises:
        InputError: naming the SKU, when it is no such list, is damaged, or states two prices for one thing.
    """
    found = PriceList([])
    parts: dict[tuple[str, Market], dict[str, float]] = defaultdict(dict)
    first: dict[tuple[str, Market, str], str] = {}
    days: set[str] = set()
    pages = json_pages(read_whole_text(path), str(path), hint=_HINT)
    if names_next_page(pages, "nextPageToken"):
        found.notes.append("the file lacks pages: its last answer names a further one (nextPageToken)")
    for where, sku in _skus(pages, path):
        part, market = _part_of(sku, found)
        if part is None or market is None:
            continue
        usd, day = _price(sku, where, path)
        days.add(day)
        regions = sku.get("serviceRegions") or []
        if not isinstance(regions, list):
            raise InputError(f"{where}: serviceRegions is no list", file=path, hint=_HINT)
        for region in regions:
            known = parts[str(region), market]
            before = first.setdefault((str(region), market, part), where)
            if known.setdefault(part, usd) != usd:
                problem = (
                    f"{where}: {price_in_dollars(usd)} in {region}, and "
                    f"{price_in_dollars(known[part])} in {before}"
                )
                raise InputError(problem, file=path, hint="Keep the SKU that you pay by")
    for (region, market), known in sorted(parts.items()):
        for name, machine in machines_of("gcp").items():
            series, card = _SERIES[name.rpartition("-")[0]]
            needed = {f"{series} core": "vcpus", f"{series} ram": "memory_mib", card: "gpus"}
            if card not in known:
                continue
            if any(part not in known for part in needed):
                found.left_out["of machines of which a part has no price"] += 1
                continue
            usd = (
                machine["gpus"] * known[card]
                + machine["vcpus"] * known[f"{series} core"]
                + machine["memory_mib"] / 1024.0 * known[f"{series} ram"]
            )
            specs = {key: value for key, value in machine.items() if key != "instance_type"}
            found.prices.append(
                ListedPrice(
                    instance_type=machine["instance_type"],
                    cloud="gcp",
                    region=region,
                    market=market,
                    usd_per_hour=round(usd, 6),
                    usd_low=round(usd, 6),
                    as_of=as_of or max(days),
                    source=f"Google's SKUs {path.name}",
                    **specs,
                )
            )
    return found


def _skus(pages: Sequence[Any], path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (place in words, SKU) of all answers in a file."""
    for number, sku in enumerate(entries_of(pages, ("skus",))):
        if not isinstance(sku, Mapping):
            raise InputError(f"SKU {number} is no object", file=path, hint=_HINT)
        if "description" not in sku or not isinstance(sku.get("category"), Mapping):
            problem = f"SKU {number} has no description and category"
            raise InputError(problem, file=path, hint=_HINT)
        yield f"SKU {number} ({sku.get('skuId') or sku['description'] or 'without a name'})", sku


def _part_of(sku: Mapping[str, Any], found: PriceList) -> tuple[str | None, Market | None]:
    """Return (part of a machine, market) of a SKU; None for one that is left out."""
    text = str(sku.get("description", ""))
    usage = str((sku.get("category") or {}).get("usageType"))
    gpu, part = _GPU.match(re.sub(r"^(spot )?preemptible ", "", text, flags=re.IGNORECASE)), _PART.match(text)
    if (gpu is None and part is None) or re.search(
        r"\bdws\b|calendar mode|reserved|sole tenancy", text, re.IGNORECASE
    ):
        found.left_out["of other parts"] += 1
        return None, None
    if usage not in _MARKETS:
        found.left_out["of commitments"] += 1
        return None, None
    if part is not None:
        return f"{part['series'].lower()} {part['part'].lower()}", _MARKETS[usage]
    assert gpu is not None
    card = gpu["card"].lower()
    if card == "a100" and gpu["gib"] == "80":
        card = "a100-80"
    if card == "h100" and gpu["form"]:
        card = "h100-mega"
    return card, _MARKETS[usage]


def _price(sku: Mapping[str, Any], where: str, path: Path) -> tuple[float, str]:
    """Return (dollars per hour and unit, day) of a SKU."""
    try:
        pricing = sku["pricingInfo"][0]
        expression = pricing["pricingExpression"]
        rates = [rate["unitPrice"] for rate in expression["tieredRates"] if not rate.get("startUsageAmount")]
        price = rates[-1]
        unit, currency = str(expression["usageUnit"]), str(price["currencyCode"])
        usd = int(price.get("units") or 0) + int(price.get("nanos") or 0) / 1e9
        day = str(pricing.get("effectiveTime", ""))[:10]
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError):
        raise InputError(f"{where}: its pricingInfo is not whole", file=path, hint=_HINT) from None
    if unit not in ("h", "GiBy.h"):
        raise InputError(f"{where}: its price is per {unit}, not per hour", file=path)
    if currency != "USD":
        problem = f"{where}: a price in {currency}: budgets and caps count USD"
        raise InputError(problem, file=path, hint="Ask for it with currencyCode=USD")
    return usd_number(usd, f"{where}: unitPrice", path), day
