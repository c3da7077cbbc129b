"""On-demand list prices: from the Pricing API, or from a saved answer of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from boa_daemon.backends.aws.client.answers import reading
from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.errors import InputError
from boa_daemon.inputs.document_file import read_document

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
        entries = [_entry(item) for item in answer["PriceList"]]
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


def read_price_list(path: Path, region: str, *, now: datetime | None = None) -> tuple[dict[str, float], str]:
    """Return prices by type, and the day of the prices, from a saved `aws pricing get-products`.

    Entries of other regions, systems, tenancies and market options are left out; an attribute that an entry
    lacks matches. Prices that are not yet in effect are left out.

    Raises:
        InputError: when the file holds no price of the region in dollars, two for one type, or no day.
    """
    document = read_document(path)
    content = document.content
    if not isinstance(content, Mapping) or not isinstance(content.get("PriceList"), list):
        hint = "Save what `aws pricing get-products --service-code AmazonEC2 --filters ...` prints"
        raise document.error("no PriceList in it", hint=hint)
    wanted = {"regionCode": region, **ATTRIBUTES}
    prices: dict[str, float] = {}
    places: dict[str, int] = {}
    days: list[str] = []
    currencies: set[str] = set()
    for place, item in enumerate(content["PriceList"]):
        try:
            entry = _entry(item)
            attributes = entry["product"]["attributes"]
            name, found = str(attributes["instanceType"]), set(_on_demand_prices(entry, now=now))
            of_region = matches(attributes, wanted)
            currencies |= _currencies(entry) if of_region else set()
        except (ValueError, KeyError, TypeError, AttributeError):
            problem = f"entry {place} of PriceList is not an entry of a price list"
            raise document.error(problem, at=("PriceList", place)) from None
        if not (found and of_region):
            continue
        if len(found | {prices.get(name, min(found))}) > 1:
            others = sorted(found | {prices.get(name, min(found))})
            first = f", also entry {places[name]}" if name in places else ""
            problem = (
                f"entry {place} of PriceList{first}: {name} costs {others[0]:g} and {others[-1]:g} USD/hour "
                f"in {region}, and nothing in the entries tells them apart"
            )
            raise document.error(problem, at=("PriceList", place), hint="Keep the entry that you pay by")
        prices[name], places[name] = min(found), place
        days.append(str(entry.get("publicationDate", ""))[:10])
    if not prices:
        if currencies - {"USD"}:
            said = ", ".join(sorted(currencies - {"USD"}))
            hint = "Convert the prices yourself, in a price file with the day of the rate as as_of"
            raise InputError(
                f"the prices in {region} are in {said}, and budgets and caps count USD", file=path, hint=hint
            )
        raise InputError(f"the list has no on-demand price in {region}", file=path)
    if not all(days):
        raise InputError("entries have no publicationDate, so the day of the prices is not known", file=path)
    return prices, min(days)


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


def _entry(item: object) -> Any:
    """Return an entry of the price list, which may be a string of JSON."""
    return json.loads(item) if isinstance(item, str) else item


def _on_demand_prices(entry: Any, *, now: datetime | None = None) -> list[float]:
    """Return the positive hourly prices in dollars that are in effect: those of the newest begun term."""
    now = now or datetime.now(UTC)
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
