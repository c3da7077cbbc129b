"""Best effort: the jobs served by a budget below the load, their order, and the ceiling on rent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies_planner import problems

from boa_daemon.testing import a_class, a_job, a_problem, an_instance_type
from policies.model import Budget, Money, Problem
from policies.online.best_effort import Account, BestEffort, shortfall_of
from policies.optimum.frontier import MixedFrontier
from policies.registry import Site, build_policy

HOUR = 3600.0


def a_site(budget: float, *, boot_hours: float = 0.0) -> Site:
    """Return a site of two classes on nodes of one GPU at a dollar."""
    classes = (a_class("short", sizes=(0.5,)), a_class("long", sizes=(4.0,)))
    return Site(
        problem=a_problem(*classes),
        budget=Budget(amount=budget),
        instance_types={"gpu": an_instance_type(gpus=1)},
        boot_hours=boot_hours,
    )


def an_effort(budget: float = 0.5, *, boot_hours: float = 0.0) -> BestEffort:
    """Return a best effort of that budget whose account opened with the ledger."""
    site = a_site(budget, boot_hours=boot_hours)
    found = build_policy("boa", site, account=Account(budget=budget)).allocator
    assert isinstance(found, BestEffort)
    return found


def money(spent: float, hours: float) -> Money:
    """Return the state of the ledger."""
    return Money(spent=spent, elapsed_hours=hours)


@given(problem=problems(), share=st.floats(0.01, 1.5))
def test_served_jobs_cost_the_budget_and_the_others_are_the_growth(problem: Problem, share: float) -> None:
    """Served and unserved jobs add up to all arrivals."""
    frontier = MixedFrontier.of(problem)
    least = frontier.cheapest_feasible_spend
    found = shortfall_of(frontier, share * least)
    plans = {plan.name: plan.mean_spend for plan in frontier.solution_at(least).classes}
    rates = {c.name: c.arrivals_per_hour for c in problem.classes}
    spent = sum(part * rates[name] * plans[name] for name, part in found.served.items())
    served = sum(part * rates[name] for name, part in found.served.items())

    assert spent == pytest.approx(min(share, 1.0) * least, rel=1e-6)
    assert served + found.jobs_per_hour == pytest.approx(sum(rates.values()), rel=1e-9)
    assert found.is_short == (share < 1.0 - 1e-12)
    assert (found.gpu_hours_per_hour == 0.0) == (not found.is_short)


def test_the_growth_of_two_classes_is_the_closed_form() -> None:
    """One job an hour each, at 0.5 and 4 dollars: 2.5 USD/hour serve half of the long ones."""
    found = shortfall_of(MixedFrontier.of(a_site(1.0).problem), 2.5)

    assert dict(found.served) == {"short": 1.0, "long": pytest.approx(0.5)}
    assert found.jobs_per_hour == pytest.approx(0.5)
    assert found.gpu_hours_per_hour == pytest.approx(2.0)
    assert found.least_spend == pytest.approx(4.5)


def test_jobs_are_served_by_weight_per_dollar_of_work_left() -> None:
    """A running job gives way only to a job with less than half its work left."""
    width = an_effort().allocate([a_job("x", class_name="long")], now=0.0).widths["x"]
    jobs = [
        a_job("long", class_name="long", remaining_gpu_hours=4.0),
        a_job("heavy", class_name="long", remaining_gpu_hours=4.0, weight=20.0),
        a_job("short", class_name="short", remaining_gpu_hours=0.5),
        a_job("runs", class_name="long", remaining_gpu_hours=0.9, width=width),
    ]
    found = an_effort().allocate(jobs, now=0.0, money=money(0.0, 0.0))

    assert found.order == ("heavy", "runs", "short", "long")
    almost = [jobs[2], a_job("runs", class_name="long", remaining_gpu_hours=1.1, width=width)]
    assert an_effort().allocate(almost, now=0.0, money=money(0.0, 0.0)).order == ("short", "runs")
    lighter = [jobs[2], a_job("runs", class_name="long", remaining_gpu_hours=0.95, width=width)]
    assert an_effort().allocate(lighter, now=0.0, money=money(0.0, 0.0)).order == ("runs", "short")


@pytest.mark.parametrize(
    ("spent", "ceiling", "above"),
    [(0.0, 1.5, "use"), (0.9, 0.6, "use"), (1.0, 0.5, "finish"), (1.2, 0.5, "finish"), (1.3, 0.5, "leave")],
)
def test_the_account_sets_the_ceiling(spent: float, ceiling: float, above: str) -> None:
    """At 0.5 USD/hour a credit is spent within an hour; beyond half an hour of debt, nodes are given up."""
    found = an_effort(0.5).allocate([a_job(class_name="long")], now=0.0, money=money(spent, 2.0))

    assert found.most_usd_per_hour == pytest.approx(ceiling)
    assert found.above_ceiling == above


def test_a_long_boot_spreads_a_credit_over_more_hours() -> None:
    """With a boot of 12 minutes a credit is spread over two hours."""
    found = an_effort(0.5, boot_hours=0.2).allocate(
        [a_job(class_name="long")], now=0.0, money=money(0.0, 2.0)
    )

    assert found.most_usd_per_hour == pytest.approx(0.5 + 1.0 / 2.0)


def test_an_account_ignores_money_spent_before_it_opened() -> None:
    """One hour and one dollar after opening, the balance is a dollar, despite 100 dollars spent before."""
    account = Account(budget=2.0, opened_at=10 * HOUR, spent_before=100.0)

    assert account.balance(money(101.0, 11.0), now=11 * HOUR) == pytest.approx(1.0)
    assert Account(budget=2.0).balance(money(1.0, 11.0), now=11 * HOUR) == pytest.approx(21.0)


def test_with_nothing_to_spare_each_job_has_its_cheapest_width() -> None:
    """A budget of a cent an hour buys no speed."""
    found = an_effort(0.01).allocate(
        [a_job("a", class_name="long"), a_job("b", class_name="short")], now=0.0, money=money(0.0, 1.0)
    )

    assert {width.gpus for width in found.widths.values()} == {1}


@given(jobs=st.integers(1, 12), budget=st.floats(0.5, 60.0))
def test_jobs_share_the_whole_budget_when_no_job_waits(jobs: int, budget: float) -> None:
    """The jobs present get the widest width that the budget pays for."""
    present = [a_job(f"j{n}", class_name="long") for n in range(jobs)]
    found = an_effort(0.5).paced.within(present, budget, None)
    (width,) = {width.gpus for width in found.widths.values()}

    assert width == max((gpus for gpus in (1, 2, 4) if gpus * jobs <= budget), default=1)


def test_of_two_classes_the_one_with_more_weight_per_dollar_is_served() -> None:
    """Ten times the weight at eight times the dollars: the long jobs come first."""
    heavy = a_class("long", sizes=(4.0,), weight=10.0)
    found = shortfall_of(MixedFrontier.of(a_problem(a_class("short", sizes=(0.5,)), heavy)), 2.0)
    assert dict(found.served) == {"long": pytest.approx(0.5), "short": 0.0}


def test_nodes_are_given_up_at_exactly_half_a_spread_of_debt() -> None:
    """At 0.5 USD/hour and a spread of one hour, the limit is a debt of 0.25 dollars."""
    for spent, above in ((1.2499, "finish"), (1.25, "leave"), (1.2501, "leave"), (0.9999, "use")):
        found = an_effort(0.5).allocate([a_job(class_name="long")], now=0.0, money=money(spent, 2.0))
        assert found.above_ceiling == above
