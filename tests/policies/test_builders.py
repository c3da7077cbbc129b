"""BOA's own policies are built for the site that was stated: its money, its boots, its load."""

from __future__ import annotations

from dataclasses import replace

import pytest

from boa_daemon.testing import a_class, a_problem, an_instance_type
from policies.builders import BOA, BOA_PACED, best_effort, boa, paced_optimum, shortfall_of_site
from policies.model import Budget
from policies.online.best_effort import Account
from policies.online.node_prices import with_boots_at_changes
from policies.online.paced_optimum import PacedBudgetOptimal
from policies.online.pacing import MONTH_HOURS
from policies.optimum.boa import BudgetOptimal, solve
from policies.registry import POLICIES
from policies.site import PolicyOptions, Site


def a_site(budget: float = 8.0, **changes: object) -> Site:
    """Return two jobs per hour of one hour of work, which rescale for a tenth, on nodes that boot as long."""
    chosen = Budget(amount=budget)
    problem = a_problem(a_class(arrivals_per_hour=2.0, rescale_hours=0.1), budget=chosen)
    site = Site(problem=problem, budget=chosen, instance_types={"gpu": an_instance_type()}, boot_hours=0.1)
    return replace(site, **changes)  # type: ignore[arg-type]


def test_the_optimum_promises_what_the_solver_found_for_changes_with_boots() -> None:
    """A change of width waits for nodes, so the plan has a share of a boot in each."""
    site = a_site()
    found, built = (
        solve(with_boots_at_changes(site.problem, 0.1), 8.0),
        boa(site, PolicyOptions()),
    )
    assert built.planned_mean_jct_hours == found.mean_jct_hours
    assert built.planned_spend == found.mean_spend
    assert isinstance(built.allocator, BudgetOptimal)
    assert built.allocator.nodes is not None
    assert built.allocator.nodes.boot_hours == 0.1
    assert built.allocator.nodes.overheads == {"c": (0.0, 0.1)}


def test_the_pace_is_that_of_the_site() -> None:
    """The default window is a month; a window given as an option is used."""
    site = a_site(is_monthly=True, is_load_stated=False, covered_per_hour=1.5)
    pace = paced_optimum(site, PolicyOptions()).pace
    assert (pace.budget, pace.window_hours, pace.covered_per_hour) == (8.0, MONTH_HOURS, 1.5)
    assert (pace.is_monthly, pace.is_stated, pace.rhythm) == (True, False, None)
    assert pace.grain_hours > 0.0
    assert pace.loss_fraction is not None
    assert paced_optimum(site, PolicyOptions(window_hours=24.0)).pace.window_hours == 24.0


def test_what_was_learnt_of_the_load_is_taken_out_of_the_rates() -> None:
    """The pace starts from the stated load: half of one that is twice as much."""
    stated, learnt = (
        paced_optimum(a_site(load_over_stated=load), PolicyOptions()).table.rates for load in (1.0, 2.0)
    )
    assert learnt == pytest.approx(stated / 2.0)


def test_a_budget_below_the_least_is_paced_at_the_least_plan_and_served_as_far_as_it_goes() -> None:
    """Two jobs per hour need two dollars; one pays for half of them."""
    site = a_site(1.0)
    paced = paced_optimum(site, PolicyOptions())
    assert paced.nodes is not None
    assert paced.nodes.demands["gpu"].weighted_jobs_per_hour == pytest.approx(2.0)
    account = Account(budget=1.0)
    built = best_effort(site, PolicyOptions(), account)
    assert (built.planned_spend, built.pace) == (1.0, None)
    assert shortfall_of_site(site).served == {"c": pytest.approx(0.5)}
    assert not shortfall_of_site(a_site()).is_short


def test_the_entries_are_those_of_the_table() -> None:
    """Both are optima that look at one job at a time; the paced one takes a window and reads progress."""
    assert (POLICIES["boa"], POLICIES["boa-paced"]) == (BOA, BOA_PACED)
    assert (BOA.kind, BOA.is_job_by_job, BOA.reads_progress, BOA.options) == (
        "optimum",
        True,
        False,
        frozenset(),
    )
    assert (BOA_PACED.kind, BOA_PACED.is_job_by_job, BOA_PACED.reads_progress) == ("optimum", True, True)
    assert BOA_PACED.options == {"window_hours"}
    built = BOA_PACED.build(a_site(), PolicyOptions())
    assert isinstance(built.allocator, PacedBudgetOptimal)
    assert built.pace is built.allocator.pace
