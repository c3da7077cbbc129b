"""Shanghai AI Laboratory's Acme trace: ``trace_seren.csv`` and ``trace_kalos.csv``, March to August 2023.

All GPUs are A100. A job counts as it ran, whatever its state; jobs that still ran at the end are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from boa_daemon.inputs.tables import read_batches
from boa_daemon.lab.traces.instants import column_seconds, zone_of
from boa_daemon.lab.traces.rigid import RigidJob, rigid_jobs, rigid_workload
from boa_daemon.lab.traces.source_files import pick_file
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
        f"Acme {path.name}",
        _jobs(path, options, dropped),
        options,
        path=path,
        dropped=dropped,
        id_column="job_id",
    )


def _jobs(path: Path, options: Options, dropped: Counter[str]) -> Iterator[RigidJob]:
    """Yield the jobs that have ended; `duration` is the run time in seconds, without waiting."""
    zone = zone_of(options.time_zone)
    for rows in read_batches(path, _NEEDED):
        ended = rows.where([state.upper() not in ("RUNNING", "PENDING") for state in rows.cells("state")])
        dropped["that still run or wait"] += len(rows) - len(ended)
        yield from rigid_jobs(
            ended.texts("job_id"),
            column_seconds(ended, "submit_time", zone),
            ended.wholes("gpu_num"),
            ended.durations("duration", empty=0.0),
            gpu_type=GPU_TYPE,
        )
