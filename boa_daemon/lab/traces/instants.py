"""Times in the columns of histories, in seconds since 1970.

Most times of a history are of one form, ``2026-03-01 12:00:00``: numpy reads a column of them at once. Every
other form, and every fault, is that of `boa_daemon.time_text`, cell by cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo

import numpy as np
import numpy.typing as npt

from boa_daemon.errors import InputError
from boa_daemon.inputs.tables import Rows, TableRow
from boa_daemon.time_text import UTC_NAMES, has_zone, instant_of_text, instant_seconds, named_zone

_PLAIN = "0000-00-00 00:00:00"
_CLOCK = "00:00:00"
_HOUR = 3600
_CLOCKS_CHANGE = 3600.0
"""Seconds by which clocks are set back: a run across it seems to end so much before its start."""


def zone_of(name: str | None) -> tzinfo:
    """Return the zone of a name such as ``Europe/Berlin``; UTC without a name.

    Raises:
        InputError: when it is no name of the time zone database.
    """
    if name is None or name.upper() in UTC_NAMES:
        return UTC
    try:
        return named_zone(name)
    except ValueError:
        hint = "Write a name such as Europe/Berlin or America/New_York, or UTC"
        raise InputError(f"--time-zone {name!r} is no time zone", hint=hint) from None


def column_seconds(rows: Rows, column: str, zone: tzinfo = UTC) -> list[float]:
    """Return the times of a column in seconds since the epoch.

    Raises:
        InputError: naming the line, when a cell is not a time.
    """
    cells = rows.cells(column)
    if (text := "".join(cells)).isascii() and text.isdecimal() and set(map(len, cells)) <= {9, 10}:
        # Seconds since 1970, which have no zone.
        return list(map(float, cells))
    digits = _digits(cells, _PLAIN)
    local = None if digits is None else _local_seconds(digits)
    found = None if local is None else _at_zone(local, zone)
    if found is None:
        return [row_seconds(rows.row(index), column, zone) for index in range(len(rows))]
    values: list[float] = found.astype(float).tolist()
    return values


def clock_seconds(cells: Sequence[str]) -> list[float] | None:
    """Return the seconds of run times that are all ``HH:MM:SS``; None if one is not."""
    digits = _digits(cells, _CLOCK)
    if digits is None:
        return None
    hours, minutes, seconds = digits.T.reshape(3, 2, -1).transpose(0, 2, 1) @ np.array([10, 1])
    if minutes.max() >= 60 or seconds.max() >= 60:
        return None
    values: list[float] = (hours * 3600 + minutes * 60 + seconds).astype(float).tolist()
    return values


def _digits(cells: Sequence[str], form: str) -> npt.NDArray[np.int64] | None:
    """Return the digits of cells that all have a form, a row for each; None if one has another.

    A zero of the form is any digit, and a space is a space or a T.
    """
    text = "".join(cells)
    if not text.isascii() or set(map(len, cells)) != {len(form)}:
        return None
    signs = np.frombuffer(text.encode("ascii"), dtype=np.uint8).reshape(-1, len(form))
    digits = signs[:, [i for i, sign in enumerate(form) if sign == "0"]].astype(np.int64) - ord("0")
    if digits.min() < 0 or digits.max() > 9:
        return None
    for place, sign in enumerate(form):
        column = signs[:, place]
        if sign != "0" and not ((column == ord(sign)) | ((sign == " ") & (column == ord("T")))).all():
            return None
    return digits


def _local_seconds(digits: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | None:
    """Return the seconds since 1970 of the digits of plain times; None if one is no time."""
    year = digits[:, :4] @ np.array([1000, 100, 10, 1])
    month, day, hour, minute, second = (digits[:, i] * 10 + digits[:, i + 1] for i in range(4, 14, 2))
    if month.min() < 1 or month.max() > 12 or day.min() < 1 or year.min() < 1:
        return None
    if hour.max() >= 24 or minute.max() >= 60 or second.max() >= 60:
        return None
    months = ((year - 1970) * 12 + month - 1).astype("datetime64[M]")
    days = months.astype("datetime64[D]").astype(np.int64) + day - 1
    if (days >= (months + 1).astype("datetime64[D]").astype(np.int64)).any():
        return None
    found: npt.NDArray[np.int64] = days * 86_400 + hour * 3600 + minute * 60 + second
    return found


def _at_zone(local: npt.NDArray[np.int64], zone: tzinfo) -> npt.NDArray[np.int64] | None:
    """Return local seconds as instants; None where the zone's clocks change within an hour of one."""
    if zone is UTC:
        return local
    hours, places = np.unique(local // _HOUR, return_inverse=True)
    offsets = [_offset(int(hour), zone) for hour in hours]
    if None in offsets:
        return None
    return local - np.array(offsets, dtype=np.int64)[places]


def _offset(hour: int, zone: tzinfo) -> int | None:
    """Return the seconds by which a zone is ahead in an hour of its clocks; None if they change then."""
    begin = datetime.fromtimestamp(hour * _HOUR, UTC).replace(tzinfo=None)
    end = datetime.fromtimestamp(hour * _HOUR + _HOUR - 1, UTC).replace(tzinfo=None)
    # A time that is skipped or shown twice has another offset as the second of the two.
    found = {one.replace(tzinfo=zone, fold=fold).utcoffset() for one in (begin, end) for fold in (0, 1)}
    (offset, *others) = found
    return None if others or offset is None or offset.microseconds else int(offset.total_seconds())


def run_seconds(started: str, ended: str, zone: tzinfo = UTC) -> float:
    """Return the seconds from a start to an end; 0 where local times without zones run backwards.

    Raises:
        ValueError: when one is no time, one alone has a zone, or both have and the end is before the start.
    """
    first, last = instant_seconds(started, zone), instant_seconds(ended, zone)
    if has_zone(started) != has_zone(ended):
        raise ValueError(f"of {started} and {ended} one alone has a zone")
    if last < first - (0.0 if has_zone(ended) else _CLOCKS_CHANGE):
        raise ValueError(f"{ended} is before {started}")
    if last < first and zone is not UTC:
        # A time that the clocks show twice is the second of the two where the first is before the start.
        last = instant_of_text(ended, zone).replace(fold=1).timestamp()
    # Without zones a run across the end of daylight saving seems to end before its start.
    return max(0.0, last - first)


def row_seconds(row: TableRow, column: str, zone: tzinfo = UTC) -> float:
    """Return the time in a cell in seconds since the epoch.

    Raises:
        InputError: naming the line, when the cell is not a time.
    """
    text = row.text(column)
    try:
        return instant_seconds(text, zone)
    except (ValueError, OverflowError) as error:
        reason = f": {error}" if str(error) != "no time" else ""
        problem = f"{column} must be YYYY-MM-DD HH:MM:SS; got {text!r}{reason}"
        raise row.refuse(problem) from None
