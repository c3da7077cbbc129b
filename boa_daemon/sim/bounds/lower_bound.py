"""A lower bound for any policy: the optimum over the jobs of a trace, for a given sum of money.

Any policy does some share of each phase at each width, so its mean JCT is at least the optimum of the linear
program over those shares (`policies.optimum.boa`, integer-mixed), with every job of the trace as one arrival
and the total money as the budget. Queueing, booting and idle nodes only add to it.

A start-up longer than a rescale does not force a job to hold the width of its first phase meanwhile: the job
may start narrow and change. The time beyond a rescale is therefore counted separately, at one GPU of the
cheapest type.

Jobs of one class and scale form one group. If a trace has more groups than the solver should see, scales are
rounded down to a geometric grid: a smaller job is faster and cheaper, so the bound stays below.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from boa_daemon.traces.reader import Trace
from policies.errors import InfeasibleBudget
from policies.model import JobClass, Phase, Problem
from policies.optimum.frontier import MixedFrontier

MOST_GROUPS = 64
"""Scales per class beyond which they are rounded down to a grid."""
SLACK = 1e-9
"""Relative slack in the money for rounding errors, so that the bound stays below the truth."""


def lower_bound_hours(trace: Trace, problem: Problem, money: float) -> float:
    """Return the least mean JCT, hours, that any policy can reach on the jobs of a trace for `money` in all.

    Money is dollars, or GPU-hours if the problem counts GPUs. Infinite when the money cannot run the jobs.
    """
    return lower_bounds_hours(trace, problem, (money,))[0]


def lower_bounds_hours(trace: Trace, problem: Problem, moneys: Iterable[float]) -> list[float]:
    """Return the bounds for several sums of money, with a single sweep over the jobs."""
    apart_hours, apart_money = _start_ups_apart(trace, problem)
    frontier = MixedFrontier.of(groups_of(trace, problem))

    def bound(money: float) -> float:
        left = money * (1.0 + SLACK) - apart_money
        try:
            mean = frontier.least_mean_jct_at(left) if left > 0.0 else math.inf
        except InfeasibleBudget:
            return math.inf
        return mean + apart_hours / len(trace.jobs)

    return [bound(money) for money in moneys]


def _start_ups_apart(trace: Trace, problem: Problem) -> tuple[float, float]:
    """Return the hours and money of the separately counted start-ups, summed over the jobs."""
    excess = {c.name: max(0.0, c.startup_hours - c.rescale_hours) for c in problem.classes}
    hours = math.fsum(excess[job.class_name] for job in trace.jobs)
    return hours, hours * min(problem.price_of(gpu.name) for gpu in problem.gpu_types)


def groups_of(trace: Trace, problem: Problem) -> Problem:
    """Return the problem whose classes are the groups of equal jobs, each with its count as arrivals."""
    by_name = {job_class.name: job_class for job_class in problem.classes}
    scales: dict[str, Counter[float]] = {}
    for job in trace.jobs:
        scales.setdefault(job.class_name, Counter())[job.scale] += 1
    groups = tuple(
        _scaled(by_name[name], scale, count)
        for name, counts in sorted(scales.items())
        for scale, count in sorted(_on_grid(counts).items())
    )
    return replace(problem, classes=groups)


def _on_grid(counts: Counter[float]) -> Counter[float]:
    """Return the counts with scales rounded down to a geometric grid, if there are too many."""
    grid = grid_of(counts)
    merged: Counter[float] = Counter()
    for scale, count in counts.items():
        merged[grid[scale]] += count
    return merged


def grid_of(scales: Collection[float]) -> Mapping[float, float]:
    """Return the value that each of some distinct scales is rounded down to; itself if there are few."""
    if len(scales) <= MOST_GROUPS:
        return {scale: scale for scale in scales}
    low = min(scales)
    step = math.log(max(scales) / low) / MOST_GROUPS
    return {
        scale: min(scale, low * math.exp(math.floor(math.log(scale / low) / step) * step)) for scale in scales
    }


def _scaled(job_class: JobClass, scale: float, count: int) -> JobClass:
    """Return a class of `count` arrivals whose phases are `scale` times as large."""
    phases = tuple(
        Phase(size_gpu_hours=phase.size_gpu_hours * scale, speedups=phase.speedups)
        for phase in job_class.phases
    )
    return replace(
        job_class,
        startup_hours=min(job_class.startup_hours, job_class.rescale_hours),
        name=f"{job_class.name} x {scale!r}",
        phases=phases,
        arrivals_per_hour=float(count),
        weight=1.0,
    )
