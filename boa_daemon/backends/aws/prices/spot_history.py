"""AWS's spot price history: ``aws ec2 describe-spot-price-history`` as JSON, text or table, or as CSV.

An entry is the price of a type in a zone from its Timestamp on, so the price of a zone is that of its newest
entry. Kept are Linux machines that the catalogue knows.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from boa_daemon.backends.region_names import REGION
from boa_daemon.errors import InputError
from boa_daemon.inputs.catalog import Catalog
from boa_daemon.inputs.document_file import entries_of, json_pages, names_next_page
from boa_daemon.inputs.price_lists import ListedPrice, PriceList
from boa_daemon.inputs.tables import read_rows
from boa_daemon.number_text import NotOneNumber, number_of, without_dollars
from boa_daemon.text_files import is_json, is_parquet, open_text, read_whole_text
from boa_daemon.time_text import instant_seconds

_NEEDED = ("InstanceType", "SpotPrice", "AvailabilityZone", "Timestamp")
_COMMAND = "aws ec2 describe-spot-price-history --product-descriptions Linux/UNIX --output json"
_CUT = "that the file lacks"
_PRINTED = re.compile(r"SPOTPRICEHISTORY\t|-{20,}\s*$|\|\s*DescribeSpotPriceHistory")
"""How the command's own text and tables begin."""
_LINUX = ("linux/unix", "linux/unix (amazon vpc)")
_REGION = re.compile(rf"(?P<region>{REGION})(?:[a-z]|-[a-z0-9-]+[a-z])")


def read_spot_history(path: Path) -> PriceList:
    """Return the newest spot price of each type and region: the cheapest and the dearest zone.

    Raises:
        InputError: naming file and line, or the entry, when it is no spot history or an entry is damaged.
    """
    history, left_out = spot_prices(path)
    found = PriceList([], left_out)
    if left_out.pop(_CUT, 0):
        found.notes.append("the file lacks pages: its last answer names a further one (NextToken)")
    newest: dict[tuple[str, str], list[tuple[datetime, float]]] = {}
    for (name, region, _), prices in history.items():
        newest.setdefault((name, region), []).append(max(prices.items()))
    for (name, region), zones in newest.items():
        found.prices.append(
            ListedPrice(
                instance_type=name,
                region=region,
                market="spot",
                usd_per_hour=max(usd for _, usd in zones),
                usd_low=min(usd for _, usd in zones),
                as_of=max(at for at, _ in zones).date().isoformat(),
                source=f"AWS's spot price history {path.name}",
            )
        )
    return found


def spot_prices(path: Path) -> tuple[dict[tuple[str, str, str], dict[datetime, float]], Counter[str]]:
    """Return the dollars per hour by type, region and zone, by instant; and how many entries are left out.

    Raises:
        InputError: like `read_spot_history`.
    """
    known = Catalog.load().entries
    found: dict[tuple[str, str, str], dict[datetime, float]] = {}
    left_out: Counter[str] = Counter()
    for where, entry in _entries(path, left_out):
        name, zone, usd, at = _checked(entry, where, path)
        product = str(entry.get("ProductDescription") or "Linux/UNIX").lower()
        if product not in _LINUX:
            left_out["of other systems"] += 1
            continue
        if name not in known:
            left_out["of types that the catalogue lacks"] += 1
            continue
        region = _REGION.fullmatch(zone)
        if region is None:
            raise _refuse(f"AvailabilityZone {zone!r} is no zone such as us-east-1a", where, path)
        prices = found.setdefault((name, region["region"], zone), {})
        if prices.setdefault(at, usd) != usd:
            problem = f"a second price of {name} in {zone} at {entry['Timestamp']}"
            raise _refuse(problem, where, path)
    return found, left_out


def _entries(path: Path, left_out: Counter[str]) -> Iterator[tuple[int | str, Mapping[str, Any]]]:
    """Yield (line, or place in the list, and entry) of the history; count an answer that is not the last."""
    if is_parquet(path) or not is_json(path):
        if not is_parquet(path) and _is_printed(path):
            yield from _printed(path)
            return
        hint = f"Needed: {', '.join(_NEEDED)}, or what {_COMMAND} prints"
        for row in read_rows(path, _NEEDED, header_hint=hint, column_of=_column_of):
            yield row.line, {**row.cells, "": row.has_decimal_commas}
        return
    hint = f"Save what {_COMMAND} prints"
    pages = json_pages(read_whole_text(path), str(path), hint=hint)
    left_out[_CUT] += names_next_page(pages, "NextToken")
    for place, one in enumerate(entries_of(pages, ("SpotPriceHistory",))):
        if not isinstance(one, Mapping):
            raise _refuse("not an object", f"entry {place}", path)
        if not one.keys() & set(_NEEDED):
            raise InputError("no SpotPriceHistory in it", file=path, hint=hint)
        yield f"entry {place}", one


def _is_printed(path: Path) -> bool:
    with open_text(path) as file:
        return _PRINTED.match(next((line for line in file if line.strip()), "")) is not None


def _printed(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the rows of ``--output text`` and ``--output table``, whose columns are ordered by name."""
    names: Sequence[str] = ()
    with open_text(path) as file:
        for line, text in enumerate(file, 1):
            is_text = text.startswith("SPOTPRICEHISTORY\t")
            cells = [cell.strip() for cell in text.strip().strip("|").split("\t" if is_text else "|")]
            if is_text:
                zones = ("AvailabilityZone", "AvailabilityZoneId")[: len(cells) - 5]
                names = ("", *zones, "InstanceType", "ProductDescription", "SpotPrice", "Timestamp")
            elif "InstanceType" in cells:
                names = cells
                continue
            elif len(cells) < len(_NEEDED):
                # A rule, a title, or the token of the next page.
                continue
            if len(cells) != len(names) or not set(_NEEDED) <= set(names):
                raise _refuse(f"{len(cells)} cells where there should be {len(names)}", line, path)
            yield line, dict(zip(names, cells, strict=True))


def _column_of(name: str) -> str:
    """Return the name of an entry's field from that of a column, such as `spot_price`."""
    plain = name.replace("_", "").replace(" ", "").lower()
    return next((field for field in (*_NEEDED, "ProductDescription") if field.lower() == plain), name)


def _checked(entry: Mapping[str, Any], where: int | str, path: Path) -> tuple[str, str, float, datetime]:
    """Return type, zone, dollars per hour and instant of an entry."""
    for name in _NEEDED:
        if not entry.get(name):
            raise _refuse(f"{name} is missing", where, path)
    try:
        text = without_dollars(str(entry["SpotPrice"]))
        usd = number_of(text, has_decimal_commas=entry.get("") is True)
    except NotOneNumber as error:
        raise _refuse(f"SpotPrice must be dollars per hour: {error}", where, path) from None
    if not usd > 0.0:
        raise _refuse(f"SpotPrice must be dollars per hour; got {entry['SpotPrice']!r}", where, path)
    try:
        at = datetime.fromtimestamp(instant_seconds(str(entry["Timestamp"])), UTC)
    except (ValueError, OverflowError) as error:
        reason = "" if str(error) == "no time" else f": {error}"
        raise _refuse(f"Timestamp must be a time; got {entry['Timestamp']!r}{reason}", where, path) from None
    return str(entry["InstanceType"]), str(entry["AvailabilityZone"]), usd, at


def _refuse(problem: str, where: int | str, path: Path) -> InputError:
    if isinstance(where, int):
        return InputError(problem, file=path, line=where)
    return InputError(
        f"{where} of SpotPriceHistory: {problem}", file=path, hint=f"Save what {_COMMAND} prints"
    )
