"""AWS's spot price history: ``aws ec2 describe-spot-price-history`` as JSON, one object a line, or CSV.

An entry is the price of a type in a zone from its Timestamp on, so the price of a zone is that of its newest
entry. Kept are Linux machines that the catalogue knows.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from boa_daemon.errors import InputError
from boa_daemon.inputs.catalog import Catalog
from boa_daemon.inputs.document_file import parse_json, read_text
from boa_daemon.inputs.price_lists import ListedPrice, PriceList, price_rows

_NEEDED = ("InstanceType", "SpotPrice", "AvailabilityZone", "Timestamp")
_COMMAND = "aws ec2 describe-spot-price-history --product-descriptions Linux/UNIX --output json"
_LINUX = ("linux/unix", "linux/unix (amazon vpc)")
_REGION = re.compile(r"(?P<region>[a-z]{2}(?:-[a-z]+)+-\d+)(?:[a-z]|-[a-z0-9-]+[a-z])")


def read_spot_history(path: Path) -> PriceList:
    """Return the newest spot price of each type and region: the cheapest and the dearest zone.

    Raises:
        InputError: naming file and line, or the entry, when it is no spot history or an entry is damaged.
    """
    found = PriceList([])
    known = Catalog.load().entries
    newest: dict[tuple[str, str], dict[str, tuple[datetime, float]]] = {}
    for where, entry in _entries(path):
        name, zone, usd, at = _checked(entry, where, path)
        product = str(entry.get("ProductDescription") or "Linux/UNIX").lower()
        if product not in _LINUX:
            found.left_out["of other systems"] += 1
            continue
        if name not in known:
            found.left_out["of types that the catalogue lacks"] += 1
            continue
        region = _REGION.fullmatch(zone)
        if region is None:
            raise _refuse(f"AvailabilityZone {zone!r} is no zone such as us-east-1a", where, path)
        zones = newest.setdefault((name, region["region"]), {})
        before = zones.get(zone)
        if before is not None and before[0] == at and before[1] != usd:
            problem = f"a second price of {name} in {zone} at {entry['Timestamp']}"
            raise _refuse(problem, where, path)
        if before is None or before[0] < at:
            zones[zone] = (at, usd)
    for (name, place), zones in newest.items():
        prices = [usd for _, usd in zones.values()]
        found.prices.append(
            ListedPrice(
                instance_type=name,
                region=place,
                market="spot",
                usd_per_hour=max(prices),
                usd_low=min(prices),
                as_of=max(at for at, _ in zones.values()).date().isoformat(),
                source=f"AWS's spot price history {path.name}",
            )
        )
    return found


def _entries(path: Path) -> Iterator[tuple[int | str, Mapping[str, Any]]]:
    """Yield (line, or place in the list, and entry) of the history."""
    text = read_text(path)
    start = text.lstrip()[:1]
    if start == "{" and _is_lines(text):
        for line, one in enumerate(text.split("\n"), start=1):
            if one.strip():
                yield line, _object(one, line, path)
    elif start in ("{", "["):
        content = parse_json(text, str(path))
        rows = content.get("SpotPriceHistory") if isinstance(content, Mapping) else content
        if not isinstance(rows, list):
            raise InputError("no SpotPriceHistory in it", file=path, hint=f"Save what {_COMMAND} prints")
        for place, one in enumerate(rows):
            if not isinstance(one, Mapping):
                raise _refuse("not an object", f"entry {place}", path)
            yield f"entry {place}", one
    else:
        delimiter = "\t" if "\t" in text.partition("\n")[0] else ","
        hint = f"Needed: {', '.join(_NEEDED)}"
        yield from price_rows(text, path, _NEEDED, hint=hint, delimiter=delimiter, column_of=_column_of)


def _column_of(name: str) -> str:
    """Return the name of an entry's field from that of a column, such as `spot_price`."""
    plain = name.replace("_", "").replace(" ", "").lower()
    return next((field for field in (*_NEEDED, "ProductDescription") if field.lower() == plain), name)


def _is_lines(text: str) -> bool:
    """Return whether the first line is a whole object of its own and not all of the text."""
    first = text.lstrip().partition("\n")[0]
    try:
        found = json.loads(first)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and "InstanceType" in found


def _object(text: str, line: int, path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise InputError("not an object of JSON", file=path, line=line) from None
    if not isinstance(found, Mapping):
        raise InputError("not an object of JSON", file=path, line=line)
    return found


def _checked(entry: Mapping[str, Any], where: int | str, path: Path) -> tuple[str, str, float, datetime]:
    """Return type, zone, dollars per hour and instant of an entry."""
    for name in _NEEDED:
        if not entry.get(name):
            raise _refuse(f"{name} is missing", where, path)
    try:
        usd = float(entry["SpotPrice"])
    except (TypeError, ValueError):
        usd = math.nan
    if not (math.isfinite(usd) and usd > 0.0):
        raise _refuse(f"SpotPrice must be dollars per hour; got {entry['SpotPrice']!r}", where, path)
    try:
        at = datetime.fromisoformat(str(entry["Timestamp"]))
    except ValueError:
        raise _refuse(f"Timestamp must be a time; got {entry['Timestamp']!r}", where, path) from None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return str(entry["InstanceType"]), str(entry["AvailabilityZone"]), usd, at.astimezone(UTC)


def _refuse(problem: str, where: int | str, path: Path) -> InputError:
    if isinstance(where, int):
        return InputError(problem, file=path, line=where)
    return InputError(
        f"{where} of SpotPriceHistory: {problem}", file=path, hint=f"Save what {_COMMAND} prints"
    )
