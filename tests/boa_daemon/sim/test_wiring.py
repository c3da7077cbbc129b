"""From settings to prepared runs, and the tuning of the planning budget."""

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


def test_missing_arrival_rates_come_from_the_trace() -> None:
    """Given rates stay; a class without a rate and without jobs is left out."""
    classes = (a_class("seen"), a_class("unseen"), a_class("given", arrivals_per_hour=9.0))
    trace = a_trace(0.0, 3600.0, 7200.0, class_names=["seen"] * 3)

    rated = with_rates(classes, trace, missing=frozenset({"seen", "unseen"}))

    assert {c.name: c.arrivals_per_hour for c in rated} == {"seen": 1.5, "given": 9.0}


def test_a_trace_of_one_instant_counts_as_an_hour() -> None:
    """Two simultaneous jobs are two per hour."""
    (rated,) = with_rates((a_class(),), a_trace(5.0, 5.0), missing=frozenset({"c"}))

    assert rated.arrivals_per_hour == 2.0


def test_the_tuned_planning_budget_spends_the_budget() -> None:
    """A larger planning budget exceeds the budget or does not lower mean JCT."""
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


def test_a_budget_that_is_large_enough_is_not_tuned() -> None:
    """The planning budget is the budget."""
    chosen = tune_planning_budget(some_settings(budget=Budget(amount=1000.0)))

    assert chosen.planning_budget == Budget(amount=1000.0)


def test_tuning_does_not_hide_an_infeasible_budget() -> None:
    """The error is raised when the run is prepared."""
    with pytest.raises(InfeasibleBudget):
        prepare(tune_planning_budget(some_settings(budget=Budget(amount=1.0))))


def test_widths_beyond_the_limit_on_nodes_are_not_planned() -> None:
    """With a limit of four nodes of one GPU, no plan uses eight."""
    wide = a_class(curve=Table(gpus=(1, 8), speeds=(1.0, 7.9)), arrivals_per_hour=0.1)
    settings = some_settings(problem=a_problem(wide), trace=a_trace(0.0), max_nodes=4)

    result = simulate(settings)

    assert (result.finished, result.most_nodes) == (1, 1)


@pytest.mark.parametrize("policy", POLICIES)
def test_with_spot_prices_no_run_beats_the_bound_for_a_budget_in_gpus(policy: str) -> None:
    """A discounted GPU counts as part of a GPU."""
    settings = some_settings(
        policy=policy,
        budget=Budget(amount=9.0, unit="gpus"),
        problem=a_problem(a_class(arrivals_per_hour=6.0), budget=Budget(amount=9.0, unit="gpus")),
        world=WorldSettings(spot=Spot()),
    )

    run = simulate(settings)

    assert run.lower_bound_mean_jct_hours <= run.mean_jct_hours < math.inf
