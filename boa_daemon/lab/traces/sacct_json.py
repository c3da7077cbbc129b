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
_TIMES = ("submission", "start", "end", "elapsed")
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
    """Return the cells of a job.

    The parts of a job are taken as Slurm writes them; only where one is of another kind is it read with care,
    which is slow.
    """
    content = job.content
    times = content.get("time")
    if times.__class__ is not dict:
        times = {name: job.get("time", name) for name in _TIMES}
    submitted, started, ended, elapsed = [_whole(job, "time", name, times.get(name)) for name in _TIMES]
    if submitted is None or elapsed is None:
        raise job.refuse("time.submission and time.elapsed must be numbers")
    state = content.get("state")
    word = state.get("current") if state.__class__ is dict else content.get("job_state")
    if isinstance(word, list):
        word = word[0] if word else ""
    allocated = _tres(job, "allocated")
    return [
        _id(job),
        str(submitted),
        str(started) if started else "Unknown",
        str(ended) if ended else "Unknown",
        str(elapsed),
        word if isinstance(word, str) else "",
        allocated,
        # What a job asked for counts where it was given nothing.
        allocated or _tres(job, "requested"),
    ]


def _id(job: Record) -> str:
    """Return the JobID as `sacct -P` writes it: 17, 17_3 or 17+0."""
    for part, name, mark in (("array", "task_id", "_"), ("het", "job_offset", "+")):
        whole = job.content.get(part)
        if whole.__class__ is not dict:
            whole = {key: job.get(part, key) for key in ("job_id", name)}
        first = _whole(job, part, "job_id", whole.get("job_id"))
        if first and (number := _whole(job, part, name, whole.get(name))) is not None:
            return f"{first}{mark}{number}"
    found = job.content.get("job_id")
    if found.__class__ is int and found >= 0:
        return str(found)
    return str(job.whole("job_id", default=-1)) if found is not None else job.text("job_id")


def _whole(job: Record, part: str, key: str, found: Any) -> int | None:
    """Return the whole number under a key of a part of a job; None where it is null or not set."""
    if found.__class__ is dict:
        found = found.get("number") if found.get("set") and not found.get("infinite") else None
    if found is None:
        return None
    if found.__class__ is not int or found < 0:
        raise job.refuse(f"{part}.{key} must be a whole number; got {str(found)[:60]!r}")
    return int(found)


def _tres(job: Record, which: str) -> str:
    """Return resources as ``cpu=8,gres/gpu:a100=2``."""
    tres = job.content.get("tres")
    listed = tres.get(which) if tres.__class__ is dict else None
    found = []
    for index, one in enumerate(listed if listed.__class__ is list else job.objects("tres", which)):
        kind = one.get("type") if one.__class__ is dict else None
        name, count = (one.get("name"), one.get("count")) if kind.__class__ is str else ("", None)
        if count.__class__ is not int or count < 0:
            part = job.objects("tres", which)[index]
            kind, name = part.text("type"), part.get("name")
            count = _whole(part, f"tres.{which}", "count", part.get("count")) or 0
        found.append(f"{kind}/{name}={count}" if name else f"{kind}={count}")
    return ",".join(found)
