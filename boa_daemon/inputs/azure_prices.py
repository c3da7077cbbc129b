"""Azure's list: answers of the Retail Prices API (``https://prices.azure.com/api/retail/prices``) in JSON.

Kept are hours of Linux machines with GPUs that `data/cloud_machines.csv` knows: consumption, not
reservations, savings plans or Windows. A file may hold one answer, a list of answers, or a list of items.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from boa_daemon.errors import InputError
from boa_daemon.inputs.cloud_machines import machines_of
from boa_daemon.inputs.document_file import entries_of, json_pages, names_next_page
from boa_daemon.inputs.money_cells import usd_number
from boa_daemon.inputs.price_lists import ListedPrice, Market, PriceList
from boa_daemon.text_files import read_whole_text
from boa_daemon.time_text import instant_seconds
from policies.money_text import price_in_dollars

_HINT = "Save what https://prices.azure.com/api/retail/prices answers, all pages, as a list"
_NEEDED = ("armSkuName", "armRegionName", "retailPrice", "currencyCode", "type", "unitOfMeasure")


def read_azure(path: Path, *, as_of: str, now: datetime | None = None) -> PriceList:
    """Return the price of each type, region and market, in effect now.

    Raises:
        InputError: naming the item, when it is no such answer, is damaged, or has two prices of a thing.
    """
    found = PriceList([])
    now = now or datetime.now(UTC)
    machines = machines_of("azure")
    seen: dict[tuple[str, str, Market], tuple[str, datetime, float]] = {}
    pages = json_pages(read_whole_text(path), str(path), hint=_HINT)
    if names_next_page(pages, "NextPageLink"):
        found.notes.append("the file lacks pages: its last answer names a further one (NextPageLink)")
    for where, item in _items(pages, path):
        for name in _NEEDED:
            if name not in item:
                raise InputError(f"{where}: {name} is missing", file=path, hint=_HINT)
        if item["type"] != "Consumption" or str(item["unitOfMeasure"]) != "1 Hour":
            found.left_out["of reservations and other terms"] += 1
            continue
        product, sku = str(item.get("productName", "")), str(item.get("skuName", ""))
        if "windows" in product.lower() or "cloud services" in product.lower():
            found.left_out["of other systems"] += 1
            continue
        machine = machines.get(str(item["armSkuName"]).lower())
        if machine is None:
            found.left_out["of machines that are not known to have GPUs"] += 1
            continue
        if "low priority" in sku.lower():
            found.left_out["of low priority, which Azure retires"] += 1
            continue
        if item["currencyCode"] != "USD":
            problem = f"{where}: a price in {item['currencyCode']}: budgets and caps count USD"
            raise InputError(problem, file=path, hint="Ask for it without currencyCode")
        since = _instant(item.get("effectiveStartDate"), where, path)
        until = item.get("effectiveEndDate")
        if since > now or (until and _instant(until, where, path, "effectiveEndDate") <= now):
            found.left_out["that are not in effect"] += 1
            continue
        if not item["armRegionName"]:
            raise InputError(f"{where}: armRegionName is empty", file=path)
        usd = usd_number(item["retailPrice"], f"{where}: retailPrice", path)
        if usd == 0:
            found.left_out["without a price"] += 1
            continue
        market: Market = "spot" if "spot" in sku.lower() else "on-demand"
        key = (machine["instance_type"], str(item["armRegionName"]), market)
        other = seen.get(key)
        if other is not None and other[1] == since and other[2] != usd:
            problem = (
                f"{where}: {key[0]} in {key[1]} costs {price_in_dollars(usd)}/hour here and "
                f"{price_in_dollars(other[2])} in {other[0]}, "
                "and nothing tells them apart"
            )
            raise InputError(problem, file=path, hint="Keep the item that you pay by")
        if other is None or other[1] < since:
            seen[key] = (where, since, usd)
    for (name, region, market), (_, since, usd) in seen.items():
        specs = {key: value for key, value in machines[name.lower()].items() if key != "instance_type"}
        found.prices.append(
            ListedPrice(
                instance_type=name,
                cloud="azure",
                region=region,
                market=market,
                usd_per_hour=usd,
                usd_low=usd,
                as_of=as_of or since.date().isoformat(),
                source=f"Azure's retail prices {path.name}",
                **specs,
            )
        )
    return found


def _items(pages: Sequence[Any], path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (place in words, item) of all answers in a file."""
    for number, item in enumerate(entries_of(pages, ("Items",))):
        if not isinstance(item, Mapping):
            raise InputError(f"item {number} is no object", file=path, hint=_HINT)
        yield f"item {number} ({item.get('skuName') or item.get('armSkuName') or 'without a name'})", item


def _instant(text: object, where: str, path: Path, name: str = "effectiveStartDate") -> datetime:
    """Return the instant from which, or to which, a price holds."""
    try:
        return datetime.fromtimestamp(instant_seconds(str(text)), UTC)
    except (ValueError, OverflowError):
        raise InputError(f"{where}: {name} must be a time; got {text!r}", file=path) from None
