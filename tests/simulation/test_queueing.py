"""The simulator against queueing theory: without overheads no job queues, as in M/G/infinity."""

from __future__ import annotations

import math

import numpy as np
import pytest

from boa_daemon.sim.wiring import SimulationSettings, prepare
from boa_daemon.testing import a_class, a_problem, an_instance_type
from boa_daemon.traces.reader import Trace, TraceJob
from policies.model import Budget
from policies.optimum.boa import solve
from policies.speedup import Table

RATE = {"elastic": 20.0, "stiff": 10.0}
CLASSES = (
    a_class("elastic", curve=Table(gpus=(1, 2, 4, 8), speeds=(1.0, 1.9, 3.6, 6.4)), arrivals_per_hour=20.0),
    a_class("stiff", sizes=[0.5, 0.25], curve=Table(gpus=(1, 2), speeds=(1.0, 1.2)), arrivals_per_hour=10.0),
)
PROBLEM = a_problem(*CLASSES)
JOBS = 6000
STANDARD_ERRORS = 4.0
"""A fair simulator strays further once in 16,000 seeds."""


def a_poisson_trace(seed: int, jobs: int = JOBS) -> Trace:
    """Return Poisson arrivals of both classes with exponential scales."""
    rng = np.random.default_rng(seed)
    at = np.cumsum(rng.exponential(3600.0 / sum(RATE.values()), jobs))
    names = np.where(rng.random(jobs) < 2.0 / 3.0, "elastic", "stiff")
    scales = rng.exponential(1.0, jobs)
    rows = zip(at.tolist(), names.tolist(), scales.tolist(), strict=True)
    return Trace(tuple(TraceJob(f"j{n}", t, name, scale) for n, (t, name, scale) in enumerate(rows)))


@pytest.mark.exhaustive
@pytest.mark.parametrize("budget", [30.0, 45.0])
def test_mean_jct_and_spend_are_those_of_the_optimum(budget: float) -> None:
    """On one-GPU nodes that boot at once, both are within the statistical error of the plan."""
    plan = solve(PROBLEM, budget)
    settings = SimulationSettings(
        trace=a_poisson_trace(seed=7),
        problem=PROBLEM,
        instance_types={"gpu": an_instance_type(gpus=1)},
        budget=Budget(amount=budget),
        boot_seconds=0.0,
        idle_hold_seconds=0.0,
    )
    run = prepare(settings)
    result = run.finish()

    jct_hours = np.array(run.world.jobs.totals.jct_seconds) / 3600.0
    error = float(jct_hours.std()) / math.sqrt(JOBS)
    assert result.mean_jct_hours == pytest.approx(plan.mean_jct_hours, abs=STANDARD_ERRORS * error)
    # Dollars are a sum over jobs of width x time, no noisier than width 8 times the sum of times, and the
    # number of arrivals in the window adds its own 1 / sqrt(n).
    spread = (error / plan.mean_jct_hours) * 2.0 + 1.0 / math.sqrt(JOBS)
    assert result.mean_usd_per_hour == pytest.approx(plan.mean_spend, rel=STANDARD_ERRORS * spread)
    assert result.planned_mean_jct_hours == pytest.approx(plan.mean_jct_hours)


@pytest.mark.exhaustive
def test_over_several_seeds_the_means_are_the_closed_form() -> None:
    """Six seeds of 2,000 jobs: mean JCT and spend over the plan's are 1 within 3 standard errors.

    The standard error comes from the seeds themselves and is below 2 % for JCT and 3 % for spend. GPUs are
    rented one by one and by the second, so rent is as fractional as it gets; the minute that a node costs at
    least is why spend has half a per cent of slack.
    """
    plan = solve(PROBLEM, 40.0)
    ratios = []
    for seed in range(6):
        settings = SimulationSettings(
            trace=a_poisson_trace(seed=100 + seed, jobs=2000),
            problem=PROBLEM,
            instance_types={"gpu": an_instance_type(gpus=1)},
            budget=Budget(amount=40.0),
            boot_seconds=0.0,
            idle_hold_seconds=0.0,
            seed=seed,
        )
        result = prepare(settings).finish()
        assert result.mean_jct_hours >= result.lower_bound_mean_jct_hours * (1.0 - 1e-9)
        ratios.append(
            (result.mean_jct_hours / plan.mean_jct_hours, result.mean_usd_per_hour / plan.mean_spend)
        )
    means, errors = np.mean(ratios, axis=0), np.std(ratios, axis=0, ddof=1) / math.sqrt(len(ratios))

    assert (errors < [0.02, 0.03]).all()
    assert abs(means[0] - 1.0) <= 3.0 * errors[0]
    assert -3.0 * errors[1] <= means[1] - 1.0 <= 3.0 * errors[1] + 0.005


@pytest.mark.exhaustive
def test_no_gpu_idles_and_held_gpus_vary_as_a_compound_poisson() -> None:
    """No job waits, so rented GPU-hours equal used ones.

    The counts of running jobs are independent Poisson variables, so the variance of GPUs is the sum of width
    squared x rate x time.
    """
    settings = SimulationSettings(
        trace=a_poisson_trace(seed=9),
        problem=PROBLEM,
        instance_types={"gpu": an_instance_type(gpus=1)},
        budget=Budget(amount=40.0),
        boot_seconds=0.0,
        idle_hold_seconds=0.0,
    )
    run = prepare(settings)
    held: list[tuple[float, int]] = []
    result = run.finish(lambda decision: held.append((decision.state.now, len(decision.state.nodes))))
    instants = np.array([now for now, _ in held])
    # The state is observed before the actions of its tick, so it lasted since the previous tick.
    nodes, weights = np.array([count for _, count in held[1:]]), np.diff(instants)
    mean = float(np.average(nodes, weights=weights))
    variance = float(np.average((nodes - mean) ** 2, weights=weights))

    plan = solve(PROBLEM, 40.0)
    expected = sum(
        RATE[entry.name] * share.job_fraction * _squares(entry.name, [w.gpus for w in share.widths])
        for entry in plan.classes
        for share in entry.plans
    )
    assert result.gpu_hours_rented == pytest.approx(result.gpu_hours_used, rel=1e-9)
    assert result.rescales == 0
    assert mean == pytest.approx(plan.mean_spend, rel=0.06)
    assert variance == pytest.approx(expected, rel=0.15)


def _squares(name: str, widths: list[float]) -> float:
    """Return width squared x hours, over the phases of a class."""
    phases = next(job_class.phases for job_class in CLASSES if job_class.name == name)
    return sum(
        gpus**2 * phase.size_gpu_hours / float(phase.speedups["gpu"].speed_at(gpus))
        for gpus, phase in zip(widths, phases, strict=True)
    )
