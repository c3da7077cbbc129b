"""Times as files have them: ISO 8601 and its like, with an offset, a zone's name, or a count since 1970.

An offset or a zone's name is honoured; without one a time is of the zone that the caller names. What may mean
two instants is refused with both: ``03/01/2026``, ``IST``. A run time is seconds, or names its units.

    text                                    read as
    2026-03-01 12:00:00  2026-W09-7T12:00   local time
    2026-03-01T12:00:00Z ... +0530          with its offset; also " UTC+5:30", Go's " +0000 UTC"
    2026-03-01 12:00 Europe/Berlin          by the zone's clocks
    20260301T120000  20260301120000         without signs
    2026/3/1 7:05  1-Mar-2026 07:05  Sun Mar  1 07:05:00 2026    likewise: the year or the month is plain
    2026-03-01 24:00                        the end of the day
    13/01/2026  13.01.2026  3/3/2026        likewise: there is one such day
    1772366400[000[000[000]]]               seconds, milli-, micro-, nanoseconds since 1970

    run time                                seconds
    3600  1:00:00  1-02:03:04  1 day, 2:03:04
    P1DT2H  90m  1.5 h  1h 30min  250 ms    by the units
    1:30                                    refused: hours and minutes, or minutes and seconds
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

from boa_daemon.number_text import NotOneNumber, ascii_digits, number_of

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
_LOOSE = re.compile(
    r"(?P<year>\d{4})(?P<sign>[-/.])(?P<month>\d{1,2})(?P=sign)(?P<day>\d{1,2})"
    r"(?:(?:[Tt_]|\s+)(?P<hour>\d{1,2})(?P<clock>:\d.*))?",
    re.ASCII,
)
"""A day that begins with its year, with any sign and without leading zeros."""
_MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def _shortened(names: tuple[str, ...]) -> str:
    """Return a pattern of names in full or cut to three letters or more."""
    return "|".join(name[:size] for name in names for size in range(len(name), 2, -1))


_MONTH = rf"(?P<month>{_shortened(_MONTHS)})\.?"
_WEEKDAY = rf"(?:(?P<weekday>{_shortened(_WEEKDAYS)}|weds)\.?,?\s+)?"
_WORDS = (
    re.compile(
        rf"{_WEEKDAY}{_MONTH}\s+(?P<day>\d{{1,2}}),?\s+"
        r"(?:(?P<clock>\d{1,2}:\d\d(?::\d\d)?)(?:\s+(?P<zone>[a-z]+|[+-]\d{4}))?\s+)?"
        r"(?P<year>\d{4})(?:,?\s+(?P<rest>\S.*))?",
        re.ASCII | re.IGNORECASE,
    ),
    re.compile(
        rf"{_WEEKDAY}(?P<day>\d{{1,2}})[-/\s]+{_MONTH}[-/,\s]+(?P<year>\d{{4}})"
        r"(?:[:,T\s]\s*(?P<rest>\S.*))?(?P<clock>)(?P<zone>)",
        re.ASCII | re.IGNORECASE,
    ),
)
"""Days whose month is a word of English: of C's ``%c`` and of `date`, and of mails and log files."""
_BRACKETS = re.compile(r"(?P<time>.*\S)\s*\((?P<zone>[A-Z+:0-9-]{1,9})\)", re.ASCII)
_SLASHES = re.compile(
    r"(?P<one>\d{1,2})(?P<sign>[/.-])(?P<two>\d{1,2})(?P=sign)(?P<year>\d{4})(?P<rest>(?:\b|[Tt_]).*)",
    re.ASCII,
)
"""A day that ends with its year: the month comes first in some countries, and the day in others."""
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
    if zone is UTC and _PLAIN.fullmatch(text) and text[11:13] != "24":
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
    found = _iso(text)
    if found is None:
        raise ValueError(_reason_against(text))
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


def _iso(text: str) -> re.Match[str] | None:
    """Return the parts of a time, from ISO 8601 or one of its like; None if it is neither."""
    found = _ISO.fullmatch(text)
    # An hour of one digit looks like a zone.
    if found is not None and not (found["zone"] or " ")[0].isdigit() and not text.endswith(")"):
        return found
    return _ISO.fullmatch(_plainly(text))


def _plainly(text: str) -> str:
    """Return a time with its day as ``2026-03-01`` and its hour in two digits; other texts as they are."""
    if (found := _BRACKETS.fullmatch(text)) is not None:
        # A zone in brackets explains an offset that is there, or is the zone itself.
        has_offset = re.search(r":\d\d.*[+-]\d\d:?\d\d$", found["time"]) is not None
        text = found["time"] if has_offset else f"{found['time']} {found['zone']}"
    for form in _WORDS:
        if (found := form.fullmatch(text)) is not None and not (found["clock"] and found["rest"]):
            month = next(n for n, name in enumerate(_MONTHS, 1) if name.startswith(found["month"].lower()))
            _refuse_weekday(found["weekday"], found["year"], month, found["day"])
            parts = (f"{found['year']}-{month}-{found['day']}", *found.group("clock", "rest", "zone"))
            text = " ".join(part for part in parts if part)
            break
    if len(days := days_in(text)) == 1:
        text = re.sub(_SLASHES, rf"{days[0]}\g<rest>", text)
    found = _LOOSE.fullmatch(text)
    if found is None:
        return text
    day = f"{found['year']}-{int(found['month']):02}-{int(found['day']):02}"
    return day if found["hour"] is None else f"{day} {int(found['hour']):02}{found['clock']}"


def _refuse_weekday(name: str | None, year: str, month: int, day: str) -> None:
    """Raise `ValueError` where the day has another weekday than the one beside it."""
    written = _day(int(year), month, int(day))
    if name and written:
        own = _WEEKDAYS[date.fromisoformat(written).weekday()]
        if not own.startswith(name.lower().removesuffix("s") if name.lower() == "weds" else name.lower()):
            raise ValueError(f"{written} is a {own.capitalize()}")


def days_in(text: str) -> list[str]:
    """Return the days that ``03/01/2026`` or ``13.01.2026`` may be, as ISO dates; none for other texts.

    The first has its day first, and the second its month.
    """
    found = _SLASHES.fullmatch(text.strip())
    if found is None:
        return []
    one, two, year = (int(found[name]) for name in ("one", "two", "year"))
    days = (_day(year, month, day) for day, month in ((one, two), (two, one)))
    return list(dict.fromkeys(filter(None, days)))


def _reason_against(text: str) -> str:
    """Return why a text is no time, with both readings where there are two."""
    if _SLASHES.fullmatch(text) is not None:
        said = " or ".join(days_in(text))
        return f"it may be {said}" if said else "there is no such day"
    if re.fullmatch(r"\d{5}(\.\d+)?", text) and 20_000 <= float(text) < 80_000:
        day = datetime(1899, 12, 30) + timedelta(days=float(text))
        said = day.isoformat(sep=" ", timespec="minutes")
        return f"as a spreadsheet counts days it is {said}: save the column as a date"
    return "no time"


def _day(year: int, month: int, day: int) -> str:
    """Return a day as ISO writes it; empty where the calendar has none."""
    try:
        return date(year, month, day).isoformat()
    except ValueError:
        return ""


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
    found = _iso(text)
    return found is not None and bool(found["zone"])


def is_day(text: str) -> bool:
    """Return whether a time is a day without a clock, perhaps with its zone."""
    found = _iso(ascii_digits(text.strip()))
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


_UNITS = {
    **dict.fromkeys(("w", "wk", "week", "weeks"), 604_800.0),
    **dict.fromkeys(("d", "day", "days"), 86_400.0),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("ms", "msec", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("us", "\u00b5s", "\u03bcs", "microsecond", "microseconds"), 1e-6),
    **dict.fromkeys(("ns", "nanosecond", "nanoseconds"), 1e-9),
}
_CLOCK = re.compile(
    r"(?:(?P<days>\d+)(?:-|\s*days?,?\s+))?(?P<hours>\d+):(?P<minutes>\d\d?)(?::(?P<seconds>\d\d?(?:[.,]\d+)?))?",
    re.ASCII | re.IGNORECASE,
)
_PERIOD = re.compile(r"P(?P<days>[^T]*)(?:T(?P<clock>.+))?", re.ASCII | re.IGNORECASE)
_PART = re.compile(
    r"\s*(?P<number>[\d.,]+)\s*(?P<unit>[a-z\u00b5\u03bc]+)\.?\s*(?:,\s+|and\s+)?", re.IGNORECASE
)


def duration_seconds(text: str) -> float:
    """Return a run time in seconds, from a clock, units or ISO 8601; a bare number is seconds.

    Raises:
        ValueError: when the text is none, or may be two.
    """
    text = ascii_digits(text.strip())
    if (clock := _CLOCK.fullmatch(text)) is not None:
        return _of_clock(clock)
    period = _PERIOD.fullmatch(text)
    if period is None:
        return _of_units(text) if re.search(r"[^\W\d]", text) else _number(text)
    if re.search(r"[ym]", period["days"], re.IGNORECASE):
        raise ValueError("years and months have no fixed length")
    return _of_units(period["days"] + (period["clock"] or ""))


def _of_clock(clock: re.Match[str]) -> float:
    hours, minutes = int(clock["hours"]), int(clock["minutes"])
    if clock["seconds"] is None and clock["days"] is None:
        raise ValueError(f"it may be {hours}:{minutes:02}:00 or 0:{hours:02}:{minutes:02}")
    seconds = float((clock["seconds"] or "0").replace(",", "."))
    if minutes >= 60 or seconds >= 60 or (clock["days"] and hours >= 24):
        raise ValueError("there is no such time of day")
    return int(clock["days"] or 0) * 86_400.0 + hours * 3600.0 + minutes * 60.0 + seconds


def _of_units(text: str) -> float:
    """Return the sum of numbers with units, each unit smaller than the one before."""
    found, place, last = 0.0, 0, float("inf")
    while place < len(text):
        part = _PART.match(text, place)
        unit = None if part is None else _UNITS.get(part["unit"].lower())
        if part is None or unit is None or unit >= last:
            raise ValueError("no run time")
        found += _number(part["number"]) * unit
        place, last = part.end(), unit
    if not place:
        raise ValueError("no run time")
    return found


def _number(text: str) -> float:
    try:
        return number_of(text)
    except NotOneNumber as error:
        raise ValueError(error.reason.removeprefix(", which ") or "no run time") from None
