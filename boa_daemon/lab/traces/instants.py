"""Times in traces: an offset or a zone's name is honoured; without one a time is of the file's zone."""

from __future__ import annotations

import re
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

from boa_daemon.errors import InputError
from boa_daemon.lab.traces.csv_tables import TableRow

_NAMED = re.compile(r"(?P<time>.+?\d)\s*(?P<zone>[A-Za-z][A-Za-z0-9_+/-]*)")
_UTC_NAMES = ("UTC", "GMT", "Z")
_PLAIN = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}", re.ASCII)
_EPOCH_BEGINS = datetime(1970, 1, 1)
_MILLISECONDS_FROM = 1e11
"""Counts from here on are of milliseconds: as seconds they would be of the year 5138."""
_EPOCH = re.compile(r"\d{9,}(\.\d+)?", re.ASCII)


def zone_of(name: str | None) -> tzinfo:
    """Return the zone of a name such as ``Europe/Berlin``; UTC without a name.

    Raises:
        InputError: when it is no name of the time zone database.
    """
    if name is None or name.upper() in _UTC_NAMES:
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        hint = "Write a name such as Europe/Berlin or America/New_York, or UTC"
        raise InputError(f"--time-zone {name!r} is no time zone", hint=hint) from None


def instant_seconds(text: str, zone: tzinfo = UTC) -> float:
    """Return a time in seconds since the epoch: ISO 8601, perhaps with an offset or a zone, or a count.

    A time that the clocks of its zone show twice is the first of the two.

    Raises:
        ValueError: when the text is no time, names an unknown zone, or the zone's clocks skip the time.
    """
    text = text.strip()
    if zone is UTC and _PLAIN.fullmatch(text):
        # Most times are of this form: a million of them should take a second.
        return (datetime.fromisoformat(text) - _EPOCH_BEGINS).total_seconds()
    if _EPOCH.fullmatch(text):
        return epoch_seconds(float(text))
    # Most times name no zone: a million rows should not pay for the search.
    may_name = text[-1:].isalpha() or "/" in text
    named = _NAMED.fullmatch(text) if may_name else None
    if named is not None and (named["zone"].upper() in _UTC_NAMES or "/" in named["zone"]):
        text = named["time"]
        zone = UTC if named["zone"].upper() in _UTC_NAMES else _named_zone(named["zone"])
        if datetime.fromisoformat(text).tzinfo is not None:
            raise ValueError("a time with both an offset and a zone")
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        found = found.replace(tzinfo=zone)
        if zone is not UTC and datetime.fromtimestamp(found.timestamp(), zone).replace(
            tzinfo=None
        ) != found.replace(tzinfo=None):
            raise ValueError(f"a time that the clocks of {zone} skip")
    return found.timestamp()


def epoch_seconds(number: float) -> float:
    """Return a count since the epoch in seconds: large ones count milliseconds.

    Raises:
        ValueError: when it is no instant.
    """
    if not 0.0 <= number < 1e15:
        raise ValueError("no instant")
    return number / 1000.0 if number >= _MILLISECONDS_FROM else number


def run_seconds(started: str, ended: str, zone: tzinfo = UTC) -> float:
    """Return the seconds from a start to an end; 0 where local times without zones run backwards.

    Raises:
        ValueError: when one is no time, one alone has a zone, or both have and the end is before the start.
    """
    first, last = instant_seconds(started, zone), instant_seconds(ended, zone)
    if has_zone(started) != has_zone(ended):
        raise ValueError(f"of {started} and {ended} one alone has a zone")
    if last < first and has_zone(ended):
        raise ValueError(f"{ended} is before {started}")
    # Without zones a run across the end of daylight saving seems to end before its start.
    return max(0.0, last - first)


def has_zone(text: str) -> bool:
    """Return whether a time names its offset or zone."""
    text = text.strip()
    return bool(_EPOCH.fullmatch(text) or re.search(r"([A-Za-z]|\d[+-]\d{2}(:?\d{2})?)$", text[10:]))


def row_seconds(row: TableRow, column: str, zone: tzinfo = UTC) -> float:
    """Return the time in a cell in seconds since the epoch.

    Raises:
        InputError: naming the line, when the cell is not a time.
    """
    text = row.text(column)
    try:
        return instant_seconds(text, zone)
    except (ValueError, OverflowError) as error:
        reason = f": {error}" if "Invalid isoformat" not in str(error) else ""
        problem = f"{column} must be YYYY-MM-DD HH:MM:SS; got {text!r}{reason}"
        raise row.refuse(problem) from None


def _named_zone(name: str) -> tzinfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ValueError(f"{name} is no time zone") from None
