"""Traces of lines ``SECONDS GPU_HOURS``: jobs of one class that scale as Amdahl says."""

from __future__ import annotations

from pathlib import Path

from boa_daemon.traces.reader import Trace, TraceJob
from boa_daemon.traces.workload import GpuSource, Options, Workload
from policies.model import JobClass, Phase
from policies.speedup import Table


def read_plain(source: Path, options: Options) -> Workload:
    """Return the workload of a file."""
    rows = sorted(tuple(map(float, line.split())) for line in source.read_text().splitlines() if line.strip())
    rows = rows[: options.limit]
    jobs = tuple(
        TraceJob(f"plain-{number}", at, "plain", scale=gpu_hours)
        for number, (at, gpu_hours) in enumerate(rows)
    )
    curve = Table(gpus=(1, 2, 4), speeds=(1.0, 1.9, 3.4))
    phase = Phase(size_gpu_hours=1.0, speedups={"a10g": curve})
    hours = max(rows[-1][0] - rows[0][0], 3600.0) / 3600.0
    one = JobClass(name="plain", arrivals_per_hour=len(rows) / hours, phases=(phase,))
    return Workload(
        source=str(source),
        trace=Trace(jobs),
        classes=(one,),
        gpu_types={"a10g": GpuSource(instance_type="g5.12xlarge")},
        dropped={},
    )
