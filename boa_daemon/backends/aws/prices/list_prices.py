"""On-demand list prices: from the Pricing API, or from a saved answer of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from boa_daemon.backends.aws.client.answers import reading
from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.errors import InputError
from boa_daemon.inputs.document_file import read_document

_TERMS = {"operatingSystem": "Linux", "preInstalledSw": "NA", "tenancy": "Shared", "capacitystatus": "Used"}


def ask_price(calls: AwsCalls, region: str, name: str) -> float:
    """Return the on-demand list price of a type: Linux, shared tenancy, no preinstalled software.

    Raises:
        CallFailed: when the call fails, or no price is listed.
    """
    terms = {"instanceType": name, "regionCode": region, **_TERMS}
    answer = calls.call(
        "pricing:GetProducts",
        ServiceCode="AmazonEC2",
        Filters=[{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in terms.items()],
    )
    with reading("pricing:GetProducts"):
        prices = [price for item in answer["PriceList"] for price in _on_demand_prices(_entry(item))]
    if not prices:
        raise CallFailed("pricing:GetProducts", "NoPrice", f"no price of {name} is listed", http_status=404)
    return min(prices)


def read_price_list(path: Path, region: str) -> tuple[dict[str, float], str]:
    """Return prices by type, and the day of the prices, from a saved `aws pricing get-products`.

    Entries of other regions, systems and tenancies are left out; an attribute that an entry lacks matches.

    Raises:
        InputError: when the file holds no price of the region, or no day.
    """
    document = read_document(path)
    content = document.content
    if not isinstance(content, Mapping) or not isinstance(content.get("PriceList"), list):
        hint = "Save what `aws pricing get-products --service-code AmazonEC2 --filters ...` prints"
        raise document.error("no PriceList in it", hint=hint)
    wanted = {"regionCode": region, **_TERMS}
    prices: dict[str, float] = {}
    days: list[str] = []
    for place, item in enumerate(content["PriceList"]):
        try:
            entry = _entry(item)
            attributes = entry["product"]["attributes"]
            name, found = str(attributes["instanceType"]), _on_demand_prices(entry)
        except (ValueError, KeyError, TypeError, AttributeError):
            problem = f"entry {place} of PriceList is not an entry of a price list"
            raise document.error(problem, at=("PriceList", place)) from None
        if found and all(attributes.get(key, value) == value for key, value in wanted.items()):
            prices[name] = min(found)
            days.append(str(entry.get("publicationDate", ""))[:10])
    if not prices:
        raise InputError(f"the list has no on-demand price in {region}", file=path)
    if not all(days):
        raise InputError("entries have no publicationDate, so the day of the prices is not known", file=path)
    return prices, min(days)


def _entry(item: object) -> Any:
    """Return an entry of the price list, which may be a string of JSON."""
    return json.loads(item) if isinstance(item, str) else item


def _on_demand_prices(entry: Any) -> list[float]:
    """Return the positive hourly prices in an entry."""
    dimensions = (
        dimension
        for term in entry.get("terms", {}).get("OnDemand", {}).values()
        for dimension in term["priceDimensions"].values()
    )
    prices = (float(each["pricePerUnit"].get("USD", 0)) for each in dimensions if each.get("unit") == "Hrs")
    return [price for price in prices if price > 0]
