"""The figures of a budget plan, each against a second way to compute it."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from boa_daemon.inputs.problem_file import ProblemFile, load_problem
from boa_daemon.planning.budget_plan import QUOTA_SHARE, BudgetPlan, budget_plan, with_trace
from boa_daemon.traces.reader import Trace, TraceJob
from policies.errors import InfeasibleBudget
from policies.model import Budget
from policies.optimum.boa import solve

FILE = """
budget: {usd_per_hour: 40}
gpu_types:
  a: {usd_per_gpu_hour: 2.0, gpus_per_instance: 8}
  b: {usd_per_gpu_hour: 1.0, gpus_per_instance: 4}
classes:
- name: resnet
  arrivals_per_hour: 2.0
  startup_hours: 0.05
  rescale_hours: 0.05
  phases:
  - size_gpu_hours: 2.0
    speedup: {a: {table: {1: 2.0, 2: 3.5, 4: 6.0}}, b: {table: {1: 1.0, 2: 1.7, 4: 2.8}}}
  - size_gpu_hours: 3.0
    speedup: {a: {table: {1: 2.0, 2: 3.9, 4: 7.5}}, b: {table: {1: 1.0, 2: 1.9, 4: 3.6}}}
- name: bert
  arrivals_per_hour: 0.5
  phases: [{size_gpu_hours: 9.0, speedup: {a: {amdahl: {parallel_fraction: 0.95, max_gpus: 16}}}}]
- name: small
  arrivals_per_hour: 6.0
  phases: [{size_gpu_hours: 0.4, speedup: {b: {power: {exponent: 0.7, max_gpus: 4}}}}]
"""


@pytest.fixture
def file(tmp_path: Path) -> ProblemFile:
    """Return the problem file above."""
    (tmp_path / "problem.yaml").write_text(FILE)
    return load_problem(tmp_path / "problem.yaml")


def planned(file: ProblemFile, dollars: float) -> BudgetPlan:
    """Return the mixed plan for a budget in dollars per hour."""
    return budget_plan(file, Budget(amount=dollars), "integer-mixed")


@pytest.mark.parametrize("dollars", [22.0, 24.0, 28.0, 36.0, 500.0])
def test_the_next_dollar_buys_the_difference_of_two_solves(file: ProblemFile, dollars: float) -> None:
    """The spend is never above the budget."""
    result = planned(file, dollars)
    here, there = (solve(file.problem, d).weighted_mean_jct_hours for d in (dollars, dollars + 1.0))

    assert result.next_unit_saves_hours == pytest.approx(here - there, abs=1e-12)
    assert result.solution.mean_spend <= dollars * (1.0 + 1e-12)


@pytest.mark.parametrize("dollars", [22.0, 28.0, 36.0])
def test_the_mean_gpus_of_the_swing_cost_the_planned_spend(file: ProblemFile, dollars: float) -> None:
    """This is Little's law in dollars."""
    result = planned(file, dollars)

    held = sum(part.price * part.swing.mean_gpus for part in result.packing)
    assert held == pytest.approx(result.solution.mean_spend)


def test_the_mean_gpus_of_the_swing_are_a_budget_in_gpus(file: ProblemFile, tmp_path: Path) -> None:
    """A budget of 14 GPUs holds 14 GPUs on average."""
    text = FILE.replace("usd_per_hour: 40", "gpus: 14")
    (tmp_path / "gpus.yaml").write_text(text)
    result = budget_plan(
        load_problem(tmp_path / "gpus.yaml"), Budget(amount=14.0, unit="gpus"), "integer-mixed"
    )

    assert result.solution.mean_spend == pytest.approx(14.0)
    assert sum(part.swing.mean_gpus for part in result.packing) == pytest.approx(14.0)


def test_the_quota_is_enough_99_per_cent_of_the_time(file: ProblemFile) -> None:
    """The check simulates 200,000 instants and uses no closed form."""
    result = planned(file, 25.0)
    rng = np.random.default_rng(3)
    (part,) = [part for part in result.packing if part.gpu_type == "b"]
    held = np.zeros(200_000)
    for job_class, answer in zip(file.problem.classes, result.solution.classes, strict=True):
        for share in answer.plans:
            for step in share.steps:
                if step.gpu_type == "b":
                    rate = job_class.arrivals_per_hour * share.job_fraction
                    held += step.gpus * rng.poisson(rate * step.hours, size=len(held))

    assert np.mean(held <= part.quota_gpus) >= QUOTA_SHARE - 0.002
    assert np.mean(held <= part.quota_gpus - 1) < QUOTA_SHARE + 0.002
    assert part.quota_nodes == math.ceil(part.quota_gpus / 4)


def test_waste_is_larger_when_jobs_do_not_share_nodes(file: ProblemFile) -> None:
    """A one-GPU job alone on an 8-GPU machine wastes seven times its use."""
    least, most = planned(file, 25.0).waste

    assert 0.0 < least < most
    assert most <= 7.0


def test_the_document_adds_up(file: ProblemFile) -> None:
    """The dollars of the classes sum to the spend, and their hours average to the mean JCT."""
    document = planned(file, 25.0).to_document()
    classes = document["class_spend"]

    assert sum(c["spend_per_hour"] for c in classes) == pytest.approx(document["mean_spend"])
    rates = [c["arrivals_per_hour"] for c in classes]
    assert np.average([c["mean_jct_hours"] for c in classes], weights=rates) == pytest.approx(
        document["mean_jct_hours"]
    )
    assert document["knee"]["budget"] == planned(file, 25.0).knee.budget


def test_a_budget_below_the_least_raises_infeasible_budget(file: ProblemFile) -> None:
    """The error is that of the solver."""
    with pytest.raises(InfeasibleBudget):
        planned(file, 1.0)


def test_a_search_that_hits_its_limit_still_gives_a_plan(
    file: ProblemFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan is feasible and has a gap."""
    import policies.optimum.boa
    from policies.optimum.knapsack import solve_pure

    monkeypatch.setattr(
        policies.optimum.boa, "solve_pure", lambda problem, budget: solve_pure(problem, budget, state_limit=0)
    )
    result = budget_plan(file, Budget(amount=24.0), "integer-pure")

    assert result.solution.status == "feasible"
    assert result.solution.gap > 0.0
    assert result.solution.mean_spend <= 24.0 * (1.0 + 1e-12)


def a_trace(*arrivals: tuple[float, str, float]) -> Trace:
    """Return a trace of (hour, class, scale)."""
    return Trace(
        tuple(
            TraceJob(id=str(n), arrived_at_seconds=hour * 3600.0, class_name=name, scale=scale)
            for n, (hour, name, scale) in enumerate(arrivals)
        )
    )


def test_a_trace_gives_rates_and_mean_sizes(file: ProblemFile) -> None:
    """3 jobs in 2 hours are 1.5 per hour; scales of 1, 2 and 6 triple the mean size."""
    found = with_trace(file, a_trace((0, "bert", 1.0), (1, "bert", 2.0), (2, "bert", 6.0)))

    (bert,) = found.problem.classes
    assert (bert.name, bert.arrivals_per_hour) == ("bert", 3 / 2.0)
    assert bert.size_gpu_hours == pytest.approx(9.0 * (1.0 + 2.0 + 6.0) / 3)


def test_a_trace_of_one_instant_counts_as_an_hour(file: ProblemFile) -> None:
    """One job of each class is one arrival per hour."""
    found = with_trace(file, a_trace((0, "bert", 1.0), (0, "small", 1.0)))

    assert [c.arrivals_per_hour for c in found.problem.classes] == [1.0, 1.0]
