"""Slurm's accounting: the output of ``sacct -P`` (``--parsable2``) or ``-p``, with any columns in any order.

Needed are JobID, Submit, AllocTRES or ReqTRES, and Elapsed, ElapsedRaw, or Start and End. A row of a step
(``17.batch``, ``17.0``) is part of its job and left out; a task of an array (``17_3``) is a job. The parts of
a heterogeneous job (``17+0``, ``17+1``) are one job: its width is their sum. Rows of one JobID that follow
each other in time (``--duplicates`` after a requeue) are attempts: their GPU-time is added up.

Every job that used GPUs counts with what it used, whatever its state: the load of a cluster is also that of
jobs that failed. Jobs that run or wait are left out, since their size is not known yet.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from functools import cache
from pathlib import Path

from boa_daemon.errors import InputError, did_you_mean
from boa_daemon.lab.traces.csv_tables import TableRow, pick_file, read_rows
from boa_daemon.lab.traces.instants import row_seconds, run_seconds, zone_of
from boa_daemon.lab.traces.rigid import GPU_TYPE, RigidJob, rigid_workload
from boa_daemon.text_files import open_text
from boa_daemon.traces.workload import Options, Workload
from policies.fast_dataclasses import fast_init

FILES = ("sacct*", "*.txt", "*.psv", "*.csv")
COMMAND = "sacct -a -X -P --starttime 2026-01-01 -o JobID,Submit,Start,End,Elapsed,State,AllocTRES,ReqTRES"

_ENDED = (
    "COMPLETED",
    "FAILED",
    "CANCELLED",
    "TIMEOUT",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "BOOT_FAIL",
    "DEADLINE",
    "REQUEUED",
    "REVOKED",
    "LAUNCH_FAILED",
    "RECONFIG_FAIL",
    "UPDATE_DB",
)
_RUNS = (
    "RUNNING",
    "SUSPENDED",
    "COMPLETING",
    "RESIZING",
    "STOPPED",
    "SIGNALING",
    "STAGE_OUT",
    "POWER_UP_NODE",
)
_WAITS = (
    "PENDING",
    "CONFIGURING",
    "REQUEUE_FED",
    "REQUEUE_HOLD",
    "SPECIAL_EXIT",
    "RESV_DEL_HOLD",
    "EXPEDITING",
)
_STATES = (*_ENDED, *_RUNS, *_WAITS)
_NO_TIME = ("", "Unknown", "None", "N/A")
_ELAPSED = re.compile(
    r"(?:(?:(?P<days>\d+)-)?(?P<hours>\d{1,2}):)?(?P<minutes>\d{1,2}):(?P<seconds>\d{1,2}(?:\.\d+)?)"
)
_JOB_ID = re.compile(r"(?P<job>\d+(?:_(?:\d+|\[[^\]]*\]))?)(?:\+(?P<part>\d+))?(?P<step>\.\S+)?")
_TRES = re.compile(r"gres/gpu(?::(?P<type>[^=]+))?=(?P<count>\d+)")


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A row about a job: one attempt of it, or of one part of it."""

    line: int
    part: str
    submitted_at_seconds: float
    gpus: int
    gpu_type: str
    seconds: float
    span: tuple[float, float] | None


def import_sacct(source: Path, options: Options) -> Workload:
    """Return the workload of a cluster's jobs.

    Raises:
        InputError: when the file is missing or damaged, naming the line.
    """
    path = pick_file(source, FILES, options.workload)
    zone = zone_of(options.time_zone)
    dropped: Counter[str] = Counter()
    states: Counter[str] = Counter()
    by_job: dict[str, tuple[_Row, ...]] = {}
    for job, found in _rows(path, zone, dropped, states):
        by_job[job] = (*by_job.get(job, ()), found)
    # Each job's rows are dropped as soon as the job is made: both together would take twice the memory.
    jobs = [one for job in list(by_job) if (one := _job(job, by_job.pop(job), dropped, path))]
    said = []
    if not_completed := sum(count for state, count in states.items() if state != "COMPLETED"):
        parts = ", ".join(f"{n} {state}" for state, n in sorted(states.items()) if state != "COMPLETED")
        said.append(
            f"{not_completed} rows are of jobs that did not complete ({parts}): they count as they ran"
        )
    return rigid_workload(f"Slurm {path.name}", jobs, options, path=path, dropped=dropped, said=said)


def elapsed_seconds(text: str) -> float:
    """Return the seconds of Slurm's ``[[D-]HH:]MM:SS``; raise ValueError for other texts."""
    found = _ELAPSED.fullmatch(text.strip())
    if found is None or float(found["seconds"]) >= 60 or int(found["minutes"]) >= 60:
        raise ValueError(f"{text!r} is not [[D-]HH:]MM:SS")
    if found["days"] and int(found["hours"]) >= 24:
        raise ValueError(f"{text!r} has days and more than 23 hours")
    hours = int(found["days"] or 0) * 24 + int(found["hours"] or 0)
    return hours * 3600.0 + int(found["minutes"]) * 60.0 + float(found["seconds"])


def _in_tres(found: re.Match[str]) -> str:
    return f"gres/gpu{':' + found[1] if found[1] else ''}={found[2]}"


def gpus_of(tres: str) -> dict[str, int]:
    """Return the GPUs by type in ``cpu=8,gres/gpu=2,gres/gpu:a100=2``; an unnamed type is ``gpu``."""
    named: Counter[str] = Counter()
    total = 0
    if re.match(r"gpu\b", tres.strip()):
        # A column of old versions: gpu:4, or gpu:v100:4(IDX:0-3).
        tres = re.sub(r"\bgpu:(?:([^:,(]+):)?(\d+)(?:\([^)]*\))?", _in_tres, tres)
    for item in tres.split(","):
        found = _TRES.fullmatch(item.strip())
        if found is None:
            if item.strip().startswith(("gres/gpu=", "gres/gpu:")):
                raise ValueError(f"{item.strip()!r} is no number of GPUs")
        elif found["type"]:
            named[found["type"].lower()] += int(found["count"])
        else:
            total = int(found["count"])
    rest = total - sum(named.values())
    return {name: n for name, n in (*named.items(), (GPU_TYPE, max(0, rest))) if n}


def _rows(
    path: Path, zone: tzinfo, dropped: Counter[str], states: Counter[str]
) -> Iterator[tuple[str, _Row]]:
    """Yield (job id, row) of each row of a job that has ended."""
    with open_text(path) as file:
        first = file.readline().rstrip("\r\n")
    # Whatever `--delimiter` said stands behind the first name.
    mark = re.match(r"\w+([^\w ])", first)
    delimiter = "|" if mark is None else mark[1]
    names = [name.strip() for name in first.rstrip("\r").split(delimiter)]
    known = {name.lower(): name for name in names}
    at = _columns(known, path)
    hint = f"A cell must not hold {delimiter!r}: leave JobName out. For example {COMMAND}"
    for row in read_rows(path, [name for name in at.values() if name], delimiter=delimiter, hint=hint):
        if row.text(at["jobid"]) == at["jobid"]:
            continue  # The header of a further month, where files were put together.
        found = _JOB_ID.fullmatch(row.text(at["jobid"]))
        if found is None:
            raise row.refuse(
                f"JobID must be such as 17, 17_3, 17+0 or 17.batch; got {row.cells[at['jobid']]!r}"
            )
        if found["step"]:
            continue
        state = _state(row, at["state"])
        if state in _RUNS or state in _WAITS:
            dropped["that still run" if state in _RUNS else "that still wait"] += 1
            continue
        gpus = _gpus(row, at)
        if len(gpus) > 1:
            dropped["of several GPU types"] += 1
            continue
        ((gpu_type, count),) = gpus.items() or {GPU_TYPE: 0}.items()
        span = _span(row, at, zone)
        seconds = _seconds(row, at, zone)
        if state and count and seconds:
            states[state] += 1
        yield (
            found["job"],
            _Row(
                line=row.line,
                part=found["part"] or "",
                submitted_at_seconds=row_seconds(row, at["submit"], zone),
                gpus=count,
                gpu_type=gpu_type,
                seconds=seconds,
                span=span,
            ),
        )


def _columns(known: dict[str, str], path: Path) -> dict[str, str]:
    """Return the header's name of each known column, empty if it is absent.

    Raises:
        InputError: when the header lacks what is needed.
    """
    wanted = ("jobid", "submit", "elapsed", "elapsedraw", "start", "end", "state", "alloctres", "reqtres")
    at = {name: known.get(name, "") for name in wanted}
    at["jobid"] = at["jobid"] or known.get("jobidraw", "")
    # Before 20.11, and only there.
    at["alloctres"] = at["alloctres"] or known.get("allocgres", "")
    lacks = [text for name, text in (("jobid", "JobID"), ("submit", "Submit")) if not at[name]]
    if not (at["alloctres"] or at["reqtres"]):
        lacks.append("AllocTRES or ReqTRES")
    if not (at["elapsed"] or at["elapsedraw"] or (at["start"] and at["end"])):
        lacks.append("Elapsed, ElapsedRaw, or Start and End")
    if lacks:
        has_none = not any(at.values())
        problem = "no header of sacct" if has_none else f"column {' and '.join(lacks)} is missing"
        extra = " (without --noheader)" if has_none else ""
        raise InputError(problem, file=path, line=1, hint=f"Write the file with {COMMAND}{extra}")
    return at


def _state(row: TableRow, column: str) -> str:
    """Return the state's first word; empty where the file has none."""
    words = row.cells[column].split(maxsplit=1) if column else []
    if not words:
        return ""
    state = words[0].rstrip("+").upper()
    matches = _states_like(state)
    if len(matches) != 1:
        raise row.refuse(f"State {row.cells[column]!r} is none of Slurm's", hint=did_you_mean(state, _STATES))
    return matches[0]


@cache
def _states_like(word: str) -> tuple[str, ...]:
    """Return the states that a word means, or begins."""
    return tuple(name for name in _STATES if name == word) or tuple(n for n in _STATES if n.startswith(word))


# A cluster has few kinds of jobs: their texts repeat a million times.
_gpus_of = cache(gpus_of)


def _gpus(row: TableRow, at: dict[str, str]) -> dict[str, int]:
    """Return the allocated GPUs by type; the requested ones of a job that was allocated nothing."""
    for column in (at["alloctres"], at["reqtres"]):
        if column and row.cells[column].strip():
            try:
                return _gpus_of(row.cells[column])
            except ValueError as error:
                raise row.refuse(f"{column}: {error}") from None
    return {}


def _span(row: TableRow, at: dict[str, str], zone: tzinfo) -> tuple[float, float] | None:
    """Return the start and end of a row, if the file has both."""
    columns = (at["start"], at["end"])
    if not all(columns) or any(row.cells[column].strip() in _NO_TIME for column in columns):
        return None
    start, end = (row_seconds(row, column, zone) for column in columns)
    return start, end


def _seconds(row: TableRow, at: dict[str, str], zone: tzinfo) -> float:
    """Return the run time; that of Start and End if the file has no elapsed time."""
    if at["elapsedraw"]:
        return row.number(at["elapsedraw"])
    if at["elapsed"]:
        try:
            return elapsed_seconds(row.text(at["elapsed"]))
        except ValueError as error:
            raise row.refuse(f"Elapsed {error}") from None
    if _span(row, at, zone) is None:
        return 0.0
    try:
        return run_seconds(row.cells[at["start"]], row.cells[at["end"]], zone)
    except ValueError as error:
        raise row.refuse(f"Start and End: {error}") from None


def _job(job: str, rows: Sequence[_Row], dropped: Counter[str], path: Path) -> RigidJob | None:
    """Return the job of its rows: attempts in time, or parts that ran at once.

    Raises:
        InputError: when two rows of one job id are neither.
    """
    if len(rows) == 1:
        (row,) = rows
        return RigidJob(
            id=job,
            submitted_at_seconds=row.submitted_at_seconds,
            gpus=row.gpus,
            gpu_seconds=row.gpus * row.seconds,
            gpu_type=row.gpu_type,
        )
    by_part: dict[str, list[_Row]] = defaultdict(list)
    for row in rows:
        earlier = by_part[row.part]
        for other in earlier:
            if not _apart(other.span, row.span):
                raise InputError(
                    f"a second row for job {job}; the first is on line {other.line}",
                    file=path,
                    line=row.line,
                    hint="Rows of one job are attempts where Start and End say that one followed the other",
                )
        earlier.append(row)
    if len({row.gpu_type for row in rows if row.gpus}) > 1:
        dropped["of several GPU types"] += 1
        return None
    ran = [row for row in rows if row.gpus] or list(rows)
    return RigidJob(
        id=job,
        submitted_at_seconds=min(row.submitted_at_seconds for row in rows),
        gpus=sum(max(row.gpus for row in part) for part in by_part.values()),
        gpu_seconds=sum(row.gpus * row.seconds for row in rows),
        gpu_type=ran[0].gpu_type,
    )


def _apart(one: tuple[float, float] | None, other: tuple[float, float] | None) -> bool:
    """Return whether two runs do not overlap and are not the same."""
    if one is None or other is None or one == other:
        return False
    return one[1] <= other[0] or other[1] <= one[0]
