"""On-demand list prices from the Pricing API; saved price lists are read by `offer_file`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from boa_daemon.backends.aws.client.answers import reading
from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.client.errors import CallFailed

_TERMS = {"operatingSystem": "Linux", "preInstalledSw": "NA", "tenancy": "Shared", "capacitystatus": "Used"}
ATTRIBUTES: Mapping[str, str] = {
    **_TERMS,
    "marketoption": "OnDemand",
    "locationType": "AWS Region",
    "licenseModel": "No License required",
}
"""Attributes of the price that a node of ours costs; an entry that lacks one may still be it.

Price lists also have entries of Capacity Blocks, reserved capacity, Local Zones and other systems, and some
are cheaper."""


def ask_price(calls: AwsCalls, region: str, name: str) -> float:
    """Return the on-demand list price of a type: Linux, shared tenancy, no preinstalled software.

    Of several prices that the attributes leave, the highest: a cap on it holds.

    Raises:
        CallFailed: when the call fails, or no price is listed in dollars.
    """
    terms = {"instanceType": name, "regionCode": region, **_TERMS}
    answer = calls.call(
        "pricing:GetProducts",
        ServiceCode="AmazonEC2",
        Filters=[{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in terms.items()],
    )
    with reading("pricing:GetProducts"):
        entries = [json.loads(item) if isinstance(item, str) else item for item in answer["PriceList"]]
        wanted = {"regionCode": region, "instanceType": name, **ATTRIBUTES}
        own = [entry for entry in entries if matches(entry["product"]["attributes"], wanted)]
        prices = [price for entry in own for price in _on_demand_prices(entry)]
        currencies = sorted({each for entry in own for each in _currencies(entry)} - {"USD"})
    if not prices:
        said = f"no price of {name} is listed in {region}"
        if currencies:
            said = f"{name} has a price in {', '.join(currencies)} alone, and budgets and caps count USD"
        raise CallFailed("pricing:GetProducts", "NoPrice", said, http_status=404)
    return max(prices)


def matches(attributes: Mapping[str, Any], wanted: Mapping[str, str]) -> bool:
    """Return whether an entry is of the wanted price, as far as its attributes say."""
    return all(attributes.get(key, value) == value for key, value in wanted.items())


def _currencies(entry: Any) -> set[str]:
    """Return the currencies of an entry's hourly prices on demand."""
    return {
        str(currency)
        for term in entry.get("terms", {}).get("OnDemand", {}).values()
        for dimension in term["priceDimensions"].values()
        if dimension.get("unit") == "Hrs"
        for currency in dimension["pricePerUnit"]
    }


def _on_demand_prices(entry: Any) -> list[float]:
    """Return the positive hourly prices in dollars that are in effect: those of the newest begun term."""
    now = datetime.now(UTC)
    begun: dict[datetime, list[float]] = {}
    for term in entry.get("terms", {}).get("OnDemand", {}).values():
        since = begin_of(term.get("effectiveDate"))
        if since > now:
            continue
        prices = (
            float(each["pricePerUnit"].get("USD", 0))
            for each in term["priceDimensions"].values()
            if each.get("unit") == "Hrs"
        )
        begun.setdefault(since, []).extend(price for price in prices if price > 0)
    return begun[max(begun)] if begun else []


def begin_of(text: object) -> datetime:
    """Return the instant at which a term begins; one without a date has always been."""
    if not text:
        return datetime.min.replace(tzinfo=UTC)
    found = datetime.fromisoformat(str(text).replace("Z", "+00:00"))
    return found if found.tzinfo else found.replace(tzinfo=UTC)
