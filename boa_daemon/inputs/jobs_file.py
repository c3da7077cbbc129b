"""A finite list of jobs, as ``job_id,class_name[,scale][,weight][,deadline_hours]`` in CSV.

`scale` multiplies the phase sizes of the class, `weight` is the worth of an hour of the job's time, and
`deadline_hours` is the latest completion, counted from the job's arrival; an empty cell leaves it out.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from boa_daemon.errors import InputError, did_you_mean
from boa_daemon.inputs.yaml_file import read_text
from policies.optimum.job_list import ListedJob

REQUIRED = ("job_id", "class_name")
COLUMNS = (*REQUIRED, "scale", "weight", "deadline_hours")
LEAST, MOST = 1e-12, 1e12
"""Numbers outside are slips, as in a problem file."""
_HEADER = f"The first line names the columns: {','.join(REQUIRED)} and any of {', '.join(COLUMNS[2:])}"


def read_jobs(path: Path, classes: Collection[str]) -> tuple[ListedJob, ...]:
    """Return the jobs of a list, checked against the known classes.

    Raises:
        InputError: naming file and line, when the file cannot be read or a row is not a job.
    """
    rows = _rows(path)
    _, header = next(rows, (0, []))
    _check_header(header, path)
    jobs: dict[str, ListedJob] = {}
    for line, row in rows:
        if len(row) != len(header):
            raise InputError(
                f"{len(row)} cells where the header has {len(header)}",
                file=path,
                line=line,
                hint="Is the file whole?",
            )
        job = _a_job(dict(zip(header, row, strict=True)), path, line)
        if job.id in jobs:
            raise InputError(f"job_id {job.id!r} occurs twice", file=path, line=line)
        if job.class_name not in classes:
            hint = did_you_mean(job.class_name, classes)
            raise InputError(f"unknown class {job.class_name!r}", file=path, line=line, hint=hint)
        jobs[job.id] = job
    if not jobs:
        raise InputError("the list has no jobs", file=path, hint="Add one row per job")
    return tuple(jobs.values())


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield (line, cells) of the rows that are not blank: spreadsheets leave such rows behind."""
    rows = csv.reader(read_text(path).splitlines())
    try:
        for row in rows:
            cells = [cell.strip() for cell in row]
            if any(cells):
                yield rows.line_num, cells
    except csv.Error as error:
        raise InputError(f"not valid CSV: {error}", file=path, line=rows.line_num) from None


def _check_header(header: Sequence[str], path: Path) -> None:
    """Raise `InputError` unless the columns are known, there once, and enough."""
    if not header:
        raise InputError("the list is empty", file=path, hint=_HEADER)
    for name in header:
        if name not in COLUMNS:
            raise InputError(f"unknown column {name!r}", file=path, line=1, hint=did_you_mean(name, COLUMNS))
    for name in COLUMNS:
        if header.count(name) > 1 or (name in REQUIRED and name not in header):
            raise InputError(f"column {name!r} must be there once", file=path, line=1, hint=_HEADER)


def _a_job(cells: Mapping[str, str], path: Path, line: int) -> ListedJob:
    """Return the job in one row."""
    if not cells["job_id"]:
        raise InputError("a job needs a job_id", file=path, line=line)
    numbers = {name: _number(name, cells.get(name, ""), path, line) for name in COLUMNS[2:]}
    return ListedJob(
        id=cells["job_id"],
        class_name=cells["class_name"],
        scale=numbers["scale"] or 1.0,
        weight=numbers["weight"] or 1.0,
        deadline_hours=numbers["deadline_hours"],
    )


def _number(name: str, cell: str, path: Path, line: int) -> float | None:
    """Return a positive finite number, or None for an empty cell."""
    if not cell:
        return None
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not LEAST <= value <= MOST:
        raise InputError(
            f"{name} must be a finite number, more than zero; got {cell!r}", file=path, line=line
        )
    return value
