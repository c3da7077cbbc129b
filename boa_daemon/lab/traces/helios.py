"""SenseTime's Helios trace: one CSV per cluster, April to September 2020. Jobs without GPUs are left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from boa_daemon.inputs.tables import read_batches
from boa_daemon.lab.traces.instants import column_seconds
from boa_daemon.lab.traces.rigid import RigidJob, rigid_jobs, rigid_workload
from boa_daemon.lab.traces.source_files import pick_file
from boa_daemon.traces.workload import Options, Workload

FILES = ("cluster_log*.csv", "*.csv", "*/cluster_log.csv", "*/*/cluster_log.csv")


def import_helios(source: Path, options: Options) -> Workload:
    """Return the workload of one cluster.

    Raises:
        InputError: when the file is missing, damaged or ambiguous.
    """
    path = pick_file(source, FILES, options.workload)
    return rigid_workload(
        f"Helios {path.name}", _jobs(path), options, path=path, dropped=Counter(), id_column="job_id"
    )


def _jobs(path: Path) -> Iterator[RigidJob]:
    """Yield the jobs; `duration` is the run time in seconds, without waiting."""
    for rows in read_batches(path, ("job_id", "gpu_num", "submit_time", "duration")):
        yield from rigid_jobs(
            rows.texts("job_id"),
            column_seconds(rows, "submit_time"),
            rows.wholes("gpu_num"),
            rows.durations("duration"),
        )
