"""BOA's own policies are built from the budget, the boots and the load of a site."""

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
    """Return two jobs per hour of one GPU-hour each; a rescale and a boot take 0.1 hours."""
    chosen = Budget(amount=budget)
    problem = a_problem(a_class(arrivals_per_hour=2.0, rescale_hours=0.1), budget=chosen)
    site = Site(problem=problem, budget=chosen, instance_types={"gpu": an_instance_type()}, boot_hours=0.1)
    return replace(site, **changes)  # type: ignore[arg-type]


def test_the_optimum_plans_each_change_with_a_share_of_a_boot() -> None:
    """A change of width waits for nodes, so the planned JCT and spend are solved with boots at changes."""
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


def test_the_pace_has_the_settings_of_the_site() -> None:
    """The default is a tenth of a quarter; options set another period and tolerance, or a window of hours."""
    site = a_site(is_monthly=True, is_load_stated=False, covered_per_hour=1.5)
    pace = paced_optimum(site, PolicyOptions()).pace
    assert (pace.budget, pace.period, pace.tolerance, pace.covered_per_hour) == (8.0, "quarter", 0.1, 1.5)
    assert (pace.is_monthly, pace.is_stated, pace.rhythm) == (True, False, None)
    assert pace.grain_hours > 0.0
    assert pace.loss() is not None
    assert paced_optimum(site, PolicyOptions(window_hours=24.0)).pace.period_hours == 24.0
    month = paced_optimum(site, PolicyOptions(period="month", tolerance=0.02)).pace
    assert (month.period_hours, month.tolerance, month.is_calendar) == (MONTH_HOURS, 0.02, True)
    assert paced_optimum(site, PolicyOptions(window_hours=MONTH_HOURS)).pace.period_hours == MONTH_HOURS


def test_the_rates_are_divided_by_the_learnt_load() -> None:
    """The pace starts from the stated load, so a learnt load of two halves the rates of the table."""
    stated, learnt = (
        paced_optimum(a_site(load_over_stated=load), PolicyOptions()).table.rates for load in (1.0, 2.0)
    )
    assert learnt == pytest.approx(stated / 2.0)


def test_a_budget_below_the_load_is_paced_at_the_least_plan_and_serves_a_share() -> None:
    """Two jobs per hour need 2 USD per hour; 1 USD per hour serves half of them."""
    site = a_site(1.0)
    paced = paced_optimum(site, PolicyOptions())
    assert paced.nodes is not None
    assert paced.nodes.demands["gpu"].weighted_jobs_per_hour == pytest.approx(2.0)
    account = Account(budget=1.0)
    built = best_effort(site, PolicyOptions(), account)
    assert (built.planned_spend, built.pace) == (1.0, None)
    assert shortfall_of_site(site).served == {"c": pytest.approx(0.5)}
    assert not shortfall_of_site(a_site()).is_short


def test_both_policies_are_registered_with_their_flags() -> None:
    """Both decide job by job; only the paced one reads progress and has options."""
    assert (POLICIES["boa"], POLICIES["boa-paced"]) == (BOA, BOA_PACED)
    assert (BOA.kind, BOA.is_job_by_job, BOA.reads_progress, BOA.options) == (
        "optimum",
        True,
        False,
        frozenset(),
    )
    assert (BOA_PACED.kind, BOA_PACED.is_job_by_job, BOA_PACED.reads_progress) == ("optimum", True, True)
    assert BOA_PACED.options == {"period", "tolerance", "window_hours"}
    built = BOA_PACED.build(a_site(), PolicyOptions())
    assert isinstance(built.allocator, PacedBudgetOptimal)
    assert built.pace is built.allocator.pace
