"""A workload as arrays for the bound with boots: groups of equal jobs, widths, time cells, anchors."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from boa_daemon.sim.bounds.lower_bound import grid_of
from boa_daemon.sim.bounds.stint_paths import JobTimes
from boa_daemon.traces.reader import Trace
from boa_daemon.units import SECONDS_PER_HOUR
from policies.model import JobClass, Problem
from policies.speedup import Floats, Ints

CELLS = (50, 100, 200)
"""The number of equal cells from the first to the last arrival, coarse to fine; ever longer ones follow."""
LEAST_CELL_HOURS = 30.0 / SECONDS_PER_HOUR
LONGER = 1.1
"""Factor between the lengths of the cells after the last arrival."""
MOST_CHOICES = 96
"""With more widths per type, neighbours are merged: the GPUs of the narrowest, the speed of the fastest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualJobs:
    """Equal jobs: their times, when each arrives and may start, that cell, and the cells they anchor.

    Shapes: arrived_at, starts_at and cell (jobs,).
    """

    times: JobTimes
    arrived_at: Floats
    starts_at: Floats
    cell: Ints
    anchors: Ints


def wait_hours(job_class: JobClass) -> float:
    """Return the hours by which a start-up exceeds a rescale: they come before all work."""
    return max(0.0, job_class.startup_hours - job_class.rescale_hours)


def rounded_scales(trace: Trace) -> list[tuple[str, float]]:
    """Return the class and scale of each job; scales are rounded down if a class has too many."""
    scales: dict[str, set[float]] = defaultdict(set)
    for job in trace.jobs:
        scales[job.class_name].add(job.scale)
    grids = {name: grid_of(found) for name, found in scales.items()}
    return [(job.class_name, grids[job.class_name][job.scale]) for job in trace.jobs]


def choices_of(problem: Problem, names: Sequence[str]) -> list[tuple[int, int]]:
    """Return every pair (number of a GPU type, width) that some phase may use, merged into blocks."""
    widths = {
        (number, width)
        for job_class in problem.classes
        for phase in job_class.phases
        for number, name in enumerate(names)
        if name in phase.speedups
        for width in phase.speedups[name].whole_widths().tolist()
    }
    by_type = [
        sorted(width for number, width in widths if number == of_type) for of_type in range(len(names))
    ]
    return [(number, width) for number, found in enumerate(by_type) for width in _thinned(found)]


def _thinned(widths: list[int]) -> list[int]:
    """Return the least width of each block."""
    if len(widths) <= MOST_CHOICES:
        return widths
    picked = np.unique(np.geomspace(1.0, len(widths), MOST_CHOICES).astype(int)) - 1
    return [widths[number] for number in picked]


def times_of(
    job_class: JobClass,
    scale: float,
    names: Sequence[str],
    choices: Sequence[tuple[int, int]],
) -> JobTimes:
    """Return the hours of each phase at each choice: those of the fastest width in the choice's block."""
    hours = np.full((len(job_class.phases), len(choices)), np.inf)
    firsts = [[width for number, width in choices if number == of_type] for of_type in range(len(names))]
    offsets = np.cumsum([0, *(len(found) for found in firsts)])
    for row, phase in zip(hours, job_class.phases, strict=True):
        for number, name in enumerate(names):
            if name not in phase.speedups:
                continue
            widths = phase.speedups[name].whole_widths()
            block = offsets[number] + np.searchsorted(firsts[number], widths, side="right") - 1
            np.minimum.at(row, block, phase.size_gpu_hours * scale / phase.speedups[name].speed_at(widths))
    overhead = min(job_class.startup_hours, job_class.rescale_hours)
    return JobTimes(hours=hours, overhead_hours=overhead)


def edges_of(last_arrival: float, until: float, cells: int) -> Floats:
    """Return the edges of the cells: equal ones while jobs arrive, then ever longer ones."""
    length = max(last_arrival / cells, LEAST_CELL_HOURS)
    edges = (length * np.arange(math.ceil(last_arrival / length) + 2)).tolist()
    while edges[-1] < until:
        length *= LONGER
        edges.append(edges[-1] + length)
    return np.array(edges)


def anchors_of(edges: Floats, arrived: Floats, hours: Floats) -> Ints:
    """Return the anchor of each cell: of the jobs present at flat prices, the one that stays longest."""
    ends = arrived + hours
    found = np.full(len(edges) - 1, -1)
    for cell, begin in enumerate(edges[:-1]):
        present = np.flatnonzero((arrived <= begin) & (ends > begin))
        if len(present):
            found[cell] = present[ends[present].argmax()]
    return found
