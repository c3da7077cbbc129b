"""Alibaba's PAI trace of 2020 ("MLaaS in the Wild"): its tables of tasks, and of jobs for their submission.

The tables have no header; their columns are those of ``pai_task_table.header`` and ``pai_job_table.header``.
A task asks for `inst_num` instances of `plan_gpu` hundredths of a GPU. A job's width is the sum over its
tasks, its work the sum of their run times; parts of GPUs become shared places. Times count from a secret day.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from boa_daemon.inputs.tables import Rows, header_of, read_batches
from boa_daemon.lab.traces.rigid import GPU_TYPE, RigidJob, rigid_workload
from boa_daemon.lab.traces.source_files import pick_file
from boa_daemon.traces.workload import Options, Workload

FILES = ("pai_task_table*.csv", "*task*.csv", "*.csv")
TASK_COLUMNS = (
    *("job_name", "task_name", "inst_num", "status", "start_time", "end_time"),
    *("plan_cpu", "plan_mem", "plan_gpu", "gpu_type"),
)
JOB_COLUMNS = ("job_name", "inst_id", "user", "status", "start_time", "end_time")
_NEEDED = ("job_name", "inst_num", "status", "start_time", "end_time", "plan_gpu", "gpu_type")
_ENDED = ("Terminated", "Failed", "Interrupted")
_OPEN = ("Running", "Waiting")
_STATUSES = frozenset((*_ENDED, *_OPEN))


@dataclass(slots=True)
class _Job:
    """What the tasks of a job add up to; `has_types` where they are on several."""

    gpus: float = 0.0
    gpu_seconds: float = 0.0
    first_start: float | None = None
    gpu_type: str = ""
    has_types: bool = False
    is_open: bool = False


def import_pai(source: Path, options: Options) -> Workload:
    """Return the workload of the jobs of the table of tasks.

    Raises:
        InputError: when the table is missing or damaged, naming the line.
    """
    path = pick_file(source, FILES, options.workload)
    dropped: Counter[str] = Counter()
    jobs: dict[str, _Job] = {}
    types: dict[str, str] = {}
    for rows in _rows(path, TASK_COLUMNS, _NEEDED):
        _add(rows, jobs, types)
    table = path.with_name(path.name.replace("task", "job"))
    submitted = _submissions(table) if table != path and table.is_file() else {}
    said = [] if submitted else [f"no {table.name} beside it: a job arrives when its first task starts"]
    found = _ended(jobs, submitted, dropped)
    return rigid_workload(f"PAI {path.name}", found, options, path=path, dropped=dropped, said=said)


def _rows(path: Path, columns: tuple[str, ...], needed: tuple[str, ...]) -> Iterator[Rows]:
    """Yield the rows of a table, with the trace's columns where it has no header."""
    has_header = "job_name" in header_of(path)
    return read_batches(path, needed, names=() if has_header else columns)


def _add(rows: Rows, jobs: dict[str, _Job], types: dict[str, str]) -> None:
    """Add tasks to their jobs; `types` are the GPU types of cells."""
    names, statuses = rows.texts("job_name"), rows.texts("status")
    if not _STATUSES.issuperset(statuses):
        index = next(i for i, status in enumerate(statuses) if status not in _STATUSES)
        problem = f"status {statuses[index]!r} is none of {', '.join((*_ENDED, *_OPEN))}"
        raise rows.row(index).refuse(problem)
    starts = rows.numbers("start_time", empty=math.nan)
    ends = rows.numbers("end_time", empty=math.nan)
    hundredths = rows.numbers("plan_gpu", empty=0.0)
    with_gpus = rows.where([number > 0 for number in hundredths])
    instances = iter(with_gpus.wholes("inst_num"))
    kinds = iter(with_gpus.each("gpu_type", lambda text: text.lower() or GPU_TYPE, types))
    columns = zip(names, statuses, starts, ends, hundredths, strict=True)
    for index, (name, status, start, end, hundredth) in enumerate(columns):
        job = jobs.get(name)
        if job is None:
            job = jobs[name] = _Job()
        if start == start and (job.first_start is None or start < job.first_start):  # noqa: PLR0124 - a number
            job.first_start = start
        if not hundredth:
            continue
        gpus = hundredth / 100.0 * next(instances)
        job.is_open = job.is_open or status in _OPEN
        job.gpus += gpus
        kind = next(kinds)
        job.has_types = job.has_types or job.gpu_type not in ("", kind)
        job.gpu_type = kind
        if end < start:
            raise rows.row(index).refuse(f"end_time {end:g} is before start_time {start:g}")
        if end >= start:
            job.gpu_seconds += gpus * (end - start)


def _submissions(path: Path) -> dict[str, float]:
    """Return when each job was submitted."""
    found: dict[str, float] = {}
    for rows in _rows(path, JOB_COLUMNS, ("job_name", "start_time")):
        stated = rows.where(rows.cells("start_time"))
        found.update(zip(stated.texts("job_name"), stated.numbers("start_time"), strict=True))
    return found


def _ended(jobs: dict[str, _Job], submitted: dict[str, float], dropped: Counter[str]) -> Iterator[RigidJob]:
    """Yield the jobs that have ended, on one type of GPU."""
    for name in list(jobs):
        # Both kinds of jobs at once would take twice the memory.
        job = jobs.pop(name)
        at = submitted.get(name, job.first_start)
        if job.is_open:
            dropped["that still run or wait"] += 1
        elif job.has_types:
            dropped["of several GPU types"] += 1
        elif at is None:
            dropped["without run time"] += 1
        else:
            yield RigidJob(
                id=name,
                submitted_at_seconds=at,
                # Hundredths: the sum of several is off by less than a millionth.
                gpus=round(job.gpus, 6),
                gpu_seconds=job.gpu_seconds,
                gpu_type=job.gpu_type or GPU_TYPE,
            )
