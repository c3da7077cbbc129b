"""A strict reader of traces: arrivals as ``job_id,arrived_at_seconds,class_name[,scale]``.

`arrived_at_seconds` counts from the start of the trace; `scale` multiplies the phase sizes of the class.
Any other content is refused with file and line, so that no simulation runs on half a file.
"""

from __future__ import annotations

import csv
import errno
import math
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import islice
from operator import le
from pathlib import Path

from boa_daemon.csv_text import MAX_CELL_BYTES
from boa_daemon.errors import InputError, column_hint, did_you_mean, near_files
from boa_daemon.text_files import open_text, regular_file
from policies.fast_dataclasses import fast_init

COLUMNS = ("job_id", "arrived_at_seconds", "class_name", "scale")
REQUIRED = COLUMNS[:3]
_EXAMPLE = f"A trace starts with the line {','.join(REQUIRED)} and optionally {COLUMNS[3]}"


@fast_init
@dataclass(frozen=True, slots=True)
class TraceJob:
    """One arrival: seconds from the start of the trace, a class, and a factor on the sizes of its phases."""

    id: str
    arrived_at_seconds: float
    class_name: str
    scale: float = 1.0

    def __post_init__(self) -> None:
        if not self.id:
            raise ValueError("a job needs a job_id")
        if not self.class_name:
            raise ValueError(f"job {self.id} needs a class_name")
        if not 0.0 <= self.arrived_at_seconds < math.inf:
            raise ValueError(
                f"arrived_at_seconds of job {self.id} must be a finite number, zero or more; "
                f"got {self.arrived_at_seconds!r}"
            )
        if not 0.0 < self.scale < math.inf:
            raise ValueError(
                f"scale of job {self.id} must be a finite number, more than zero; got {self.scale!r}"
            )


class TraceFault(ValueError):
    """Jobs that are not a valid trace; `index` is the position of the first wrong job."""

    def __init__(self, message: str, *, index: int) -> None:
        super().__init__(message)
        self.index = index


@dataclass(frozen=True, slots=True)
class Trace:
    """Arrivals in order of time, with unique ids."""

    jobs: tuple[TraceJob, ...]

    def __post_init__(self) -> None:
        arrivals = [job.arrived_at_seconds for job in self.jobs]
        if all(map(le, arrivals, islice(arrivals, 1, None))) and len({job.id for job in self.jobs}) == len(
            self.jobs
        ):
            return
        seen: set[str] = set()
        latest = 0.0
        for index, job in enumerate(self.jobs):
            if job.arrived_at_seconds < latest:
                raise TraceFault(
                    f"arrivals must be in order of time; job {job.id} arrives at {job.arrived_at_seconds!r}, "
                    f"after one at {latest!r}",
                    index=index,
                )
            if job.id in seen:
                raise TraceFault(f"job_id {job.id!r} occurs twice", index=index)
            seen.add(job.id)
            latest = job.arrived_at_seconds

    @property
    def window_hours(self) -> float:
        """Hours from the first to the last arrival; 0 for fewer than two jobs."""
        if not self.jobs:
            return 0.0
        return (self.jobs[-1].arrived_at_seconds - self.jobs[0].arrived_at_seconds) / 3600.0


def read_trace(path: str | Path) -> Trace:
    """Return the trace in a CSV file. Cost: O(jobs), about 2 microseconds per job.

    Raises:
        InputError: naming file and line, when the file cannot be read, is empty or not UTF-8 text, when a
            column is unknown or missing, a cell is missing or not a number in range, an id occurs twice or
            arrivals are out of order.
    """
    path = Path(path)
    if "\0" in str(path):
        raise InputError("cannot read the trace: no file has a zero byte in its name", file=repr(str(path)))
    with regular_file(path) as source, open_text(source, what="the trace") as file:
        jobs = tuple(_jobs(file, path))
    if not jobs:
        raise InputError("the trace has no jobs", file=path, hint="Add one row per arrival")
    try:
        return Trace(jobs)
    except TraceFault as fault:
        hint = "Sort the rows by arrived_at_seconds" if "order" in str(fault) else "Give every job its own id"
        raise InputError(str(fault), file=path, line=fault.index + 2, hint=hint) from fault


_WRITES_BOTH = ", or have `boa trace import` write both"


def class_file_of(
    jobs: Path, classes: Path | None, *, what: str = "the trace", other: str = _WRITES_BOTH
) -> Path:
    """Return the class file of a trace or a list: `classes` if given, else ``classes.yaml`` beside `jobs`.

    Raises:
        InputError: when `classes` is None and there is no such file.
    """
    if classes is not None:
        return classes
    beside = jobs.with_name("classes.yaml")
    if not jobs.exists():
        raise InputError(f"cannot read {what}: {os.strerror(errno.ENOENT)}", file=jobs, hint=near_files(jobs))
    if not beside.is_file():
        raise InputError(
            f"there is no {beside} that says how large the jobs of {jobs.name} are and how they scale",
            hint=f"Give --classes FILE{other}",
        )
    return beside


def check_classes(trace: Trace, known: Collection[str], path: str | Path) -> None:
    """Check that the class of every job is known.

    Raises:
        InputError: naming the line in `path` of the first job with an unknown class.
    """
    names = frozenset(known)
    for index, job in enumerate(trace.jobs):
        if job.class_name not in names:
            raise InputError(
                f"job {job.id} is of class {job.class_name!r}, which the class file does not have",
                file=path,
                line=index + 2,
                hint=did_you_mean(job.class_name, names),
            )


def _jobs(file: Iterator[str], path: Path) -> Iterator[TraceJob]:
    csv.field_size_limit(MAX_CELL_BYTES)
    rows = csv.reader(file, strict=True)
    try:
        header = next(rows, None)
        if header is None:
            raise InputError("the trace is empty", file=path, hint=_EXAMPLE)
        places = _places(header, path)
        width = len(header)
        for number, row in enumerate(rows, start=2):
            if len(row) != width or rows.line_num != number:
                raise InputError(
                    f"{len(row)} cells where the header has {width}, or a line break inside a cell",
                    file=path,
                    line=number,
                    hint="The file may be cut short: write it again",
                )
            try:
                yield _job(row, places)
            except ValueError as error:
                raise InputError(str(error), file=path, line=number) from error
    except csv.Error as error:
        raise InputError(f"not CSV: {error}", file=path, line=rows.line_num) from error


def _places(header: list[str], path: Path) -> tuple[int, int, int, int | None]:
    """Return the position of each column; None for an absent scale."""
    for name in header:
        if name not in COLUMNS:
            hint = column_hint(name, COLUMNS)
            raise InputError(f"unknown column {name!r}", file=path, line=1, hint=hint)
        if header.count(name) > 1:
            raise InputError(f"column {name!r} occurs twice", file=path, line=1, hint=_EXAMPLE)
    for name in REQUIRED:
        if name not in header:
            raise InputError(f"column {name!r} is missing", file=path, line=1, hint=_EXAMPLE)
    scale = header.index("scale") if "scale" in header else None
    return header.index("job_id"), header.index("arrived_at_seconds"), header.index("class_name"), scale


def _job(row: list[str], places: tuple[int, int, int, int | None]) -> TraceJob:
    """Return the job of a row; raise ValueError for a cell that is not a number in range."""
    identity, arrival, name, scale = places
    return TraceJob(
        row[identity],
        _number("arrived_at_seconds", row[arrival]),
        row[name],
        1.0 if scale is None else _number("scale", row[scale]),
    )


def _number(column: str, cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        raise ValueError(f"{column} must be a number; got {cell!r}") from None
