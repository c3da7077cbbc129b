"""Settings become runs."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from boa_daemon.sim.budget_tuning import tune_planning_budget
from boa_daemon.sim.wiring import SimulationSettings, prepare, simulate
from boa_daemon.sim.world_settings import Spot, WorldSettings
from boa_daemon.testing import a_class, a_problem, a_trace, an_instance_type
from boa_daemon.traces.rates import with_rates
from policies.errors import InfeasibleBudget
from policies.model import Budget
from policies.registry import POLICIES
from policies.speedup import Table


def some_settings(**changes: object) -> SimulationSettings:
    """Return forty jobs, one every ten minutes, on nodes of one GPU."""
    values: dict[str, object] = {
        "trace": a_trace(*(600.0 * n for n in range(40))),
        "problem": a_problem(a_class(arrivals_per_hour=6.0)),
        "instance_types": {"gpu": an_instance_type(gpus=1)},
        "budget": Budget(amount=9.0),
    }
    return SimulationSettings(**(values | changes))  # type: ignore[arg-type]


def test_missing_rates_are_those_of_the_trace() -> None:
    """Three jobs in two hours; a class that neither has a rate nor jobs is left out; given rates stay."""
    classes = (a_class("seen"), a_class("unseen"), a_class("given", arrivals_per_hour=9.0))
    trace = a_trace(0.0, 3600.0, 7200.0, class_names=["seen"] * 3)

    rated = with_rates(classes, trace, missing=frozenset({"seen", "unseen"}))

    assert {c.name: c.arrivals_per_hour for c in rated} == {"seen": 1.5, "given": 9.0}


def test_jobs_all_at_one_instant_count_as_an_hour() -> None:
    """A trace without a window has no rate of its own."""
    (rated,) = with_rates((a_class(),), a_trace(5.0, 5.0), missing=frozenset({"c"}))

    assert rated.arrivals_per_hour == 2.0


def test_a_rehearsal_finds_the_plan_that_spends_the_budget() -> None:
    """The run stays within the budget; no wider plan does and waits less."""
    settings = replace(some_settings(), budget=Budget(amount=8.3))
    chosen = tune_planning_budget(settings)

    assert chosen.planning_budget is not None
    run = simulate(chosen)
    assert run.mean_usd_per_hour <= 8.3
    assert chosen.planning_budget.amount > 8.3, "plans count more boots than there are"
    for factor in (1.05, 1.2):
        wider = replace(chosen, planning_budget=Budget(amount=chosen.planning_budget.amount * factor))
        again = simulate(wider)
        assert again.mean_usd_per_hour > 8.3 or again.mean_jct_hours >= run.mean_jct_hours


def test_a_rehearsal_that_has_money_to_spare_plans_for_the_budget() -> None:
    """Nothing to tune."""
    chosen = tune_planning_budget(some_settings(budget=Budget(amount=1000.0)))

    assert chosen.planning_budget == Budget(amount=1000.0)


def test_an_infeasible_budget_stays_infeasible() -> None:
    """A rehearsal does not hide it."""
    with pytest.raises(InfeasibleBudget):
        prepare(tune_planning_budget(some_settings(budget=Budget(amount=1.0))))


def test_widths_beyond_the_limit_on_nodes_are_not_planned() -> None:
    """With four nodes of one GPU allowed, nobody plans for eight."""
    wide = a_class(curve=Table(gpus=(1, 8), speeds=(1.0, 7.9)), arrivals_per_hour=0.1)
    settings = some_settings(problem=a_problem(wide), trace=a_trace(0.0), max_nodes=4)

    result = simulate(settings)

    assert (result.finished, result.most_nodes) == (1, 1)


@pytest.mark.parametrize("policy", POLICIES)
def test_on_spot_a_budget_in_gpus_buys_more_and_the_bound_knows(policy: str) -> None:
    """Where GPUs are counted a discount takes part of a GPU: nobody beats the bound for what was spent."""
    settings = some_settings(
        policy=policy,
        budget=Budget(amount=9.0, unit="gpus"),
        problem=a_problem(a_class(arrivals_per_hour=6.0), budget=Budget(amount=9.0, unit="gpus")),
        world=WorldSettings(spot=Spot()),
    )

    run = simulate(settings)

    assert run.lower_bound_mean_jct_hours <= run.mean_jct_hours < math.inf
