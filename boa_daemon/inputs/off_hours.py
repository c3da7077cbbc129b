"""Hours off: ``20:00-08:00``, ``sat-sun``, ``mon-fri 19:00-07:00``, ``2026-12-24/2026-12-26``.

Days and times are in the zone that a window names at its end (``mon-fri 19:00-07:00 Europe/Berlin``), else in
that of the start, UTC if it names none. A named zone keeps its clock: 19:00 is 19:00 in summer and in winter.
A time window that ends before it begins ends on the next day.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from boa_daemon.errors import InputError, did_you_mean
from policies.optimum.working_time import ALWAYS, WorkingTime

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
HORIZON_DAYS = 3660
"""Days for which weekly windows repeat, far beyond the end of any calendar."""
_DAYS = re.compile(rf"({'|'.join(DAYS)})[a-z]*(?:\s*-\s*({'|'.join(DAYS)})[a-z]*)?")
_TIMES = re.compile(r"(\d{1,2}):(\d{2})\s*-\s*(\d{1,2}):(\d{2})")
_ZONE = re.compile(r"\s([A-Za-z][\w+-]*(?:/[\w+-]+)+|UTC|GMT)$")
_HINT = "Write 20:00-08:00, sat-sun, mon-fri 19:00-07:00 or 2026-12-24/2026-12-26"


def working_time(
    texts: Sequence[str], start: datetime | None, *, boot_hours: float, file: Path | None = None
) -> WorkingTime:
    """Return the working time from `start` on; after each pause it begins with a boot of `boot_hours`.

    Raises:
        InputError: for a text that is not a window, for windows without `start`, or if no time is left.
    """
    if not texts:
        return ALWAYS
    if start is None:
        hint = "Add --start 2026-12-01, or a column submit_at"
        raise InputError("off hours need a day from which to count", file=file, hint=hint)
    stretches = [
        (begin, end + boot_hours) for text in texts for begin, end in _stretches(text.strip(), start, file)
    ]
    found = WorkingTime.without(stretches)
    week = found.worked(168.0 * 8) - found.worked(168.0)
    if week <= 0.0:
        raise InputError(f"off hours {'; '.join(texts)!r} leave no time to work", file=file, hint=_HINT)
    return found


def _stretches(text: str, start: datetime, file: Path | None) -> Iterator[tuple[float, float]]:
    """Yield begin and end of each occurrence of a window, in hours from the start."""
    text, zone = _zone_of(text, file)
    began = start if start.tzinfo else start.replace(tzinfo=UTC)
    start = began if zone is None else began.astimezone(zone)

    def hours_to(wall: datetime) -> float:
        # A zone's clock jumps twice a year: differences of clock times are no durations.
        return (wall.astimezone(UTC) - began.astimezone(UTC)) / timedelta(hours=1)

    if "/" in text:
        first, _, last = (part.strip() for part in text.partition("/"))
        try:
            days = [datetime.fromisoformat(one).replace(tzinfo=start.tzinfo) for one in (first, last)]
        except ValueError:
            raise InputError(f"off hours {text!r} are no days", file=file, hint=_HINT) from None
        end = days[1] + timedelta(days=1)
        yield hours_to(days[0]), hours_to(end)
        return
    days_of_week, begin, hours = _of_a_week(text, file)
    midnight = start.replace(hour=0, minute=0, second=0, microsecond=0)
    for number in range(-7, HORIZON_DAYS):
        day = midnight + timedelta(days=number)
        if day.weekday() in days_of_week:
            opens = day + timedelta(hours=begin)
            yield hours_to(opens), hours_to(opens + timedelta(hours=hours))


def _zone_of(text: str, file: Path | None) -> tuple[str, ZoneInfo | None]:
    """Return a window without the name of a zone at its end, and that zone.

    Raises:
        InputError: when there is no zone of that name.
    """
    found = _ZONE.search(text)
    if found is None:
        return text, None
    try:
        return text[: found.start()].strip(), ZoneInfo(found[1])
    except (ZoneInfoNotFoundError, ValueError, OSError):
        hint = did_you_mean(found[1], available_timezones()) or "Write a zone's name, such as Europe/Berlin"
        raise InputError(f"off hours {text!r}: there is no zone {found[1]!r}", file=file, hint=hint) from None


def _of_a_week(text: str, file: Path | None) -> tuple[frozenset[int], float, float]:
    """Return the days of the week of a window, its beginning in hours of the day, and its length in hours."""
    words = text.lower()
    days, times = _DAYS.match(words), None
    rest = words[days.end() :].strip() if days else words
    if rest:
        times = _TIMES.fullmatch(rest)
    if (rest and times is None) or not words:
        raise InputError(f"off hours {text!r} are no window", file=file, hint=_HINT)
    chosen = frozenset(range(7))
    if days:
        first = DAYS.index(days[1])
        last = DAYS.index(days[2] or days[1])
        chosen = frozenset((first + step) % 7 for step in range((last - first) % 7 + 1))
    if times is None:
        return chosen, 0.0, 24.0
    begin_hour, begin_minute, end_hour, end_minute = map(int, times.groups())
    begin, end = begin_hour + begin_minute / 60.0, end_hour + end_minute / 60.0
    if max(begin, end) > 24.0 or max(begin_minute, end_minute) > 59:
        raise InputError(f"off hours {text!r}: there is no such time", file=file, hint=_HINT)
    return chosen, begin, (end - begin) % 24.0 or 24.0
