"""Arrival rates and mean sizes of classes, from a trace."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from boa_daemon.traces.reader import Trace
from boa_daemon.units import SECONDS_PER_HOUR
from policies.model import JobClass, Phase
from policies.online.rhythm import SeenLoad


def with_rates(
    classes: Sequence[JobClass], trace: Trace, *, missing: Collection[str] | None = None
) -> tuple[JobClass, ...]:
    """Return the classes with rates from the trace, in jobs per hour: all classes, or those in `missing`.

    A class that needs a rate and has no job in the trace is left out. A trace whose jobs all arrive at one
    instant counts as an hour.
    """
    scales = _scales(trace)
    hours = trace.window_hours or 1.0
    rated = []
    for job_class in classes:
        if missing is not None and job_class.name not in missing:
            rated.append(job_class)
        elif job_class.name in scales:
            rated.append(replace(job_class, arrivals_per_hour=len(scales[job_class.name]) / hours))
    return tuple(rated)


def at_mean_scale(
    classes: Sequence[JobClass], trace: Trace, *, only: Collection[str] | None = None
) -> tuple[JobClass, ...]:
    """Return the classes with the mean size of their jobs in the trace: all classes, or those in `only`."""
    scales = _scales(trace)
    return tuple(
        _scaled(job_class, scales.get(job_class.name, [1.0]))
        if only is None or job_class.name in only
        else job_class
        for job_class in classes
    )


def _scales(trace: Trace) -> dict[str, list[float]]:
    """Return the scales of each class's jobs."""
    scales: dict[str, list[float]] = {}
    for job in trace.jobs:
        scales.setdefault(job.class_name, []).append(job.scale)
    return scales


def _scaled(job_class: JobClass, scales: Sequence[float]) -> JobClass:
    """Return the class with its sizes multiplied by the mean scale."""
    mean = sum(scales) / len(scales)
    if mean == 1.0:
        return job_class
    phases = tuple(
        Phase(size_gpu_hours=phase.size_gpu_hours * mean, speedups=phase.speedups)
        for phase in job_class.phases
    )
    return replace(job_class, phases=phases)


def work_of(trace: Trace, classes: Sequence[JobClass]) -> SeenLoad | None:
    """Return the work that arrives in each hour of a trace, in GPU-hours; None for a trace of one instant."""
    if trace.window_hours <= 0.0:
        return None
    sizes = {c.name: c.size_gpu_hours for c in classes}
    first = trace.jobs[0].arrived_at_seconds
    at = np.array([job.arrived_at_seconds - first for job in trace.jobs]) / SECONDS_PER_HOUR
    work = np.array([job.scale * sizes[job.class_name] for job in trace.jobs])
    return SeenLoad.of(at.astype(np.int64), work)
