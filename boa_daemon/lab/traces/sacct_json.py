"""The answer of ``sacct --json`` as the columns of ``sacct -P``.

Its form differs by version: a state is a word or a list of words, a number is one, null, or an object that
says whether it is set (data_parser 0.0.39 and later).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from boa_daemon.inputs.tables import Rows
from boa_daemon.lab.traces.json_records import Record, read_records

COLUMNS = ("JobID", "Submit", "Start", "End", "ElapsedRaw", "State", "AllocTRES", "ReqTRES")
_BATCH = 8192


def sacct_rows(path: Path, command: str) -> Iterator[Rows]:
    """Yield the jobs of a file in batches; their steps are parts of them, and left out.

    Raises:
        InputError: when it is no such answer, naming the job.
    """
    places = {name: place for place, name in enumerate(COLUMNS)}
    jobs = read_records(
        path, ("jobs",), noun="job", hint=f"Write the file with {command}, or sacct -a --json"
    )
    rows: list[list[str]] = []
    number = 0
    for number, job in enumerate(jobs, 1):
        rows.append(_cells(job))
        if len(rows) == _BATCH:
            yield _rows(path, places, rows, number)
            rows = []
    if rows:
        yield _rows(path, places, rows, number)


def _rows(path: Path, places: dict[str, int], rows: list[list[str]], last: int) -> Rows:
    # Records count from zero in errors.
    return Rows(path=path, places=places, rows=rows, lines=range(last - len(rows), last), noun="job")


def _cells(job: Record) -> list[str]:
    """Return the cells of a job."""
    times = [_number(job, "time", name) for name in ("submission", "start", "end", "elapsed")]
    submitted, started, ended, elapsed = times
    if submitted is None or elapsed is None:
        raise job.refuse("time.submission and time.elapsed must be numbers")
    state = job.get("state", "current") if isinstance(job.get("state"), dict) else job.get("job_state")
    word = state[0] if isinstance(state, list) and state else state
    return [
        _id(job),
        str(submitted),
        str(started) if started else "Unknown",
        str(ended) if ended else "Unknown",
        str(elapsed),
        word if isinstance(word, str) else "",
        _tres(job, "allocated"),
        _tres(job, "requested"),
    ]


def _id(job: Record) -> str:
    """Return the JobID as `sacct -P` writes it: 17, 17_3 or 17+0."""
    array, task = _number(job, "array", "job_id"), _number(job, "array", "task_id")
    if array and task is not None:
        return f"{array}_{task}"
    first, part = _number(job, "het", "job_id"), _number(job, "het", "job_offset")
    if first and part is not None:
        return f"{first}+{part}"
    return str(job.whole("job_id", default=-1)) if job.get("job_id") is not None else job.text("job_id")


def _number(job: Record, *keys: str) -> int | None:
    """Return a whole number; None where it is null or not set."""
    found: Any = job.get(*keys)
    if found.__class__ is dict:
        found = found.get("number") if found.get("set") and not found.get("infinite") else None
    if found is None:
        return None
    if found.__class__ is not int or found < 0:
        raise job.refuse(f"{'.'.join(keys)} must be a whole number; got {str(found)[:60]!r}")
    return int(found)


def _tres(job: Record, which: str) -> str:
    """Return resources as ``cpu=8,gres/gpu:a100=2``."""
    found = []
    for one in job.objects("tres", which):
        name, kind, count = one.get("name"), one.get("type"), one.get("count")
        if kind.__class__ is not str or count.__class__ is not int or count < 0:
            kind, count = one.text("type"), _number(one, "count") or 0
        found.append(f"{kind}/{name}={count}" if name else f"{kind}={count}")
    return ",".join(found)
