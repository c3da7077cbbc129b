"""A finite list of jobs in CSV: ``job_id,class_name[,scale][,weight][,deadline_hours]``, and dates.

`scale` multiplies the phase sizes of the class, `weight` is the value of an hour of the job's time, and
`deadline_hours` is the latest completion, counted from the job's arrival; an empty cell means the default.
`submit_hours` or `submit_at` is when a job arrives, and `deadline_at` is its latest completion as a date. A
first line ``off: sat-sun, 20:00-08:00`` names hours in which nothing runs (`boa_daemon.inputs.off_hours`).
"""

from __future__ import annotations

import csv
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from boa_daemon.csv_text import csv_reader
from boa_daemon.errors import InputError, column_hint, did_you_mean
from boa_daemon.inputs.document_file import read_text
from boa_daemon.number_text import NotOneNumber, number_of
from boa_daemon.time_text import instant_of_text, is_day
from policies.optimum.job_list import ListedJob

REQUIRED = ("job_id", "class_name")
NUMBERS = ("scale", "weight", "deadline_hours", "submit_hours")
DATES = ("submit_at", "deadline_at")
COLUMNS = (*REQUIRED, *NUMBERS, *DATES)
OFF = "off:"
LEAST, MOST = 1e-12, 1e12
"""Numbers outside this range are taken for typing errors, as in a problem file."""
_HEADER = f"The first line names the columns: {','.join(REQUIRED)} and any of {', '.join(COLUMNS[2:])}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsFile:
    """A list of jobs; hours count from the instant `start`, which is None without dates.

    `has_arrivals`: the list has a column for arrivals or dates; `off`: windows of hours off, as written.
    """

    jobs: tuple[ListedJob, ...]
    start: datetime | None
    has_arrivals: bool
    off: tuple[str, ...] = ()


def read_list(path: Path, classes: Collection[str], start: datetime | None = None) -> JobsFile:
    """Return the jobs of a list, checked against the known classes.

    Dates count from `start`; None means the beginning of the day of the first `submit_at`.

    Raises:
        InputError: naming file and line, when the file cannot be read or a row is not a job.
    """
    rows = _rows(path)
    _, header = next(rows, (0, []))
    off: tuple[str, ...] = ()
    if header and header[0].lower().startswith(OFF):
        off = tuple(text for text in (header[0][len(OFF) :].strip(), *header[1:]) if text)
        _, header = next(rows, (0, []))
    _check_header(header, path)
    cells: dict[str, tuple[int, dict[str, str]]] = {}
    for line, row in rows:
        if len(row) != len(header):
            raise InputError(
                f"{len(row)} cells where the header has {len(header)}",
                file=path,
                line=line,
                hint="Is the file whole?",
            )
        named = dict(zip(header, row, strict=True))
        name, class_name = named["job_id"], named["class_name"]
        if not name:
            raise InputError("a job needs a job_id", file=path, line=line)
        if name in cells:
            raise InputError(f"job_id {name!r} occurs twice", file=path, line=line)
        if class_name not in classes:
            hint = did_you_mean(class_name, classes)
            said = class_name if len(class_name) <= 80 else f"{class_name[:80]}..."
            raise InputError(f"unknown class {said!r}", file=path, line=line, hint=hint)
        cells[name] = (line, named)
    if not cells:
        raise InputError("the list has no jobs", file=path, hint="Add one row per job")
    dates = {
        (name, column): _date(column, row[column], path, line)
        for name, (line, row) in cells.items()
        for column in DATES
        if row.get(column)
    }
    if start is None and dates:
        start = _first_day(dates, path)
    hours = {key: (date - start).total_seconds() / 3600.0 for key, date in dates.items() if start is not None}
    return JobsFile(
        jobs=tuple(_a_job(row, hours, path, line) for line, row in cells.values()),
        start=start,
        has_arrivals=bool({*DATES, "submit_hours"} & set(header)),
        off=off,
    )


def parse_instant(text: str, *, is_end: bool = False) -> datetime:
    """Return the instant in a text, UTC without a zone; a day alone is its beginning, or end (`is_end`).

    Raises:
        ValueError: when the text is not a date.
    """
    found = instant_of_text(text, UTC)
    return found + timedelta(days=1) if is_end and is_day(text) else found


def _date(column: str, cell: str, path: Path, line: int) -> datetime:
    """Return the date in a cell; a deadline that is a day alone is the end of that day."""
    try:
        return parse_instant(cell, is_end=column == "deadline_at")
    except (ValueError, OverflowError) as error:
        hint = "Write 2026-12-24 or 2026-12-24T18:00"
        reason = "" if str(error) == "no time" else f": {error}"
        problem = f"{column} must be a date; got {cell!r}{reason}"
        raise InputError(problem, file=path, line=line, hint=hint) from None


def _first_day(dates: Mapping[tuple[str, str], datetime], path: Path) -> datetime:
    """Return the beginning of the day on which the first job arrives."""
    arrivals = [date for (_, column), date in dates.items() if column == "submit_at"]
    if not arrivals:
        hint = "Add --start 2026-12-01, or a column submit_at"
        raise InputError("the list has deadlines but no day from which to count", file=path, hint=hint)
    return min(arrivals).replace(hour=0, minute=0, second=0, microsecond=0)


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield (line, cells) of each row that is not blank; spreadsheets leave blank rows behind."""
    rows = csv_reader(read_text(path), strict=False)
    try:
        for row in rows:
            cells = [cell.strip() for cell in row]
            if any(cells):
                yield rows.line_num, cells
    except csv.Error as error:
        raise InputError(f"not valid CSV: {error}", file=path, line=rows.line_num) from None


def _check_header(header: Sequence[str], path: Path) -> None:
    """Raise `InputError` unless the columns are known, unique and complete."""
    if not header:
        raise InputError("the list is empty", file=path, hint=_HEADER)
    for name in header:
        if name not in COLUMNS:
            raise InputError(f"unknown column {name!r}", file=path, line=1, hint=column_hint(name, COLUMNS))
    for name in COLUMNS:
        if header.count(name) > 1 or (name in REQUIRED and name not in header):
            raise InputError(f"column {name!r} must occur exactly once", file=path, line=1, hint=_HEADER)


def _a_job(
    cells: Mapping[str, str], hours: Mapping[tuple[str, str], float], path: Path, line: int
) -> ListedJob:
    """Return the job in one row; `hours` are the list's dates in hours from its beginning."""
    name = cells["job_id"]
    for date, number in (("submit_at", "submit_hours"), ("deadline_at", "deadline_hours")):
        if cells.get(date) and cells.get(number):
            raise InputError(f"give either {date} or {number}, not both", file=path, line=line)
    numbers = {column: _number(column, cells.get(column, ""), path, line) for column in NUMBERS}
    submit = hours.get((name, "submit_at"), numbers["submit_hours"] or 0.0)
    if submit < 0.0:
        raise InputError(f"job {name!r} is submitted before the list begins", file=path, line=line)
    deadline = numbers["deadline_hours"]
    if (name, "deadline_at") in hours:
        deadline = hours[name, "deadline_at"] - submit
        if deadline <= 0.0:
            problem = f"the deadline of job {name!r} is before it is submitted"
            raise InputError(problem, file=path, line=line)
    return ListedJob(
        id=name,
        class_name=cells["class_name"],
        scale=numbers["scale"] or 1.0,
        weight=numbers["weight"] or 1.0,
        deadline_hours=deadline,
        submit_hours=submit,
    )


def _number(name: str, cell: str, path: Path, line: int) -> float | None:
    """Return a positive finite number, or None for an empty cell; `submit_hours` may be 0."""
    if not cell:
        return None
    value, reason, hint = math.nan, "", ""
    try:
        value = number_of(cell)
    except NotOneNumber as error:
        reason, hint = error.reason, error.hint
    least = 0.0 if name == "submit_hours" else LEAST
    if not least <= value <= MOST:
        wanted = "0 or more" if name == "submit_hours" else "more than zero"
        problem = f"{name} must be a finite number, {wanted}; got {cell!r}{reason}"
        raise InputError(problem, file=path, line=line, hint=hint)
    return value
