"""AWS's price list as files: an offer file in CSV or JSON, or saved output of ``aws pricing get-products``.

Kept are prices on demand of Linux machines, shared, without preinstalled software, in a region, of types
that the catalogue knows, that are in effect now. Everything else is counted as left out.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from boa_daemon.backends.aws.prices.list_prices import ATTRIBUTES, begin_of, matches
from boa_daemon.csv_text import csv_rows, delimiter_of
from boa_daemon.errors import InputError
from boa_daemon.inputs.catalog import Catalog
from boa_daemon.inputs.document_file import entries_of, json_pages, names_next_page
from boa_daemon.inputs.price_lists import ListedPrice, PriceList
from boa_daemon.number_text import NotOneNumber, number_of
from boa_daemon.text_files import is_json, open_text, read_whole_text
from policies.money_text import price_in_dollars

_ATTRIBUTE_OF: Mapping[str, str] = {
    "Instance Type": "instanceType",
    "Region Code": "regionCode",
    "Operating System": "operatingSystem",
    "Pre Installed S/W": "preInstalledSw",
    "Tenancy": "tenancy",
    "CapacityStatus": "capacitystatus",
    "MarketOption": "marketoption",
    "Location Type": "locationType",
    "License Model": "licenseModel",
}
"""The attribute in JSON of each column of CSV."""
_COLUMNS = ("TermType", "Unit", "PricePerUnit", "Currency", "Instance Type", "Operating System", "Tenancy")
_MOST_METADATA = 20
"""Lines of metadata above the header, of which a file of AWS has five."""
_HINT = "Save an offer file of AmazonEC2 (index.csv or index.json), or what `aws pricing get-products` prints"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Offer:
    """A price on demand in a list; `where` is its line, or its place in words."""

    attributes: Mapping[str, str]
    since: str
    unit: str
    currency: str
    amount: str
    day: str
    where: int | str
    has_decimal_commas: bool = False


def read_offers(path: Path, *, as_of: str, region: str = "", now: datetime | None = None) -> PriceList:
    """Return the prices on demand, one per type and region; with a `region` only its own.

    An entry that names no region is then one of that region.

    Raises:
        InputError: naming file and line, or the entry, when it is no price list, is damaged, or has two
            prices of one type and region that nothing tells apart, or no price in dollars of `region`.
    """
    found, known = PriceList([]), Catalog.load().entries
    now = now or datetime.now(UTC)
    currencies: set[str] = set()
    best: dict[tuple[str, str], tuple[datetime, float, _Offer]] = {}
    for offer in _offers(path, found.notes):
        attributes = offer.attributes
        name, place = attributes.get("instanceType", ""), attributes.get("regionCode") or region
        if not (name and matches(attributes, ATTRIBUTES)):
            found.left_out["of other systems, tenancies or terms"] += 1
            continue
        if region and place != region:
            found.left_out["of other regions"] += 1
            continue
        if name not in known:
            found.left_out["of types that the catalogue lacks"] += 1
            continue
        currencies |= {offer.currency} if offer.unit == "Hrs" else set()
        if offer.unit != "Hrs" or offer.currency != "USD":
            found.left_out["in other units or currencies"] += 1
            continue
        usd, since = _usd(offer, path), _instant(offer, path)
        if since > now or usd == 0.0:
            found.left_out["not in effect"] += 1
            continue
        if not place:
            raise _refuse(f"the price of {name} names no region", offer, path)
        before = best.get((name, place))
        if before is not None and before[0] == since and before[1] != usd:
            problem = (
                f"{name} in {place} costs {price_in_dollars(usd)}/hour here and "
                f"{price_in_dollars(before[1])} in {_spoken(before[2])}, "
                "and nothing tells them apart"
            )
            raise _refuse(problem, offer, path)
        if before is None or before[0] < since:
            best[name, place] = (since, usd, offer)
    if region and not best:
        raise _none_in(region, currencies - {"USD"}, path)
    for (name, place), (_, usd, offer) in best.items():
        day = as_of or offer.day
        if not day:
            hint = "Give the day of the prices: --as-of YYYY-MM-DD"
            raise InputError("the list has no publication date", file=path, hint=hint)
        found.prices.append(
            ListedPrice(
                instance_type=name,
                region=place,
                market="on-demand",
                usd_per_hour=usd,
                usd_low=usd,
                as_of=day,
                source=f"AWS's price list {path.name}",
            )
        )
    return found


def _none_in(region: str, currencies: set[str], path: Path) -> InputError:
    """Return the error about a list without a price in dollars of a region."""
    if not currencies:
        return InputError(f"the list has no on-demand price in {region}", file=path)
    hint = "Convert the prices yourself, in a price file with the day of the rate as as_of"
    said = ", ".join(sorted(currencies))
    return InputError(
        f"the prices in {region} are in {said}, and budgets and caps count USD", file=path, hint=hint
    )


def _offers(path: Path, notes: list[str]) -> Iterator[_Offer]:
    if not is_json(path):
        yield from _csv_offers(path)
        return
    pages = json_pages(read_whole_text(path), str(path), hint=_HINT)
    if names_next_page(pages, "NextToken"):
        notes.append("the file lacks pages: its last answer names a further one (NextToken)")
    if not pages:
        raise InputError("no price list of AWS", file=path, hint=_HINT)
    for place, item in enumerate(entries_of(pages, ("PriceList",))):
        if isinstance(item, Mapping) and isinstance(item.get("products"), Mapping):
            yield from _of_file(item, path)
        elif isinstance(item, str) or (isinstance(item, Mapping) and "product" in item):
            where = f"entry {place} of PriceList"
            try:
                entry = json.loads(item) if isinstance(item, str) else item
                day = str(entry.get("publicationDate", ""))[:10]
                terms = entry.get("terms", {}).get("OnDemand", {})
                yield from _of_terms(entry["product"]["attributes"], terms, day, where)
            except (ValueError, LookupError, TypeError, AttributeError):
                raise InputError(f"{where} is not an entry of a price list", file=path) from None
        else:
            raise InputError("no price list of AWS", file=path, hint=_HINT)


def _of_file(content: Mapping[str, Any], path: Path) -> Iterator[_Offer]:
    """Yield the prices on demand of an offer file."""
    day = str(content.get("publicationDate", ""))[:10]
    for sku, product in content["products"].items():
        where = f"product {sku}"
        try:
            terms = content.get("terms", {}).get("OnDemand", {}).get(sku, {})
            yield from _of_terms(product["attributes"], terms, day, where)
        except (ValueError, LookupError, TypeError, AttributeError):
            raise InputError(f"{where} is not a product of an offer file", file=path) from None


def _of_terms(
    attributes: Mapping[str, Any], terms: Mapping[str, Any], day: str, where: str
) -> Iterator[_Offer]:
    """Yield a product's prices on demand."""
    texts = {str(key): str(value) for key, value in attributes.items()}
    for term in terms.values():
        for dimension in term["priceDimensions"].values():
            for currency, amount in dimension["pricePerUnit"].items():
                yield _Offer(
                    attributes=texts,
                    since=str(term.get("effectiveDate") or ""),
                    unit=str(dimension.get("unit")),
                    currency=str(currency),
                    amount=str(amount),
                    day=day,
                    where=where,
                )


def _csv_offers(path: Path) -> Iterator[_Offer]:
    """Yield the prices of an offer file in CSV: lines of metadata, a header, and rows; read as a stream."""
    line = 0
    delimiter = _delimiter(path)
    try:
        with open_text(path) as file:
            reader = csv_rows(file, delimiter=delimiter)
            metadata: dict[str, str] = {}
            header: list[str] = []
            for raw in reader:
                cells = [cell.strip() for cell in raw]
                if "SKU" in cells:
                    header = cells
                    break
                if len(cells) != 2 or len(metadata) > _MOST_METADATA:
                    break
                metadata[cells[0]] = cells[1]
            missing = [name for name in _COLUMNS if name not in header]
            if missing:
                problem = f"column {missing[0]!r} is missing" if header else "no header with SKU"
                raise InputError(problem, file=path, line=reader.line_num, hint=_HINT)
            day = metadata.get("Publication Date", "")[:10]
            for cells in reader:
                line = reader.line_num
                if not cells:
                    continue
                if len(cells) != len(header):
                    problem = f"{len(cells)} cells where the header has {len(header)}"
                    hint = "The file may be cut short: fetch it again"
                    raise InputError(problem, file=path, line=reader.line_num, hint=hint)
                row = dict(zip(header, map(str.strip, cells), strict=True))
                if row["TermType"] != "OnDemand":
                    continue
                yield _Offer(
                    attributes={key: row[column] for column, key in _ATTRIBUTE_OF.items() if column in row},
                    since=row.get("EffectiveDate", ""),
                    unit=row["Unit"],
                    currency=row["Currency"],
                    amount=row["PricePerUnit"],
                    day=day,
                    where=reader.line_num,
                    has_decimal_commas=delimiter == ";",
                )
    except csv.Error as error:
        hint = "The file may be cut short: fetch it again"
        raise InputError(f"not valid CSV: {error}", file=path, line=line, hint=hint) from error


def _delimiter(path: Path) -> str:
    """Return the sign between the columns: a spreadsheet may have saved the file with another."""
    with open_text(path) as file:
        header = next((line for line in islice(file, _MOST_METADATA) if "SKU" in line), ",")
    return delimiter_of(header)


def _usd(offer: _Offer, path: Path) -> float:
    try:
        usd = number_of(offer.amount, has_decimal_commas=offer.has_decimal_commas)
        if usd >= 0.0:
            return usd
        reason = ""
    except NotOneNumber as error:
        reason = error.reason
    raise _refuse(f"PricePerUnit must be dollars per hour; got {offer.amount!r}{reason}", offer, path)


def _instant(offer: _Offer, path: Path) -> datetime:
    """Return the instant from which a price holds."""
    try:
        return begin_of(offer.since)
    except ValueError:
        raise _refuse(f"EffectiveDate must be a day; got {offer.since!r}", offer, path) from None


def _spoken(offer: _Offer) -> str:
    return f"line {offer.where}" if isinstance(offer.where, int) else offer.where


def _refuse(problem: str, offer: _Offer, path: Path) -> InputError:
    if isinstance(offer.where, int):
        return InputError(problem, file=path, line=offer.where)
    return InputError(f"{offer.where}: {problem}", file=path)
