"""Alibaba's openb trace of 2023: ``openb_pod_list_*.csv``, pods of a cluster that shares GPUs.

A pod is a job: `num_gpu` GPUs, of which a single one may be `gpu_milli` thousandths. It runs from
`scheduled_time` to `deletion_time`, seconds from the start of the trace; parts of GPUs become shared places.
Pods that are deleted at the last instant of the file still ran when the trace ended.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator
from itertools import compress
from pathlib import Path

from boa_daemon.inputs.tables import Rows, read_batches
from boa_daemon.lab.traces.rigid import GPU_TYPE, RigidJob, rigid_jobs, rigid_workload
from boa_daemon.lab.traces.source_files import pick_file
from boa_daemon.traces.workload import Options, Workload

FILES = ("openb_pod_list_default.csv", "openb_pod_list*.csv", "csv/openb_pod_list_default.csv", "*.csv")
_NEEDED = (
    *("name", "num_gpu", "gpu_milli", "gpu_spec", "pod_phase"),
    *("creation_time", "deletion_time", "scheduled_time"),
)


def import_openb(source: Path, options: Options) -> Workload:
    """Return the workload of a list of pods.

    Raises:
        InputError: when the file is missing or damaged, naming the line.
    """
    path = pick_file(source, FILES, options.workload)
    dropped: Counter[str] = Counter()
    ends = array("d")
    found = list(_pods(path, dropped, ends))
    last = max(ends, default=0.0)
    number = len(found)
    found = [job for job, end in zip(found, ends, strict=True) if end < last or job.gpus == 0]
    dropped["that still ran at the end of the trace"] = number - len(found)
    # The only list of a million jobs is handed on, to be freed there.
    jobs = iter(found)
    del found
    return rigid_workload(f"openb {path.name}", jobs, options, path=path, dropped=dropped, id_column="name")


def _pods(path: Path, dropped: Counter[str], job_ends: array[float]) -> Iterator[RigidJob]:
    """Yield each pod that was scheduled, and add the instant of its end to `job_ends`."""
    kinds: dict[str, str] = {}
    for rows in read_batches(path, _NEEDED):
        created = rows.numbers("creation_time")
        phases, at = rows.texts("pod_phase"), rows.cells("scheduled_time")
        was_scheduled = [bool(start) and phase != "Pending" for phase, start in zip(phases, at, strict=True)]
        scheduled = rows.where(was_scheduled)
        dropped["that were never scheduled"] += len(rows) - len(scheduled)
        starts, ends = scheduled.numbers("scheduled_time"), scheduled.numbers("deletion_time")
        gpus = _gpus(scheduled)
        for index, (start, end) in enumerate(zip(starts, ends, strict=True)):
            if end < start:
                problem = f"deletion_time {end:g} is before scheduled_time {start:g}"
                raise scheduled.row(index).refuse(problem)
        job_ends.extend(ends)
        yield from rigid_jobs(
            scheduled.texts("name"),
            compress(created, was_scheduled),
            gpus,
            list(map(float.__sub__, ends, starts)),
            gpu_type=scheduled.each("gpu_spec", _kind, kinds),
        )


def _kind(text: str) -> str:
    """Return the type of the GPUs of a pod."""
    kind = text.lower()
    return kind if kind and "|" not in kind and kind != "nan" else GPU_TYPE


def _gpus(rows: Rows) -> list[float]:
    """Return the GPUs of each pod: a whole number, or thousandths of one."""
    parts = [number / 1000.0 for number in range(1001)]
    found = []
    numbers, thousandths = rows.wholes("num_gpu"), rows.wholes("gpu_milli")
    for index, (number, part) in enumerate(zip(numbers, thousandths, strict=True)):
        if part > 1000:
            raise rows.row(index).refuse(f"gpu_milli must be 0 to 1000; got {part}")
        found.append(parts[part] if number == 1 else float(number))
    return found
