"""Loads that a budget has to survive: steady load, daily rhythms, bursts, outages, drift, wrong beliefs.

A scenario is a trace, the hours in which the cloud has no stock, and the error of the policy's beliefs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from boa_daemon.sim.wiring import SimulationSettings
from boa_daemon.traces.reader import Trace, TraceJob
from boa_daemon.units import SECONDS_PER_HOUR
from policies.model import Budget, GpuType, InstanceType, JobClass, Phase, Problem
from policies.speedup import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A load over time.

    `load` has (from hour, factor) pairs; `bursts` has (hour, jobs) pairs that arrive at once. The policy
    believes the true rates and sizes times `rate_belief` and `size_belief`. For `days_before` it saw the same
    load.
    """

    name: str
    load: tuple[tuple[float, float], ...] = ((0.0, 1.0),)
    bursts: tuple[tuple[float, int], ...] = ()
    outage_hours: tuple[tuple[float, float], ...] = ()
    rate_belief: float = 1.0
    size_belief: float = 1.0
    days_before: int = 0

    @property
    def outages(self) -> tuple[tuple[float, float], ...]:
        """When the cloud has no stock, in seconds."""
        return tuple((b * SECONDS_PER_HOUR, e * SECONDS_PER_HOUR) for b, e in self.outage_hours)


SCENARIOS: tuple[Scenario, ...] = (
    Scenario(name="steady"),
    Scenario(name="rates believed twice too high", rate_belief=2.0),
    Scenario(name="rates believed half", rate_belief=0.5),
    Scenario(name="sizes believed twice too high", size_belief=2.0),
    Scenario(name="sizes believed half", size_belief=0.5),
    Scenario(name="a burst", bursts=((30.0, 150),)),
    Scenario(name="a night without jobs", load=((0.0, 1.0), (28.0, 0.0), (36.0, 1.0))),
    Scenario(name="a day without stock", outage_hours=((24.0, 48.0),)),
    Scenario(name="a load step, half as much again", load=((0.0, 1.0), (30.0, 1.5))),
    Scenario(name="a load step, down to two thirds", load=((0.0, 1.0), (30.0, 2.0 / 3.0))),
)


def a_trace_of(scenario: Scenario, classes: Sequence[JobClass], *, hours: float, seed: int) -> Trace:
    """Return Poisson arrivals of all classes, thinned to the load, with exponential scales."""
    rng = np.random.default_rng(seed)
    most = max(factor for _, factor in scenario.load)
    rows: list[tuple[float, str, float]] = []
    for job_class in classes:
        count = rng.poisson(job_class.arrivals_per_hour * most * hours)
        at, keep = rng.uniform(0.0, hours, count), rng.uniform(0.0, most, count)
        scales = rng.exponential(1.0, count)
        rows += [
            (float(t), job_class.name, float(scale))
            for t, chance, scale in zip(at, keep, scales, strict=True)
            if chance < _factor_at(scenario, float(t))
        ]
    names = [job_class.name for job_class in classes]
    for hour, count in scenario.bursts:
        scales = rng.exponential(1.0, count)
        rows += [(hour, names[n % len(names)], float(scale)) for n, scale in enumerate(scales)]
    return Trace(
        tuple(
            TraceJob(f"j{n}", t * SECONDS_PER_HOUR, name, max(scale, 0.01))
            for n, (t, name, scale) in enumerate(sorted(rows))
        )
    )


def _factor_at(scenario: Scenario, hour: float) -> float:
    """Return the load factor at an hour."""
    return scenario.load[bisect_right(scenario.load, hour, key=lambda step: step[0]) - 1][1]


NODE = InstanceType(name="gpu-x4", gpu_type="gpu", gpus=4, usd_per_hour=4.0)


def _a_class(name: str, sizes: Sequence[float], curve: dict[int, float], rate: float) -> JobClass:
    """Return a class with 30 s of start-up and of rescale."""
    speedup = Table(gpus=tuple(curve), speeds=tuple(curve.values()))
    return JobClass(
        name=name,
        phases=tuple(Phase(size_gpu_hours=size, speedups={"gpu": speedup}) for size in sizes),
        arrivals_per_hour=rate,
        startup_hours=30.0 / SECONDS_PER_HOUR,
        rescale_hours=30.0 / SECONDS_PER_HOUR,
    )


PROBLEM = Problem(
    classes=(
        _a_class("vision", (0.3, 0.5), {1: 1.0, 2: 1.9, 4: 3.5, 8: 5.8, 16: 8.5, 32: 11.0}, 20.0),
        _a_class("language", (2.0,), {1: 1.0, 2: 1.95, 4: 3.8, 8: 7.2, 16: 13.0, 32: 21.0}, 4.0),
        _a_class("stiff", (0.5,), {1: 1.0, 2: 1.5, 4: 2.0, 8: 2.4}, 8.0),
    ),
    gpu_types=(GpuType(name="gpu", usd_per_gpu_hour=1.0),),
)
"""32 jobs and 28 GPU-hours of work per hour; at 1 USD per GPU-hour 30 to 121 USD/hour can be spent on it."""
BUDGET = Budget(amount=60.0)


def settings_of(scenario: Scenario, *, hours: float, seed: int = 1) -> SimulationSettings:
    """Return the settings of a simulation of the scenario with the default policy."""
    return SimulationSettings(
        trace=a_trace_of(scenario, PROBLEM.classes, hours=hours, seed=seed),
        problem=PROBLEM,
        instance_types={"gpu": NODE},
        budget=BUDGET,
        outages=scenario.outages,
        seed=seed,
    )
