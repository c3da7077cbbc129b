"""Shanghai AI Laboratory's Acme trace: ``trace_seren.csv`` and ``trace_kalos.csv``, March to August 2023.

All GPUs are A100. A job counts as it ran, whatever its state; jobs that still ran at the end are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from boa_daemon.lab.traces.csv_tables import pick_file, read_rows
from boa_daemon.lab.traces.instants import row_seconds, zone_of
from boa_daemon.lab.traces.rigid import RigidJob, rigid_workload
from boa_daemon.traces.workload import Options, Workload

FILES = ("trace_*.csv", "*.csv", "data/job_trace/*.csv")
GPU_TYPE = "a100"
_NEEDED = ("job_id", "gpu_num", "state", "submit_time", "duration")


def import_acme(source: Path, options: Options) -> Workload:
    """Return the workload of one cluster.

    Raises:
        InputError: when the file is missing, damaged or ambiguous.
    """
    path = pick_file(source, FILES, options.workload)
    dropped: Counter[str] = Counter()
    return rigid_workload(
        f"Acme {path.name}", _jobs(path, options, dropped), options, path=path, dropped=dropped
    )


def _jobs(path: Path, options: Options, dropped: Counter[str]) -> Iterator[RigidJob]:
    """Yield the jobs that have ended; `duration` is the run time in seconds, without waiting."""
    zone = zone_of(options.time_zone)
    for row in read_rows(path, _NEEDED):
        if row.cells["state"].strip().upper() in ("RUNNING", "PENDING"):
            dropped["that still run or wait"] += 1
            continue
        gpus = row.whole("gpu_num")
        yield RigidJob(
            id=row.text("job_id"),
            submitted_at_seconds=row_seconds(row, "submit_time", zone),
            gpus=gpus,
            gpu_seconds=row.number("duration") * gpus if row.cells["duration"].strip() else 0.0,
            gpu_type=GPU_TYPE,
        )
