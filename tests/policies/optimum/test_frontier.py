"""The mixed optimum at every budget, from one sweep."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from strategies_planner import (
    a_class,
    all_points,
    between,
    least_mixed,
    one_type,
    problems,
    shares,
    weighted_hours,
)

from policies.errors import InfeasibleBudget
from policies.model import GpuType, JobClass, Phase, Problem
from policies.optimum.frontier import MixedFrontier, rounded_up
from policies.optimum.solution import Solution
from policies.speedup import PowerLaw, Table


@given(problems(), shares())
def test_the_optimum_is_that_of_listing_every_plan(problem: Problem, share: float) -> None:
    """Listing covers phases, coupled plans, types, weights and start-ups."""
    frontier, points = MixedFrontier.of(problem), all_points(problem)
    least, most = frontier.cheapest_feasible_spend, frontier.largest_useful_spend
    budget = between(least, most, share)

    assert (least, most) == pytest.approx((points[0, 0], points[-1, 0]))
    solution = frontier.solution_at(budget)
    hours = solution.weighted_mean_jct_hours * frontier.weighted_arrivals
    assert hours == pytest.approx(least_mixed(points, budget), rel=1e-9)
    assert hours == pytest.approx(weighted_hours(problem, [c.mean_jct_hours for c in solution.classes]))


@given(problems(), shares())
def test_at_most_one_phase_is_randomised_within_the_budget(problem: Problem, share: float) -> None:
    """One phase, or one coupled class, mixes two plans; fractions add up to one."""
    frontier = MixedFrontier.of(problem)
    budget = between(frontier.cheapest_feasible_spend, frontier.largest_useful_spend, share)
    solution = frontier.solution_at(budget)

    mixed = [c for c in solution.classes if len(c.plans) > 1]
    assert len(mixed) <= 1
    for job_class in solution.classes:
        assert sum(plan.job_fraction for plan in job_class.plans) == pytest.approx(1.0, abs=1e-15)
        assert all(0.0 < plan.job_fraction <= 1.0 for plan in job_class.plans)
        if not job_class.is_coupled:
            assert sum(len(options) > 1 for options in job_class.options()) <= 1
    spent = sum(
        c.arrivals_per_hour * s.mean_spend for c, s in zip(problem.classes, solution.classes, strict=True)
    )
    assert spent <= budget * (1 + 1e-12)
    assert spent == pytest.approx(solution.mean_spend, rel=1e-12)


@given(problems(weights=False))
def test_jct_falls_and_is_convex_with_the_multiplier_as_slope(problem: Problem) -> None:
    """d(sum of arrivals x JCT)/d(budget) = -multiplier between any two vertices."""
    frontier = MixedFrontier.of(problem)
    vertices = frontier.merged.cost
    middle = (vertices[1:] + vertices[:-1]) / 2
    quarter = vertices[:-1] + np.diff(vertices) / 4
    jct = frontier.mean_jct_at(middle) * frontier.arrivals_per_hour
    before = frontier.mean_jct_at(quarter) * frontier.arrivals_per_hour

    assert (before - jct) == pytest.approx(
        frontier.multiplier_at(middle) * (middle - quarter),
        rel=1e-6,
        abs=1e-9 * float(frontier.merged.time[0]),
    )
    assert np.all(np.diff(jct) <= 0)
    assert np.all(np.diff(frontier.multiplier_at(middle)) <= 0)


@given(problems(), shares())
def test_the_dual_bound_equals_the_optimum(problem: Problem, share: float) -> None:
    """The bound is the least Lagrangian over all plans less multiplier x budget."""
    frontier = MixedFrontier.of(problem)
    budget = between(frontier.cheapest_feasible_spend, frontier.largest_useful_spend, min(share, 1.0))
    solution = frontier.solution_at(budget)
    points = all_points(problem)
    dual = float((points[:, 1] + solution.multiplier * points[:, 0]).min()) - solution.multiplier * budget

    assert solution.gap == 0.0
    assert solution.dual_bound_hours <= solution.weighted_mean_jct_hours
    scale = float(points[0, 1]) + solution.multiplier * budget
    assert dual == pytest.approx(solution.dual_bound_hours * frontier.weighted_arrivals, abs=1e-9 * scale)


@given(problems())
def test_the_lower_bound_ignores_weights(problem: Problem) -> None:
    """The plan serves the weights; the bound is the optimum for the plain mean JCT."""
    frontier = MixedFrontier.of(problem)
    budget = between(frontier.cheapest_feasible_spend, frontier.largest_useful_spend, 0.4)
    solution = frontier.solution_at(budget)
    plain = Problem(
        classes=tuple(
            JobClass(
                name=c.name,
                phases=c.phases,
                arrivals_per_hour=c.arrivals_per_hour,
                startup_hours=c.startup_hours,
                rescale_hours=c.rescale_hours,
            )
            for c in problem.classes
        ),
        gpu_types=problem.gpu_types,
    )

    assert solution.lower_bound_mean_jct_hours <= solution.mean_jct_hours * (1 + 1e-9)
    assert solution.lower_bound_mean_jct_hours == pytest.approx(
        MixedFrontier.of(plain).solution_at(budget).mean_jct_hours, rel=1e-9
    )


@given(problems())
def test_an_infeasible_budget_names_the_least_feasible_spend(problem: Problem) -> None:
    """A budget just below the least is refused, and the least itself is feasible."""
    least = float(all_points(problem)[0, 0])
    frontier = MixedFrontier.of(problem)
    with pytest.raises(InfeasibleBudget, match="Raise the budget") as refused:
        frontier.solution_at(least * (1 - 1e-6))

    assert refused.value.least_spend == pytest.approx(least, rel=1e-9)
    assert frontier.solution_at(refused.value.least_spend).mean_spend == refused.value.least_spend


def test_the_error_states_the_budget_the_least_and_a_remedy() -> None:
    """The remedy is to raise the budget."""
    problem = one_type(a_class("c", (4.0, PowerLaw(exponent=0.5)), arrivals_per_hour=2.0))
    with pytest.raises(InfeasibleBudget) as refused:
        MixedFrontier.of(problem).solution_at(3.0)

    assert str(refused.value).startswith(
        "$3.00/hour is too small: 1 class needs at least $8.00/hour. Raise the budget"
    )


@given(problems(), shares())
def test_the_curve_and_the_plans_agree(problem: Problem, share: float) -> None:
    """The values of the frontier at a budget are those of the plans at this budget."""
    frontier = MixedFrontier.of(problem)
    budget = between(frontier.cheapest_feasible_spend, frontier.largest_useful_spend, share)
    solution, at = frontier.solution_at(budget), np.array([budget])
    arrivals = [c.arrivals_per_hour for c in problem.classes]
    plain = float(np.dot(arrivals, [c.mean_jct_hours for c in solution.classes])) / sum(arrivals)

    assert float(frontier.mean_jct_at(at)[0]) == pytest.approx(plain, rel=1e-9)
    assert frontier.least_mean_jct_at(solution.budget) == solution.mean_jct_hours
    assert float(frontier.weighted_mean_jct_at(at)[0]) == solution.weighted_mean_jct_hours
    assert float(frontier.lower_bound_at(at)[0]) == solution.lower_bound_mean_jct_hours


def widths(solution: Solution) -> list[tuple[int, ...]]:
    """Return the widths of each class's first plan."""
    return [tuple(width.gpus for width in c.plans[0].widths) for c in solution.classes]


def test_a_vertex_has_one_plan_and_a_point_between_has_two() -> None:
    """Size 1 with speeds 1, 1.5, 2 on 1, 2, 4 GPUs: vertices at (1, 1), (4/3, 2/3), (2, 1/2)."""
    problem = one_type(a_class("c", (1.0, Table(gpus=(1, 2, 4), speeds=(1.0, 1.5, 2.0)))))
    frontier = MixedFrontier.of(problem)

    assert frontier.merged.cost.tolist() == pytest.approx([1.0, 4 / 3, 2.0])
    for budget, expected in zip(frontier.merged.cost.tolist(), ([(1,)], [(2,)], [(4,)]), strict=True):
        solution = frontier.solution_at(budget)
        assert widths(solution) == expected
        assert len(solution.classes[0].plans) == 1
    half = frontier.solution_at((4 / 3 + 2.0) / 2)
    assert [plan.job_fraction for plan in half.classes[0].plans] == pytest.approx([0.5, 0.5])
    assert half.mean_jct_hours == pytest.approx((2 / 3 + 1 / 2) / 2)
    assert half.multiplier == pytest.approx((2 / 3 - 1 / 2) / (2.0 - 4 / 3))


def test_more_than_the_largest_useful_budget_buys_nothing() -> None:
    """The multiplier is zero and the spend stays at the largest useful one."""
    frontier = MixedFrontier.of(one_type(a_class("c", (1.0, PowerLaw(exponent=0.5, max_gpus=4)))))
    solution = frontier.solution_at(100.0)

    assert solution.mean_spend == frontier.largest_useful_spend == pytest.approx(4**0.5)
    assert solution.multiplier == 0.0
    assert solution.mean_jct_hours == pytest.approx(4**-0.5)


def test_the_plain_mean_counts_a_light_class_exactly() -> None:
    """The weights are 1e9 and 1e-6."""
    table = Table(gpus=(1, 2, 4), speeds=(1.0, 1.5, 2.0))
    heavy = a_class("heavy", (1.0, table), weight=1e9)
    light = a_class("light", (1.0, table), weight=1e-6)
    solution = MixedFrontier.of(one_type(heavy, light)).solution_at(100.0)

    assert solution.mean_jct_hours == pytest.approx(0.5, rel=1e-12)


@pytest.mark.parametrize("rates", [(1e-9, 1e-9), (1e9, 1e9), (1e-9, 1e9), (1e9, 1e-9)])
def test_rates_and_sizes_of_any_scale_are_solved(rates: tuple[float, float]) -> None:
    """Rates and sizes are 1e-9 or 1e9, in all combinations."""
    arrivals, size = rates
    table = Table(gpus=(1, 2, 4), speeds=(1.0, 1.5, 2.0))
    problem = one_type(a_class("c", (size, table), arrivals_per_hour=arrivals))
    solution = MixedFrontier.of(problem).solution_at(5 / 3 * arrivals * size)

    assert solution.mean_jct_hours == pytest.approx((2 / 3 + 1 / 2) / 2 * size)
    assert [plan.job_fraction for plan in solution.classes[0].plans] == pytest.approx([0.5, 0.5])


def test_many_ties_are_broken_the_same_way_each_time() -> None:
    """Two hundred equal classes get the same plans twice, with at most one class mixed."""
    table = Table(gpus=(1, 2, 4, 8), speeds=(1.0, 1.5, 2.0, 2.5))
    problem = one_type(*(a_class(f"c{i}", (1.0, table)) for i in range(200)))
    first, second = (MixedFrontier.of(problem).solution_at(300.123) for _ in range(2))

    assert first == second
    assert sum(len(c.plans) > 1 for c in first.classes) <= 1
    spent = sum(c.mean_spend for c in first.classes)
    assert spent == pytest.approx(300.123)


def test_two_types_with_one_speed_never_use_the_dearer() -> None:
    """Equal tables have prices of 2 and 1 USD."""
    table = Table(gpus=(1, 2, 4), speeds=(1.0, 1.5, 2.0))
    problem = Problem(
        classes=(JobClass(name="c", phases=(Phase(size_gpu_hours=1.0, speedups={"a": table, "b": table}),)),),
        gpu_types=(GpuType(name="a", usd_per_gpu_hour=2.0), GpuType(name="b", usd_per_gpu_hour=1.0)),
    )
    frontier = MixedFrontier.of(problem)

    for budget in np.linspace(1.0, 5.0, 9):
        used = {
            s.gpu_type for plan in frontier.solution_at(float(budget)).classes[0].plans for s in plan.steps
        }
        assert used == {"b"}


@pytest.mark.parametrize(
    ("amount", "said"),
    [
        (8.0, "8"),
        (2.0 / 3.0, "0.666667"),
        (1.0 / 3.0, "0.333334"),
        (123456.01, "123457"),
        (1234561.0, "1.23457e+06"),
        (9.99999949, "10"),
        (0.000123456789, "0.000123457"),
        (7.00000000000001, "7"),
    ],
)
def test_the_least_budget_is_rounded_up_to_six_digits(amount: float, said: str) -> None:
    """The text is enough when a user types it; rounding errors do not raise it."""
    assert rounded_up(amount) == said
    assert float(said) >= amount * (1.0 - 1e-12)


def test_the_error_uses_the_unit_of_the_budget() -> None:
    """Two classes need at least 8 GPUs."""
    table = Table(gpus=(2,), speeds=(1.0,))
    problem = replace(one_type(a_class("a", (3.0, table)), a_class("b", (1.0, table))), budget_unit="gpus")
    with pytest.raises(InfeasibleBudget, match=r"is too small: 2 classes need at least 8 GPUs\. Raise"):
        MixedFrontier.of(problem).solution_at(3.0)
