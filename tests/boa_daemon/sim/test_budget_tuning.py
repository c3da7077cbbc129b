"""The planning budget with which a run spends the actual one, over worlds of known spending."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from boa_daemon.sim import budget_tuning
from boa_daemon.sim.budget_tuning import REHEARSALS, tune_planning_budget
from boa_daemon.sim.simulation_result import Simulation
from boa_daemon.sim.wiring import SimulationSettings
from boa_daemon.testing import a_class, a_problem, a_trace, an_instance_type
from policies.model import Budget


def some_settings(**changes: Any) -> SimulationSettings:
    """Return settings with a budget of ten dollars per hour."""
    values: dict[str, Any] = {
        "trace": a_trace(0.0, 3600.0),
        "problem": a_problem(a_class(arrivals_per_hour=1.0)),
        "instance_types": {"gpu": an_instance_type(gpus=1)},
        "budget": Budget(amount=10.0),
    }
    return SimulationSettings(**(values | changes))


def tuned(
    monkeypatch: pytest.MonkeyPatch, run: Callable[[float], tuple[float, float]], **changes: Any
) -> tuple[float, list[float]]:
    """Return the planning budget found where a plan spends and takes this much, and the plans tried."""
    monkeypatch.setattr(budget_tuning, "_least_plan", lambda _settings: 1.0)
    tried: list[float] = []

    def run_all(settings: Sequence[SimulationSettings]) -> list[Simulation]:
        found = []
        for one in settings:
            assert one.planning_budget is not None
            tried.append(one.planning_budget.amount)
            usd, hours = run(tried[-1])
            found.append(SimpleNamespace(mean_usd_per_hour=usd, mean_jct_hours=hours))
        return cast(list[Simulation], found)

    result = tune_planning_budget(some_settings(**changes), run_all)
    assert result.budget.amount == 10.0
    assert result.planning_budget is not None
    return result.planning_budget.amount, tried


def test_a_run_that_spends_more_than_planned_is_planned_for_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter more: eight dollars spend ten, and the largest plan within that is the fastest."""
    found, tried = tuned(monkeypatch, lambda plan: (1.25 * plan, 100.0 / plan))
    assert 7.7 < found <= 8.0
    assert len(tried) > REHEARSALS
    assert (max(tried), min(tried)) == (10.0, pytest.approx(1.0))


@pytest.mark.parametrize(("max_nodes", "most"), [(None, 10.0 * 1.08**4), (3, 10.0 * 1.35**8)])
def test_a_run_that_spends_less_than_planned_is_planned_for_more(
    monkeypatch: pytest.MonkeyPatch, max_nodes: int | None, most: float
) -> None:
    """Far more where nodes are capped, because a cap holds back spending."""
    found, _ = tuned(monkeypatch, lambda plan: (0.01 * plan, 100.0 / plan), max_nodes=max_nodes)
    assert found == pytest.approx(most)


def test_a_larger_plan_that_changes_nothing_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """The budget itself is as good."""
    found, tried = tuned(monkeypatch, lambda plan: (5.0, 1.0) if plan >= 9.9 else (5.0, 2.0))
    assert found == 10.0
    assert max(tried) == pytest.approx(10.8)


def test_if_every_run_spends_too_much_the_fastest_of_the_thriftiest_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spends within two in a hundred of the least count as equally good."""
    found, _ = tuned(monkeypatch, lambda plan: (12.0 + 0.2 * (plan > 3.0) + 9.0 * (plan > 6.0), 10.0 / plan))
    assert 3.0 < found <= 6.0


def test_of_equally_fast_plans_the_largest_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """It leaves room for what comes unexpected."""
    assert tuned(monkeypatch, lambda plan: (0.5 * plan, 1.0))[0] > 10.0


def test_the_range_of_plans_begins_at_the_least_that_the_policy_can_plan_for() -> None:
    """One reference GPU for each hour of work that arrives in an hour."""
    plans: list[float] = []

    def run_all(settings: Sequence[SimulationSettings]) -> list[Simulation]:
        plans.extend(one.planning_budget.amount for one in settings if one.planning_budget is not None)
        return [cast(Simulation, SimpleNamespace(mean_usd_per_hour=99.0, mean_jct_hours=1.0))] * len(settings)

    tune_planning_budget(some_settings(boot_seconds=0.0), run_all)
    assert min(plans) == pytest.approx(1.0)
