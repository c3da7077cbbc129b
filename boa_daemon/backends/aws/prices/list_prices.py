"""On-demand list prices from the Pricing API; saved price lists are read by `offer_file`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from boa_daemon.backends.aws.client.answers import reading
from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.backends.aws.prices.price_steps import ListPrice

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
    """Return the on-demand list price of a type that is in effect, as `ask_terms` does.

    Raises:
        CallFailed: when the call fails, or no price is listed in dollars.
    """
    found = in_effect(ask_terms(calls, region, name), datetime.now(UTC).timestamp())
    if found is None:
        raise _no_price(f"no price of {name} is in effect in {region}")
    return found.usd_per_hour


def ask_terms(calls: AwsCalls, region: str, name: str) -> tuple[ListPrice, ...]:
    """Return the on-demand list prices of a type by date: Linux, shared tenancy, no preinstalled software.

    Prices that begin later are among them. Of several that the attributes leave, the highest at each time: a
    cap on it holds.

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
        prices = _highest([_on_demand_prices(entry) for entry in own])
        currencies = sorted({each for entry in own for each in _currencies(entry)} - {"USD"})
    if not prices:
        said = f"no price of {name} is listed in {region}"
        if currencies:
            said = f"{name} has a price in {', '.join(currencies)} alone, and budgets and caps count USD"
        raise _no_price(said)
    return prices


def in_effect(prices: Sequence[ListPrice], now: float) -> ListPrice | None:
    """Return the price that has begun last; None if none has begun."""
    begun = [price for price in prices if price.since is None or price.since <= now]
    return max(begun, key=lambda price: price.since or 0.0, default=None)


def _no_price(said: str) -> CallFailed:
    return CallFailed("pricing:GetProducts", "NoPrice", said, http_status=404)


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


def _on_demand_prices(entry: Any) -> dict[float | None, float]:
    """Return an entry's positive hourly prices in dollars by the instant at which they begin, the highest."""
    found: dict[float | None, float] = {}
    for term in entry.get("terms", {}).get("OnDemand", {}).values():
        text = term.get("effectiveDate")
        since = begin_of(text).timestamp() if text else None
        for each in term["priceDimensions"].values():
            usd = float(each["pricePerUnit"].get("USD", 0)) if each.get("unit") == "Hrs" else 0.0
            if usd > 0:
                found[since] = max(usd, found.get(since, 0.0))
    return found


def _highest(entries: Sequence[Mapping[float | None, float]]) -> tuple[ListPrice, ...]:
    """Return the highest price of all entries from each instant on at which one of them changes."""
    instants = sorted({since for entry in entries for since in entry}, key=lambda since: since or 0.0)
    found = []
    for at in instants:
        begun = [[since for since in entry if (since or 0.0) <= (at or 0.0)] for entry in entries]
        usd = max(
            entry[max(each, key=lambda since: since or 0.0)]
            for entry, each in zip(entries, begun, strict=True)
            if each
        )
        found.append(ListPrice(usd_per_hour=usd, since=at, is_live=True))
    return tuple(found)


def begin_of(text: object) -> datetime:
    """Return the instant at which a term begins; one without a date has always been."""
    if not text:
        return datetime.min.replace(tzinfo=UTC)
    found = datetime.fromisoformat(str(text).replace("Z", "+00:00"))
    return found if found.tzinfo else found.replace(tzinfo=UTC)
