"""One whole width per phase: exact, or refused with the best plans found and their proven gap."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from strategies_planner import (
    a_class,
    all_points,
    between,
    coupled_classes,
    every_plan,
    least_pure,
    numbers,
    one_type,
    problems,
    random_problem,
    shares,
    undominated,
    weighted_hours,
)

from policies.errors import InfeasibleBudget
from policies.model import Problem
from policies.optimum.coupled_plans import CoupledClass
from policies.optimum.frontier import MixedFrontier
from policies.optimum.knapsack import TooManyStatesError, _rounded_down, near_plans, solve_pure
from policies.optimum.solution import ProblemTooLarge, Solution
from policies.speedup import Table


def spent(problem: Problem, solution: Solution) -> float:
    """Return the spend of the plans, class by class."""
    return sum(
        c.arrivals_per_hour * s.mean_spend for c, s in zip(problem.classes, solution.classes, strict=True)
    )


@given(problems(), shares())
def test_the_optimum_is_the_best_of_all_plans(problem: Problem, share: float) -> None:
    """Every class has one plan, spend is within the budget, and the gap is 0."""
    points = all_points(problem)
    budget = between(float(points[0, 0]), float(points[-1, 0]), share)
    solution = solve_pure(problem, budget)

    hours = weighted_hours(problem, [c.mean_jct_hours for c in solution.classes])
    assert hours == pytest.approx(least_pure(points, budget), rel=1e-9)
    assert all(len(c.plans) == 1 for c in solution.classes)
    assert spent(problem, solution) <= budget * (1 + 1e-11)
    assert spent(problem, solution) == pytest.approx(solution.mean_spend, rel=1e-9)
    assert (solution.status, solution.gap) == ("optimal", 0.0)


@given(problems())
def test_at_a_vertex_the_pure_optimum_equals_the_mixed_one(problem: Problem) -> None:
    """At a vertex the mixed optimum has whole widths."""
    frontier = MixedFrontier.of(problem)
    for budget in frontier.merged.cost[[0, len(frontier.merged.cost) // 2, -1]].tolist():
        assert solve_pure(problem, budget).weighted_mean_jct_hours == pytest.approx(
            frontier.solution_at(budget).weighted_mean_jct_hours, rel=1e-9
        )


@given(coupled_classes(), numbers(1e-3, 1e3), numbers(1e-4, 1e2))
def test_near_plans_are_all_plans_within_reach(
    job_class: CoupledClass, multiplier: float, reach: float
) -> None:
    """Near plans are the undominated ones whose Lagrangian is within reach of the least."""
    points = every_plan(job_class)
    lagrangian = points @ np.array([multiplier, 1.0])
    near = undominated(points[lagrangian <= lagrangian.min() + reach * (1 - 1e-6)])
    found = near_plans(job_class, multiplier, reach)

    reached = found.time + multiplier * found.cost
    assert reached.max() <= (lagrangian.min() + reach) * (1.0 + 1e-6)
    for cost, time in near.tolist():
        beaten_by = (found.cost <= cost * (1 + 1e-9)) & (found.time <= time * (1 + 1e-9))
        assert beaten_by.any()
    assert np.all(np.diff(found.cost) > 0)
    assert np.all(np.diff(found.time) < 0)


def test_a_pure_optimum_may_lie_above_the_hull() -> None:
    """With speeds 1, 1.1, 2 on 1, 2, 4 GPUs a budget of 1.9 gives 2 GPUs, which no mix would use."""
    problem = one_type(a_class("c", (1.0, Table(gpus=(1, 2, 4), speeds=(1.0, 1.1, 2.0)))))
    solution = solve_pure(problem, 1.9)

    assert solution.classes[0].plans[0].widths[0].gpus == 2
    assert solution.mean_jct_hours == pytest.approx(1 / 1.1)
    assert solution.mean_spend == pytest.approx(2 / 1.1)


def test_an_infeasible_budget_is_refused_with_the_least() -> None:
    """The least spend is the same as for mixes, because the cheapest plans are pure."""
    problem = one_type(a_class("c", (4.0, Table(gpus=(2, 4), speeds=(1.5, 2.0)))))
    with pytest.raises(InfeasibleBudget) as refused:
        solve_pure(problem, 5.0)

    assert refused.value.least_spend == pytest.approx(2 * 4 / 1.5)


@pytest.mark.parametrize("seed", range(12))
def test_a_search_over_its_limit_reports_the_best_plans_and_their_gap(seed: int) -> None:
    """The true optimum lies between the reported bound and the best found."""
    problem = random_problem(np.random.default_rng(seed), classes=20, phases=4)
    frontier = MixedFrontier.of(problem)
    budget = between(frontier.cheapest_feasible_spend, frontier.largest_useful_spend, 0.05 + 0.07 * seed)
    exact = solve_pure(problem, budget)
    with pytest.raises(ProblemTooLarge, match="integer-mixed") as refused:
        solve_pure(problem, budget, state_limit=1)

    best = refused.value.best
    assert isinstance(best, Solution)
    assert refused.value.gap == best.gap > 0.0
    assert best.status == "feasible"
    assert best.dual_bound_hours <= exact.weighted_mean_jct_hours * (1 + 1e-9)
    assert exact.weighted_mean_jct_hours <= best.weighted_mean_jct_hours * (1 + 1e-9)
    assert best.dual_bound_hours == pytest.approx(best.weighted_mean_jct_hours * (1 - best.gap))
    assert spent(problem, best) <= budget * (1 + 1e-11)


def test_sixty_equal_classes_are_solved_despite_ties() -> None:
    """States that tie are one state."""
    table = Table(gpus=(1, 2, 3, 4), speeds=(1.0, 1.5, 1.8, 2.0))
    problem = one_type(*(a_class(f"c{i}", (1.0, table)) for i in range(60)))
    solution = solve_pure(problem, 77.7)

    assert solution.status == "optimal"
    # 1 -> 2 GPUs costs 1/3 and saves 1/3 h: 53 such steps fit into 17.7, and the rest buys nothing.
    assert solution.mean_jct_hours == pytest.approx((53 * (2 / 3) + 7) / 60)


def test_two_thousand_phases_are_solved_to_the_optimum() -> None:
    """Each has eight widths; the JCT is at most 0.1 % above the mixed optimum."""
    rng = np.random.default_rng(5)
    problem = random_problem(rng, classes=200, phases=10, widths=8, types=1)
    frontier = MixedFrontier.of(problem)
    budget = between(frontier.cheapest_feasible_spend, frontier.largest_useful_spend, 0.3)
    solution, mixed = solve_pure(problem, budget), frontier.solution_at(budget)

    assert solution.status == "optimal"
    assert mixed.weighted_mean_jct_hours <= solution.weighted_mean_jct_hours
    assert solution.weighted_mean_jct_hours <= mixed.weighted_mean_jct_hours * (1 + 1e-3)


def test_a_search_stops_at_its_limit_of_states() -> None:
    """The limit bounds the memory of the search for near plans."""
    rng = np.random.default_rng(1)
    job_class = CoupledClass(
        phase_time=rng.uniform(0.1, 1.0, (3, 4)),
        rate=np.arange(1.0, 5.0),
        startup_hours=0.1,
        rescale_hours=0.1,
    )
    assert len(near_plans(job_class, 0.1, 10.0).cost) > 1
    with pytest.raises(TooManyStatesError):
        near_plans(job_class, 0.1, 10.0, state_limit=1)


@pytest.mark.parametrize(("seed", "states"), [(1, 61), (2, 14), (3, 132), (4, 22), (5, 24)])
def test_a_search_looks_at_few_states(seed: int, states: int) -> None:
    """With 80 phases, states that are not affordable, not better or out of reach are dropped."""
    problem = random_problem(np.random.default_rng(seed), classes=20, phases=4)
    frontier = MixedFrontier.of(problem)
    budget = between(frontier.cheapest_feasible_spend, frontier.largest_useful_spend, 0.05 + 0.07 * seed)
    solution = solve_pure(problem, budget, state_limit=states + 2)

    assert solution.status == "optimal"
    assert solution.weighted_mean_jct_hours == solve_pure(problem, budget).weighted_mean_jct_hours


def test_edges_that_still_fit_are_taken_before_any_search() -> None:
    """The start of the search is within the budget, and as fast as the whole edges below the budget."""
    problem = one_type(
        a_class("dear", (3.0, Table(gpus=(1, 4), speeds=(1.0, 3.0)))),
        a_class("cheap", (3.0, Table(gpus=(1, 2, 4), speeds=(1.0, 1.7, 1.8)))),
    )
    frontier = MixedFrontier.of(problem)
    cost = frontier.merged.cost
    for budget in np.linspace(cost[0], cost[-1], 9).tolist():
        found = _rounded_down(frontier, budget)
        assert found.cost <= budget * (1.0 + 1e-9)
        assert found.cost == pytest.approx(found.options.cost[found.chosen].sum())
        assert found.time == pytest.approx(found.options.time()[found.chosen].sum())
        assert found.time <= frontier.merged.time[frontier.merged.split(budget)[0]] * (1.0 + 1e-9)
    assert _rounded_down(frontier, float(cost[-1])).cost == pytest.approx(cost[-1])
