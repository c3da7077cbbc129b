"""Alibaba's openb trace of 2023: ``openb_pod_list_*.csv``, pods of a cluster that shares GPUs.

A pod is a job: `num_gpu` GPUs, of which a single one may be `gpu_milli` thousandths. It runs from
`scheduled_time` to `deletion_time`, seconds from the start of the trace; parts of GPUs become shared places.
Pods that are deleted at the last instant of the file still ran when the trace ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from boa_daemon.lab.traces.csv_tables import TableRow, pick_file, read_rows
from boa_daemon.lab.traces.rigid import GPU_TYPE, RigidJob, rigid_workload
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
    found = list(_pods(path, dropped))
    last = max((end for _, end in found), default=0.0)
    jobs = [job for job, end in found if end < last or job.gpus == 0]
    dropped["that still ran at the end of the trace"] = len(found) - len(jobs)
    return rigid_workload(f"openb {path.name}", jobs, options, path=path, dropped=dropped)


def _pods(path: Path, dropped: Counter[str]) -> Iterator[tuple[RigidJob, float]]:
    """Yield (job, instant of its end) of each pod that was scheduled."""
    for row in read_rows(path, _NEEDED):
        created = row.number("creation_time")
        if not row.cells["scheduled_time"].strip() or row.text("pod_phase") == "Pending":
            dropped["that were never scheduled"] += 1
            continue
        start, end = row.number("scheduled_time"), row.number("deletion_time")
        if end < start:
            raise row.refuse(f"deletion_time {end:g} is before scheduled_time {start:g}")
        gpus = _gpus(row)
        kind = row.cells["gpu_spec"].strip().lower()
        yield (
            RigidJob(
                id=row.text("name"),
                submitted_at_seconds=created,
                gpus=gpus,
                gpu_seconds=gpus * (end - start),
                gpu_type=kind if kind and "|" not in kind and kind != "nan" else GPU_TYPE,
            ),
            end,
        )


def _gpus(row: TableRow) -> float:
    """Return the GPUs of a pod: a whole number, or thousandths of one."""
    number, thousandths = row.whole("num_gpu"), row.whole("gpu_milli")
    if thousandths > 1000:
        raise row.refuse(f"gpu_milli must be 0 to 1000; got {thousandths}")
    return thousandths / 1000.0 if number == 1 else float(number)
