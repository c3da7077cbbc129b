"""Alibaba's PAI trace of 2020 ("MLaaS in the Wild"): its tables of tasks, and of jobs for their submission.

The tables have no header; their columns are those of ``pai_task_table.header`` and ``pai_job_table.header``.
A task asks for `inst_num` instances of `plan_gpu` hundredths of a GPU. A job's width is the sum over its
tasks, its work the sum of their run times; parts of GPUs become shared places. Times count from a secret day.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from boa_daemon.lab.traces.csv_tables import TableRow, header_of, pick_file, read_rows
from boa_daemon.lab.traces.rigid import GPU_TYPE, RigidJob, rigid_workload
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


@dataclass(slots=True)
class _Job:
    """What the tasks of a job add up to."""

    gpus: float = 0.0
    gpu_seconds: float = 0.0
    first_start: float | None = None
    types: set[str] = field(default_factory=set)
    is_open: bool = False


def import_pai(source: Path, options: Options) -> Workload:
    """Return the workload of the jobs of the table of tasks.

    Raises:
        InputError: when the table is missing or damaged, naming the line.
    """
    path = pick_file(source, FILES, options.workload)
    dropped: Counter[str] = Counter()
    jobs: dict[str, _Job] = {}
    for row in _rows(path, TASK_COLUMNS, _NEEDED):
        _add(row, jobs.setdefault(row.text("job_name"), _Job()))
    table = path.with_name(path.name.replace("task", "job"))
    submitted = _submissions(table) if table != path and table.is_file() else {}
    said = [] if submitted else [f"no {table.name} beside it: a job arrives when its first task starts"]
    found = _ended(jobs, submitted, dropped)
    return rigid_workload(f"PAI {path.name}", found, options, path=path, dropped=dropped, said=said)


def _rows(path: Path, columns: tuple[str, ...], needed: tuple[str, ...]) -> Iterator[TableRow]:
    """Yield the rows of a table, with the trace's columns where it has no header."""
    has_header = "job_name" in (name.strip() for name in header_of(path))
    return read_rows(path, needed, names=() if has_header else columns)


def _add(row: TableRow, job: _Job) -> None:
    """Add a task to its job."""
    status = row.text("status")
    if status not in (*_ENDED, *_OPEN):
        raise row.refuse(f"status {status!r} is none of {', '.join((*_ENDED, *_OPEN))}")
    start = row.number("start_time") if row.cells["start_time"].strip() else None
    end = row.number("end_time") if row.cells["end_time"].strip() else None
    if start is not None:
        job.first_start = start if job.first_start is None else min(job.first_start, start)
    if not row.cells["plan_gpu"].strip() or row.number("plan_gpu") == 0:
        return
    job.is_open = job.is_open or status in _OPEN
    gpus = row.number("plan_gpu") / 100.0 * row.whole("inst_num")
    job.gpus += gpus
    job.types.add(row.cells["gpu_type"].strip().lower() or GPU_TYPE)
    if start is not None and end is not None:
        if end < start:
            raise row.refuse(f"end_time {end:g} is before start_time {start:g}")
        job.gpu_seconds += gpus * (end - start)


def _submissions(path: Path) -> dict[str, float]:
    """Return when each job was submitted."""
    return {
        row.text("job_name"): row.number("start_time")
        for row in _rows(path, JOB_COLUMNS, ("job_name", "start_time"))
        if row.cells["start_time"].strip()
    }


def _ended(jobs: dict[str, _Job], submitted: dict[str, float], dropped: Counter[str]) -> Iterator[RigidJob]:
    """Yield the jobs that have ended, on one type of GPU."""
    for name, job in jobs.items():
        at = submitted.get(name, job.first_start)
        if job.is_open:
            dropped["that still run or wait"] += 1
        elif len(job.types) > 1:
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
                gpu_type=next(iter(job.types), GPU_TYPE),
            )
