"""The figures of a run: money over the hours of arrivals, and GPU-hours that add up to those rented."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from boa_daemon.sim.node_totals import NodeTotals
from boa_daemon.sim.simulation_result import Simulation, summarize_run
from boa_daemon.sim.world import SimulatedWorld
from boa_daemon.testing import ManualClock, a_class, a_problem, a_trace
from policies.model import Budget
from policies.online.best_effort import Shortfall
from policies.registry import BuiltPolicy

HOUR = 3600.0


def figures(
    *arrivals: float, budget: Budget | None = None, shortfall: Shortfall | None = None, **used: float
) -> Simulation:
    """Return the figures of a run of ten hours that spent 40 dollars, on jobs that took 1, 2 and 6 hours."""
    meter = NodeTotals(
        rented_gpu_seconds=100 * HOUR, booting_gpu_seconds=5 * HOUR, micro_dollars=40_000_000,
        launches=4, starts=1, stops=1, stopped_node_seconds=2 * HOUR, most_nodes=3,
        refusals={"quota": 2, "no-capacity": 1},
    )  # fmt: skip
    totals = SimpleNamespace(
        jct_seconds=[HOUR, 2 * HOUR, 6 * HOUR],
        used_gpu_seconds=used.get("used", 60.0) * HOUR,
        overhead_gpu_seconds=10 * HOUR,
        lost_gpu_seconds=5 * HOUR,
        rescales=7,
        restarts=1,
        job_failures=2,
    )
    world: Any = SimpleNamespace(
        workload=SimpleNamespace(trace=a_trace(*arrivals), jobs=3),
        cloud=SimpleNamespace(meter=meter),
        jobs=SimpleNamespace(totals=totals),
        clock=ManualClock(1000.0 + 10 * HOUR),
        started_at=1000.0,
        finished=3,
        ticks=9,
    )
    return summarize_run(
        cast(SimulatedWorld, world),
        policy="boa",
        budget=budget or Budget(amount=5.0),
        problem=a_problem(a_class(arrivals_per_hour=1.0)),
        built=cast(BuiltPolicy, SimpleNamespace(planned_mean_jct_hours=1.5, planned_spend=4.5, pace=None)),
        wall_seconds=0.1,
        shortfall=shortfall,
    )


def test_money_counts_over_the_hours_of_arrivals_and_over_all_hours() -> None:
    """Four hours from the first arrival to the last, ten until the last job left."""
    run = figures(0.0, HOUR, 4 * HOUR)
    assert run.spent_usd == 40.0
    assert (run.arrival_window_hours, run.simulated_hours) == (4.0, 10.0)
    assert (run.mean_usd_per_hour, run.mean_usd_per_simulated_hour) == (10.0, 4.0)


def test_a_single_arrival_has_no_window() -> None:
    """The length of the run stands for it."""
    assert figures(0.0).mean_usd_per_hour == 4.0


def test_rented_gpu_hours_are_the_sum_of_their_parts() -> None:
    """What is left is idle, and never less than nothing."""
    run = figures(0.0, 4 * HOUR)
    parts = (run.gpu_hours_used, run.gpu_hours_lost, run.gpu_hours_booting, run.gpu_hours_overhead)
    assert parts == (60.0, 5.0, 5.0, 10.0)
    assert run.gpu_hours_idle == run.gpu_hours_rented - sum(parts) == 20.0
    assert figures(0.0, 4 * HOUR, used=81.0).gpu_hours_idle == 0.0


def test_times_of_jobs_have_a_mean_and_quantiles() -> None:
    """In hours."""
    run = figures(0.0, 4 * HOUR)
    assert (run.mean_jct_hours, run.p50_jct_hours) == (3.0, 2.0)
    assert run.p95_jct_hours == pytest.approx(5.6)
    assert run.p95_jct_hours < run.p99_jct_hours < 6.0


def test_the_bound_with_more_money_is_lower() -> None:
    """That of the money spent, and that of the money allowed: 20 dollars here."""
    run = figures(0.0, HOUR, 4 * HOUR)
    assert run.lower_bound_mean_jct_hours <= run.lower_bound_at_budget_mean_jct_hours
    scarce = figures(0.0, HOUR, 4 * HOUR, budget=Budget(amount=0.8))
    assert scarce.lower_bound_at_budget_mean_jct_hours > run.lower_bound_at_budget_mean_jct_hours
    assert scarce.lower_bound_mean_jct_hours == run.lower_bound_mean_jct_hours


def test_a_budget_in_gpus_is_named_and_a_shortfall_said() -> None:
    """The document has the shortfall under its public name, and reasons in the order of their names."""
    short = Shortfall(
        budget=5.0, least_spend=8.0, unit="gpus", jobs_per_hour=1.0, gpu_hours_per_hour=2.0, served={"c": 0.5}
    )
    run = figures(0.0, 4 * HOUR, budget=Budget(amount=5.0, unit="gpus"), shortfall=short)
    assert (run.budget_gpus, run.status) == (5.0, "best-effort")
    document = run.to_document()
    assert document["best_effort"] is not None
    assert "shortfall" not in document
    assert list(run.launch_refusals) == ["no-capacity", "quota"]
    plain = figures(0.0, 4 * HOUR)
    assert (plain.budget_gpus, plain.status, plain.to_document()["best_effort"]) == (None, "planned", None)
    assert (plain.nodes_launched, plain.nodes_started, plain.node_hours_stopped) == (4, 1, 2.0)
