"""Slurm's accounting: the output of ``sacct -P`` or ``-p`` with any columns in any order, or of ``--json``.

Needed are JobID, Submit, AllocTRES or ReqTRES, and Elapsed, ElapsedRaw, or Start and End. A row of a step
(``17.batch``, ``17.0``) is part of its job and left out; a task of an array (``17_3``) is a job. The parts of
a heterogeneous job (``17+0``, ``17+1``) are one job: its width is their sum. Rows of one JobID that follow
each other in time (``--duplicates`` after a requeue) are attempts: their GPU-time is added up.

Every job that used GPUs counts with what it used, whatever its state: the load of a cluster is also that of
jobs that failed. Jobs that run or wait are left out, since their size is not known yet.
"""

from __future__ import annotations

import math
import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from functools import cache
from itertools import compress
from pathlib import Path

from boa_daemon.errors import InputError, did_you_mean
from boa_daemon.inputs.tables import BadCell, Rows, TableRow, delimiter_in, header_of, read_batches
from boa_daemon.lab.traces.instants import clock_seconds, column_seconds, run_seconds, zone_of
from boa_daemon.lab.traces.rigid import GPU_TYPE, RigidJob, rigid_jobs, rigid_workload
from boa_daemon.lab.traces.sacct_json import COLUMNS, sacct_rows
from boa_daemon.lab.traces.source_files import pick_file
from boa_daemon.slurm.resources import read_gpus
from boa_daemon.text_files import is_json, is_parquet
from boa_daemon.time_text import duration_seconds
from boa_daemon.traces.workload import Options, Workload

FILES = ("sacct*", "*.txt", "*.psv", "*.csv", "*.json")
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
_CLOCKS_CHANGE = 3600.0
"""Seconds by which clocks without a zone are set back."""
_ELAPSED = re.compile(
    r"(?:(?:(?P<days>\d+)-)?(?P<hours>\d{1,2}):)?(?P<minutes>\d{1,2}):(?P<seconds>\d{1,2}(?:\.\d+)?)"
)
_JOB_ID = re.compile(r"(?P<job>\d+(?:_(?:\d+|\[[^\]]*\]))?)(?:\+(?P<part>\d+))?(?P<step>\.\S+)?")


@dataclass(frozen=True, slots=True)
class _Row:
    """A row about a job: one attempt of it, or of one part of it."""

    line: int
    part: str
    submitted_at_seconds: float
    gpus: int
    gpu_type: str
    seconds: float
    span: tuple[float, float]


@dataclass(slots=True)
class _Columns:
    """The rows of all jobs that have ended, column by column: a million rows in 120 MB.

    `starts` and `ends` are not numbers where a row lacks one of them.
    """

    jobs: list[str] = field(default_factory=list)
    lines: array[int] = field(default_factory=lambda: array("q"))
    parts: dict[int, str] = field(default_factory=dict)
    submitted: array[float] = field(default_factory=lambda: array("d"))
    gpus: array[int] = field(default_factory=lambda: array("q"))
    gpu_types: list[str] = field(default_factory=list)
    seconds: array[float] = field(default_factory=lambda: array("d"))
    starts: array[float] = field(default_factory=lambda: array("d"))
    ends: array[float] = field(default_factory=lambda: array("d"))

    def add(
        self,
        *,
        lines: Iterable[int],
        ids: Sequence[tuple[str, str | None, str | None]],
        submitted: Iterable[float],
        gpus: Iterable[tuple[str, int]],
        seconds: Iterable[float],
        starts: Iterable[float],
        ends: Iterable[float],
    ) -> None:
        """Add rows: `ids` are (job, part, step), `gpus` (type, number)."""
        first = len(self.jobs)
        self.parts.update({first + i: part for i, (_, part, _) in enumerate(ids) if part})
        self.jobs += [job for job, _, _ in ids]
        self.lines.extend(lines)
        self.submitted.extend(submitted)
        for gpu_type, number in gpus:
            self.gpu_types.append(gpu_type)
            self.gpus.append(number)
        self.seconds.extend(seconds)
        self.starts.extend(starts)
        self.ends.extend(ends)

    def row(self, index: int) -> _Row:
        """Return one row."""
        return _Row(
            self.lines[index],
            self.parts.get(index, ""),
            self.submitted[index],
            self.gpus[index],
            self.gpu_types[index],
            self.seconds[index],
            (self.starts[index], self.ends[index]),
        )


def import_sacct(source: Path, options: Options) -> Workload:
    """Return the workload of a cluster's jobs.

    Raises:
        InputError: when the file is missing or damaged, naming the line.
    """
    path = pick_file(source, FILES, options.workload)
    zone = zone_of(options.time_zone)
    dropped: Counter[str] = Counter()
    states: Counter[str] = Counter()
    jobs = _jobs(_read(path, zone, dropped, states), dropped, path)
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


def _read(path: Path, zone: tzinfo, dropped: Counter[str], states: Counter[str]) -> _Columns:
    """Return the rows of jobs that have ended, on one type of GPU."""
    batches, at = _batches(path)
    read = _Reader(at, zone)
    found = _Columns()
    for batch in batches:
        ids = read.ids(batch)
        is_job = [step is None for _, _, step in ids]
        rows, ids = batch.where(is_job), list(compress(ids, is_job))
        kept = read.states(rows)
        for said, some in (("that still run", _RUNS), ("that still wait", _WAITS)):
            is_over = [state not in some for state in kept]
            dropped[said] += is_over.count(False)
            rows, ids, kept = rows.where(is_over), list(compress(ids, is_over)), list(compress(kept, is_over))
        gpus = read.gpus(rows)
        is_of_one = [one is not None for one in gpus]
        dropped["of several GPU types, or of parts of GPUs (shard, mps)"] += is_of_one.count(False)
        rows, ids, kept = (
            rows.where(is_of_one),
            list(compress(ids, is_of_one)),
            list(compress(kept, is_of_one)),
        )
        starts, ends = read.spans(rows)
        seconds = read.seconds(rows, starts, ends)
        found.add(
            lines=rows.lines,
            ids=ids,
            submitted=column_seconds(rows, at["submit"], zone),
            gpus=[one for one in gpus if one is not None],
            seconds=seconds,
            starts=starts,
            ends=ends,
        )
        ran = found.gpus[-len(rows) :] if len(rows) else ()
        states.update(state for state, *used in zip(kept, ran, seconds, strict=True) if state and all(used))
    return found


def _batches(path: Path) -> tuple[Iterator[Rows], dict[str, str]]:
    """Return the rows of a file, and the names of its columns."""
    if not is_parquet(path) and is_json(path):
        return sacct_rows(path, COMMAND), _columns({name.lower(): name for name in COLUMNS}, path)
    names, delimiter = _header(path)
    at = _columns({name.lower(): name for name in names}, path)
    hint = f"A cell must not hold {delimiter!r}: leave JobName out. For example {COMMAND}"
    needed = [name for name in at.values() if name]
    return read_batches(path, needed, delimiter=delimiter, hint=hint), at


def _header(path: Path) -> tuple[list[str], str]:
    """Return the names of the columns, and the sign between them."""
    names, delimiter = header_of(path), delimiter_in(path)
    # Whatever `--delimiter` said stands behind the first name.
    mark = re.match(r"\w+([^\w ])", names[0]) if len(names) == 1 else None
    return (names, delimiter) if mark is None else (names[0].split(mark[1]), mark[1])


class _Reader:
    """What the columns of a batch mean; texts that repeat are read once."""

    def __init__(self, at: dict[str, str], zone: tzinfo) -> None:
        self._at, self._zone = at, zone
        self._states: dict[str, str] = {}
        self._gpus: dict[str, tuple[bool, tuple[str, int] | None]] = {}

    def ids(self, rows: Rows) -> list[tuple[str, str | None, str | None]]:
        """Return (job, part, step) of each row."""
        found: list[tuple[str, str | None, str | None]] = []
        for index, text in enumerate(rows.texts(self._at["jobid"])):
            if text.isdecimal():
                found.append((text, None, None))
                continue
            if text == self._at["jobid"]:
                # The header of a further month, where files were put together.
                found.append((text, None, "header"))
                continue
            one = _JOB_ID.fullmatch(text)
            if one is None:
                raise rows.row(index).refuse(
                    f"JobID must be such as 17, 17_3, 17+0 or 17.batch; got {text!r}"
                )
            found.append((one["job"], one["part"], one["step"]))
        return found

    def states(self, rows: Rows) -> list[str]:
        """Return the state of each row; empty where the file has none."""
        column = self._at["state"]
        if not column:
            return [""] * len(rows)
        return rows.each(column, _state, self._states)

    def gpus(self, rows: Rows) -> list[tuple[str, int] | None]:
        """Return (type, number) of the GPUs of each row; None for several types, and for parts of GPUs.

        They are those that were allocated, or else those that were asked for.
        """
        first, *others = [self._at[name] for name in ("alloctres", "reqtres") if self._at[name]]
        found = rows.each(first, _gpus, self._gpus)
        for column in others:
            is_asked = [not cell for cell in rows.cells(first)]
            if any(is_asked):
                other = iter(rows.where(is_asked).each(column, _gpus, self._gpus))
                found = [next(other) if asked else one for one, asked in zip(found, is_asked, strict=True)]
        return [
            self._on_all_nodes(rows.row(index), one) if one and is_per_node else one
            for index, (is_per_node, one) in enumerate(found)
        ]

    def _on_all_nodes(self, row: TableRow, one: tuple[str, int]) -> tuple[str, int]:
        """Return (type, number) of the GPUs of a row that states them for each node."""
        if not self._at["nnodes"]:
            hint = f"Add the column NNodes, or write the file with {COMMAND}"
            raise row.refuse("its GPUs are counted per node, and no column says how many nodes", hint)
        return one[0], one[1] * row.whole(self._at["nnodes"])

    def spans(self, rows: Rows) -> tuple[list[float], list[float]]:
        """Return the start and the end of each row; not numbers where the file lacks one of them."""
        columns = (self._at["start"], self._at["end"])
        if not all(columns):
            return [math.nan] * len(rows), [math.nan] * len(rows)
        both = zip(*(rows.cells(column) for column in columns), strict=True)
        has_both = [one not in _NO_TIME and other not in _NO_TIME for one, other in both]
        timed = rows.where(has_both)
        starts, ends = (iter(column_seconds(timed, column, self._zone)) for column in columns)
        return (
            [next(starts) if has else math.nan for has in has_both],
            [next(ends) if has else math.nan for has in has_both],
        )

    def seconds(self, rows: Rows, starts: Sequence[float], ends: Sequence[float]) -> list[float]:
        """Return the run time of each row; that of Start and End if the file has no elapsed time."""
        at = self._at
        if at["elapsedraw"] or at["elapsed"]:
            seconds = (
                rows.numbers(at["elapsedraw"])
                if at["elapsedraw"]
                else clock_seconds(rows.cells(at["elapsed"])) or rows.each(at["elapsed"], _elapsed, {})
            )
            for index, (start, end, ran) in enumerate(zip(starts, ends, seconds, strict=True)):
                # The clocks may have been set back meanwhile; where a time is missing this is false.
                if ran and end < start and end - start < ran - _CLOCKS_CHANGE - 1.0:
                    said = f"it ends {start - end:g} s before it starts, and Elapsed is {ran:g} s"
                    raise rows.row(index).refuse(said)
            return seconds
        return [
            0.0 if math.isnan(start) or math.isnan(end) else _between(rows.row(index), at, self._zone)
            for index, (start, end) in enumerate(zip(starts, ends, strict=True))
        ]


def _columns(known: dict[str, str], path: Path) -> dict[str, str]:
    """Return the header's name of each known column, empty if it is absent.

    Raises:
        InputError: when the header lacks what is needed.
    """
    wanted = (
        "jobid",
        "submit",
        "elapsed",
        "elapsedraw",
        "start",
        "end",
        "state",
        "alloctres",
        "reqtres",
        "nnodes",
    )
    at = {name: known.get(name, "") for name in wanted}
    at["jobid"] = at["jobid"] or known.get("jobidraw", "")
    # Before 20.11, and only there.
    at["alloctres"] = at["alloctres"] or known.get("allocgres", "")
    at["reqtres"] = at["reqtres"] or known.get("reqgres", "")
    at["nnodes"] = at["nnodes"] or known.get("allocnodes", "") or known.get("reqnodes", "")
    lacks = [text for name, text in (("jobid", "JobID"), ("submit", "Submit")) if not at[name]]
    if not (at["alloctres"] or at["reqtres"]):
        lacks.append("AllocTRES or ReqTRES")
    if not (at["elapsed"] or at["elapsedraw"] or (at["start"] and at["end"])):
        lacks.append("Elapsed, ElapsedRaw, or Start and End")
    if lacks:
        aligned = [name.lower() for one in known for name in one.split()]
        if len(known) == 1 and {"jobid", "jobidraw"} & set(aligned) and len(aligned) > 1:
            problem = "columns are aligned with spaces, and sacct cuts cells off in such a table"
            raise InputError(problem, file=path, line=1, hint=f"Write the file with {COMMAND}")
        has_none = not any(at.values())
        problem = "no header of sacct" if has_none else f"column {' and '.join(lacks)} is missing"
        extra = " (without --noheader)" if has_none else ""
        raise InputError(problem, file=path, line=1, hint=f"Write the file with {COMMAND}{extra}")
    return at


def _state(text: str) -> str:
    """Return the state of a cell by its first word; empty where it has none."""
    words = text.split(maxsplit=1)
    if not words:
        return ""
    state = words[0].rstrip("+").upper()
    matches = _states_like(state)
    if len(matches) != 1:
        raise BadCell(f"State {text!r} is none of Slurm's", did_you_mean(state, _STATES))
    return matches[0]


@cache
def _states_like(word: str) -> tuple[str, ...]:
    """Return the states that a word means, or begins."""
    return tuple(name for name in _STATES if name == word) or tuple(n for n in _STATES if n.startswith(word))


def _gpus(text: str) -> tuple[bool, tuple[str, int] | None]:
    """Return whether a cell counts GPUs per node, and (type, number) of one type; None for others.

    Raises:
        ValueError: for a cell that was cut off, or that is no list of resources.
    """
    found = read_gpus(text)
    if text.rstrip().endswith("+"):
        raise BadCell(f"{text.strip()!r} was cut off by sacct", "Write it with -P, or -o AllocTRES%200")
    # A word without an amount is none of sacct's.
    for item in (*found.unread, *(one for one in found.others if not re.search("[:=]", one))):
        said = "is no number of GPUs" if "gpu" in item.lower() else "is not NAME=NUMBER"
        raise BadCell(f"{item!r} {said}", f"Write the file with {COMMAND}")
    if len(found.by_type) > 1 or (found.part_units and not found.by_type):
        return found.is_per_node, None
    name, number = next(iter(found.by_type.items()), (GPU_TYPE, 0))
    return found.is_per_node, (name or GPU_TYPE, number)


def _elapsed(text: str) -> float:
    """Return the run time in a cell: in Slurm's words, or with units."""
    if not text:
        raise BadCell("Elapsed is empty")
    try:
        return elapsed_seconds(text)
    except ValueError as error:
        if re.fullmatch(r"[\d.,]*", text) or re.fullmatch(r"[\d:.-]*", text):
            # A clock that is none of Slurm's, or a number without its unit.
            raise BadCell(f"Elapsed {error}") from None
        try:
            return duration_seconds(text)
        except ValueError:
            raise BadCell(f"Elapsed {error}") from None


def _between(row: TableRow, at: Mapping[str, str], zone: tzinfo) -> float:
    """Return the run time between the start and the end of a row."""
    try:
        return run_seconds(row.cells[at["start"]], row.cells[at["end"]], zone)
    except ValueError as error:
        raise row.refuse(f"Start and End: {error}") from None


def _jobs(rows: _Columns, dropped: Counter[str], path: Path) -> Iterator[RigidJob]:
    """Yield the jobs in the order of their first rows."""
    found = rigid_jobs(rows.jobs, rows.submitted, rows.gpus, rows.seconds, gpu_type=rows.gpu_types)
    if len(set(rows.jobs)) == len(rows.jobs):
        yield from found
        return
    numbers = Counter(rows.jobs)
    several: dict[str, list[_Row]] = defaultdict(list)
    for index, job in enumerate(rows.jobs):
        if numbers[job] > 1:
            several[job].append(rows.row(index))
    for name, single in zip(rows.jobs, found, strict=True):
        if numbers[name] == 1:
            yield single
        elif name in several and (one := _job(name, several.pop(name), dropped, path)):
            yield one


def _job(job: str, rows: Sequence[_Row], dropped: Counter[str], path: Path) -> RigidJob | None:
    """Return the job of its several rows: attempts in time, or parts that ran at once.

    Raises:
        InputError: when two rows of one job id are neither.
    """
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


def _apart(one: tuple[float, float], other: tuple[float, float]) -> bool:
    """Return whether two runs do not overlap and are not the same; false where a time is missing."""
    return one != other and (one[1] <= other[0] or other[1] <= one[0])
