"""Times as files have them: ISO 8601 and its like, with an offset, a zone's name, or a count since 1970.

An offset or a zone's name is honoured; without one a time is of the zone that the caller names. What may mean
two instants is refused with both: ``03/01/2026``, ``IST``.

    text                                    read as
    2026-03-01 12:00:00  2026-W09-7T12:00   local time
    2026-03-01T12:00:00Z ... +0530          with its offset; also " UTC+5:30", Go's " +0000 UTC"
    2026-03-01 12:00 Europe/Berlin          by the zone's clocks
    20260301T120000  20260301120000         without signs
    2026-03-01 24:00                        the end of the day
    1772366400[000[000[000]]]               seconds, milli-, micro-, nanoseconds since 1970
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from email.utils import parsedate_to_datetime
from functools import lru_cache
from zoneinfo import ZoneInfo

from boa_daemon.number_text import ascii_digits

UTC_NAMES = ("UTC", "GMT", "Z")
_PLAIN = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}", re.ASCII)
_COUNT = re.compile(r"\d{9,}(\.\d+)?", re.ASCII)
_COMPACT = re.compile(r"(?P<day>(?:19|20)\d{6})(?P<hour>\d{2})(?P<minute>\d{2})(?P<second>\d{2})?", re.ASCII)
_ISO = re.compile(
    r"(?P<day>\d{4}-?\d{2}-?\d{2}|\d{4}-?W\d{2}(?:-?\d)?)"
    r"(?:(?:[Tt_]|\s+)(?P<clock>\d{2}(?::?\d{2}(?::?\d{2}(?:[.,]\d+)?)?)?))?"
    r"\s*(?P<zone>\S.*)?",
    re.ASCII,
)
_OFFSET = re.compile(
    r"(?:UTC|GMT)?(?P<sign>[+-])(?P<hours>\d{1,2})(?::?(?P<minutes>\d{2}))?(?::?(?P<seconds>\d{2}))?"
    # Go prints the name of the zone after its offset; RFC 9557 puts it into brackets.
    r"(?:\s+(?P<name>[A-Z]{1,5}|[+-]\d{2,4})|\s*\[(?P<zone>[^\]]+)\])?",
    re.ASCII | re.IGNORECASE,
)
_SLASHES = re.compile(r"(?P<one>\d{1,2})[/.](?P<two>\d{1,2})[/.](?P<year>\d{4})\b.*", re.ASCII)
_MEANINGS = {
    "IST": "India (+05:30), Israel (+02:00) or Ireland (+01:00)",
    "CST": "North America (-06:00), China (+08:00) or Cuba (-05:00)",
    "BST": "Britain (+01:00) or Bangladesh (+06:00)",
    "EST": "North America (-05:00), or Australia (+10:00)",
    "AST": "the Atlantic (-04:00) or Arabia (+03:00)",
    "AMT": "Amazonas (-04:00) or Armenia (+04:00)",
    "GST": "the Gulf (+04:00) or South Georgia (-02:00)",
    "SST": "Samoa (-11:00) or Singapore (+08:00)",
    "CET": "+01:00, or a place with summer time (Europe/Berlin)",
    "EET": "+02:00, or a place with summer time (Europe/Athens)",
    "PST": "North America (-08:00) or the Philippines (+08:00)",
}
_MOST_COUNT = 1e11
"""Seconds from here on would be after the year 5138: the count is of a thousandth of it, and so on."""


def instant_seconds(text: str, zone: tzinfo = UTC) -> float:
    """Return a time in seconds since the epoch.

    A time that the clocks of its zone show twice is the first of the two.

    Raises:
        ValueError: when the text is no time, may mean two, names an unknown zone, or the zone's clocks skip
            the time.
    """
    text = text.strip()
    if zone is UTC and _PLAIN.fullmatch(text):
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    if _COUNT.fullmatch(text):
        compact = _COMPACT.fullmatch(text)
        return epoch_seconds(float(text), text) if compact is None else _of_compact(text, compact, zone)
    return instant_of_text(text, zone).timestamp()


def instant_of_text(text: str, zone: tzinfo) -> datetime:
    """Return the aware time in a text; a day alone is its begin.

    Raises:
        ValueError: like `instant_seconds`.
    """
    text = ascii_digits(text.strip())
    found = _ISO.fullmatch(text)
    if found is None:
        return _otherwise(text, zone)
    clock = found["clock"] or "00"
    is_end = re.fullmatch(r"24(:?00(:?00(?:[.,]0+)?)?)?", clock) is not None
    local = datetime.fromisoformat(f"{found['day']}T{'00' if is_end else clock}")
    local += timedelta(days=1) if is_end else timedelta()
    return _placed(local, _zone_after(found["zone"], local) if found["zone"] else zone)


def _placed(local: datetime, zone: tzinfo) -> datetime:
    """Return a local time in its zone; raise `ValueError` where the zone's clocks skip it."""
    placed = local.replace(tzinfo=zone)
    if isinstance(zone, ZoneInfo) and datetime.fromtimestamp(placed.timestamp(), zone).replace(
        tzinfo=None
    ) != local.replace(tzinfo=None):
        raise ValueError(f"a time that the clocks of {zone} skip")
    return placed


def _zone_after(text: str, local: datetime) -> tzinfo:
    """Return the zone that is written after a time."""
    if text.upper() in UTC_NAMES:
        return UTC
    offset = _OFFSET.fullmatch(text)
    if offset is not None:
        seconds = int(offset["hours"]) * 3600 + int(offset["minutes"] or 0) * 60 + int(offset["seconds"] or 0)
        found = timezone(timedelta(seconds=-seconds if offset["sign"] == "-" else seconds))
        if offset["zone"] and named_zone(offset["zone"]).utcoffset(local) != found.utcoffset(None):
            raise ValueError(f"its offset is not that of {offset['zone']}")
        return found
    if text[:1] in "+-" and "/" in text:
        raise ValueError("a time with both an offset and a zone")
    if "/" in text:
        return named_zone(text)
    word = text.upper()
    if word.endswith(("AM", "PM")):
        raise ValueError("a time with AM or PM: write it with 24 hours")
    if word in _MEANINGS:
        raise ValueError(f"{text} may be {_MEANINGS[word]}: write the offset")
    raise ValueError(f"{text} is no offset and no zone such as Europe/Berlin")


def _of_compact(text: str, found: re.Match[str], zone: tzinfo) -> float:
    """Return the instant of digits that are a day and a clock."""
    written = f"{found['day']}T{found['hour']}{found['minute']}{found['second'] or ''}"
    try:
        local = datetime.fromisoformat(written)
    except ValueError:
        return epoch_seconds(float(text), text)
    if found["second"] is None:
        since = datetime.fromtimestamp(float(text) / 1000.0, UTC).isoformat(sep=" ", timespec="minutes")
        raise ValueError(
            f"it may be {local.isoformat(sep=' ', timespec='minutes')}, or a count of milliseconds: {since}"
        )
    return _placed(local, zone).timestamp()


def _otherwise(text: str, zone: tzinfo) -> datetime:
    """Return a time in the form of mail; raise `ValueError`, with both readings where there are two."""
    slashes = _SLASHES.fullmatch(text)
    if slashes is not None:
        one, two, year = (int(slashes[name]) for name in ("one", "two", "year"))
        pairs = [(day, month) for day, month in ((one, two), (two, one)) if 1 <= month <= 12]
        days = [f"{year}-{month:02}-{day:02}" for day, month in pairs]
        raise ValueError(f"it may be {' or '.join(dict.fromkeys(days))}" if days else "there is no such day")
    if re.fullmatch(r"\d{5}(\.\d+)?", text) and 20_000 <= float(text) < 80_000:
        day = datetime(1899, 12, 30) + timedelta(days=float(text))
        said = day.isoformat(sep=" ", timespec="minutes")
        raise ValueError(f"as a spreadsheet counts days it is {said}: save the column as a date")
    if re.match(r"(?:[A-Za-z]{3}, )?\d{1,2} [A-Za-z]{3} \d{4} ", text):
        try:
            found = parsedate_to_datetime(text)
        except (TypeError, ValueError, IndexError):
            raise ValueError("no time") from None
        if found.tzinfo is not None and re.search(r"([+-]\d{4}|GMT|UTC)$", text):
            return found
        return _placed(found.replace(tzinfo=None), zone) if re.search(r"\d$", text) else _unknown(text)
    raise ValueError("no time")


def _unknown(text: str) -> datetime:
    raise ValueError(f"{text.rsplit(maxsplit=1)[-1]} is no offset")


def epoch_seconds(number: float, text: str = "") -> float:
    """Return a count since the epoch in seconds: large ones count thousandths, millionths, billionths.

    `text` is the count as written, and keeps the digits that a float has not.

    Raises:
        ValueError: when it is no instant.
    """
    for digits in (0, 3, 6, 9):
        if 0.0 <= number < _MOST_COUNT * 10**digits:
            # A count of nanoseconds has more digits than a float.
            whole = int(text) if text.isdigit() else number
            seconds = whole / 10**digits
            if digits == 3 and seconds >= _MOST_COUNT / 10:
                break
            return seconds
    raise ValueError("no instant")


def has_zone(text: str) -> bool:
    """Return whether a time names its offset or zone, or is a count."""
    text = ascii_digits(text.strip())
    if _COUNT.fullmatch(text):
        return _COMPACT.fullmatch(text) is None
    found = _ISO.fullmatch(text)
    return bool(found["zone"]) if found else bool(re.search(r"([+-]\d{4}|GMT|UTC)$", text))


def is_day(text: str) -> bool:
    """Return whether a time is a day without a clock, perhaps with its zone."""
    found = _ISO.fullmatch(ascii_digits(text.strip()))
    return found is not None and found["clock"] is None


@lru_cache(maxsize=64)
def named_zone(name: str) -> tzinfo:
    """Return the zone of a name such as ``Europe/Berlin``.

    Raises:
        ValueError: when it is no name of the time zone database.
    """
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ValueError(f"{name} is no time zone") from None
