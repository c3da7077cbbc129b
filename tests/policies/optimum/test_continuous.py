"""Real widths: closed forms, optimality conditions, and the answer as a function of the budget."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import sampled
from strategies_planner import (
    a_class,
    between,
    numbers,
    one_type,
    problems,
    shares,
    smooth_curves,
    tables,
    weighted_hours,
)

from policies.errors import InfeasibleBudget
from policies.model import GpuType, JobClass, Phase, Problem
from policies.optimum.continuous import ContinuousFrontier, solve_continuous
from policies.optimum.frontier import MixedFrontier
from policies.optimum.real_widths import BestTerms, RealWidths
from policies.optimum.solution import Solution
from policies.speedup import Amdahl, Floats, PowerLaw, Table

SMOOTH = problems(curves=smooth_curves(most_gpus=64), rescale=False, most_types=1)
ANY = problems(curves=st.one_of(smooth_curves(most_gpus=12), tables()), rescale=False)


def widths(solution: Solution) -> list[float]:
    """Return the width of each class's first phase."""
    return [c.plans[0].steps[0].gpus for c in solution.classes]


def the_papers_example(budget: float) -> Solution:
    """Return the optimum for Amdahl with a parallel part of 80 % and the square root, both of load 0.4."""
    amdahl = a_class("amdahl", (1.0, Amdahl(parallel_fraction=0.8)), arrivals_per_hour=0.4)
    root = a_class("root", (1.0, PowerLaw(exponent=0.5)), arrivals_per_hour=0.4)
    return solve_continuous(one_type(amdahl, root), budget)


@pytest.mark.parametrize("budget", [0.88, 0.9, 1.0, 1.5, 2.0, 3.0])
def test_the_papers_example(budget: float) -> None:
    """With m = (2.5 b - 0.8) / 1.4 the widths are 2 m and m^2 and the mean JCT is 0.1 + 0.7 / m."""
    m = (2.5 * budget - 0.8) / 1.4
    solution = the_papers_example(budget)

    assert widths(solution) == pytest.approx([2 * m, m * m], rel=1e-9)
    assert solution.mean_jct_hours == pytest.approx(0.1 + 0.7 / m, rel=1e-12)


def test_the_papers_example_at_two_gpus() -> None:
    """Widths 6 and 9, mean JCT a third of an hour."""
    solution = the_papers_example(2.0)

    assert widths(solution) == pytest.approx([6.0, 9.0])
    assert solution.mean_jct_hours == pytest.approx(1 / 3)


def test_a_start_up_changes_the_optimal_width() -> None:
    """Size 1, start-up 1, square root, at width 4: phi = 1/3, mu = (1/6) / (1 - 1/6) / 4 = 0.05."""
    problem = one_type(a_class("c", (1.0, PowerLaw(exponent=0.5)), startup_hours=1.0))
    solution = solve_continuous(problem, 4 * (1 / 2 + 1))

    assert widths(solution) == pytest.approx([4.0])
    assert solution.multiplier == pytest.approx(0.05)
    assert solution.mean_jct_hours == pytest.approx(1 / 2 + 1)


def two_types(fast: float, dear: float, p: float) -> Problem:
    """Return one Amdahl class on a fast and dear type A and a plain type B."""
    speedups = {
        "A": Amdahl(parallel_fraction=p, speed=fast, max_gpus=100_000),
        "B": Amdahl(parallel_fraction=p, max_gpus=100_000),
    }
    return Problem(
        classes=(JobClass(name="c", phases=(Phase(size_gpu_hours=1.0, speedups=speedups),)),),
        gpu_types=(GpuType(name="A", usd_per_gpu_hour=dear), GpuType(name="B", usd_per_gpu_hour=1.0)),
    )


@given(st.floats(1.2, 4.0), st.floats(1.05, 3.0), st.floats(0.5, 0.99))
def test_the_faster_dearer_type_wins_below_a_multiplier(fast: float, markup: float, p: float) -> None:
    """A beats B iff sqrt(mu) < sqrt((1-p)/p) (1/sqrt(vB) - 1/sqrt(vA)) / (sqrt(cA/vA) - sqrt(cB/vB))."""
    dear = fast * markup  # Dearer per unit of work; otherwise this type would always win.
    frontier = ContinuousFrontier.of(two_types(fast, dear, p))
    root = math.sqrt((1 - p) / p) * (1 - 1 / math.sqrt(fast)) / (math.sqrt(dear / fast) - 1)
    switch = root**2
    # The condition holds for widths inside the range: above one GPU of the dear type.
    if math.sqrt(p / ((1 - p) * switch * 1.01 * dear)) <= 1.0:
        return
    chosen = frontier.terms.best(np.array([switch * 0.99, switch * 1.01]))
    assert frontier.terms.gpu_type[chosen.term[:, 0]].tolist() == [0, 1]
    assert chosen.gpus[0, 0] == pytest.approx(math.sqrt(p / ((1 - p) * switch * 0.99 * dear)))

    # Between the two spends the class is randomised between the types, at widths in ratio sqrt(cB / cA).
    spends = frontier.terms.total_spend(chosen)
    solution = frontier.solution_at(float(spends.mean()))
    plans = solution.classes[0].plans
    assert {plan.steps[0].gpu_type for plan in plans} == {"A", "B"}
    by_type = {plan.steps[0].gpu_type: plan.steps[0].gpus for plan in plans}
    assert by_type["A"] / by_type["B"] == pytest.approx(math.sqrt(1 / dear), rel=1e-6)
    assert solution.multiplier == pytest.approx(switch, rel=1e-6)


def test_one_power_law_has_one_best_type_at_every_budget() -> None:
    """The type with the greatest v / c^a: 2 / 3^0.7 = 0.927 loses to 1."""
    speedups = {
        "A": PowerLaw(exponent=0.7, speed=2.0, max_gpus=10_000),
        "B": PowerLaw(exponent=0.7, max_gpus=10_000),
    }
    problem = Problem(
        classes=(JobClass(name="c", phases=(Phase(size_gpu_hours=1.0, speedups=speedups),)),),
        gpu_types=(GpuType(name="A", usd_per_gpu_hour=3.0), GpuType(name="B", usd_per_gpu_hour=1.0)),
    )

    for budget in (1.01, 2.0, 5.0, 10.0):
        assert {s.gpu_type for s in solve_continuous(problem, budget).classes[0].plans[0].steps} == {"B"}


@given(ANY, shares())
def test_every_phase_is_at_its_least_lagrangian(problem: Problem, share: float) -> None:
    """In every plan in use, no type and no width of a fine grid does better at the multiplier."""
    frontier = ContinuousFrontier.of(problem)
    budget = between(frontier.cheapest_feasible_spend, frontier.largest_useful_spend, share)
    solution = frontier.solution_at(budget)
    mu = solution.multiplier
    for job_class, found in zip(problem.classes, solution.classes, strict=True):
        for number, phase in enumerate(job_class.phases):
            startup = job_class.startup_hours if number == 0 else 0.0
            least = math.inf
            for name, curve in phase.speedups.items():
                grid = np.geomspace(curve.min_gpus, curve.max_gpus, 300)
                at = np.array(curve.gpus, dtype=float) if isinstance(curve, Table) else grid
                hours = phase.size_gpu_hours / curve.speed_at(at) + startup
                cost = (job_class.weight + mu * problem.price_of(name) * at) * hours
                least = min(least, float(cost.min()))
            for plan in found.plans:
                step = plan.steps[number]
                here = job_class.weight * step.hours + mu * step.spend
                assert here <= least * (1 + 1e-7)


@given(ANY, shares())
def test_the_budget_is_met_or_has_no_price(problem: Problem, share: float) -> None:
    """Primal and dual feasibility, complementary slackness, and a dual bound that equals the optimum."""
    frontier = ContinuousFrontier.of(problem)
    budget = between(frontier.cheapest_feasible_spend, frontier.largest_useful_spend, share)
    solution = frontier.solution_at(budget)

    assert solution.mean_spend <= budget * (1 + 1e-9)
    assert solution.multiplier >= 0.0
    if solution.multiplier > 0.0:
        assert solution.mean_spend == pytest.approx(budget, rel=1e-8)
    assert 0.0 <= solution.gap <= 1e-9
    assert solution.status == "optimal"
    assert solution.dual_bound_hours <= solution.weighted_mean_jct_hours
    for found in solution.classes:
        assert sum(plan.job_fraction for plan in found.plans) == pytest.approx(1.0, abs=1e-15)
    assert sum(len(found.plans) > 1 for found in solution.classes) <= 1


@given(SMOOTH, st.floats(0.02, 0.95))
def test_the_multiplier_is_the_slope(problem: Problem, share: float) -> None:
    """-d(sum of arrivals x weight x JCT)/d(budget), by finite differences on either side."""
    frontier = ContinuousFrontier.of(problem)
    least, most = frontier.cheapest_feasible_spend, frontier.largest_useful_spend
    if most < least * (1 + 1e-3):
        return
    budget = between(least, most, share)
    step = 1e-5 * (most - least)
    hours, multiplier = frontier.curve_at(np.array([budget - step, budget, budget + step]))
    left, right = (hours[0] - hours[1]) / step, (hours[1] - hours[2]) / step
    noise = 1e-10 * float(hours[0]) / step

    assert right - noise <= multiplier[1] * (1 + 1e-3)
    assert multiplier[1] <= (left + noise) * (1 + 1e-3)


@given(ANY)
def test_jct_falls_and_is_convex_in_the_budget(problem: Problem) -> None:
    """Checked over thirty budgets from the least to beyond the largest useful one."""
    frontier = ContinuousFrontier.of(problem)
    least, most = frontier.cheapest_feasible_spend, frontier.largest_useful_spend
    at = np.linspace(least, least + 1.2 * (most - least) + 1e-3 * least, 30)
    hours, multiplier = frontier.curve_at(at)
    tiny = 1e-10 * hours[0]

    assert np.all(np.diff(hours) <= tiny)
    assert np.all(np.diff(hours, 2) >= -tiny)
    assert np.all(np.diff(multiplier) <= 1e-9 * multiplier[:-1] + 1e-12 * multiplier[0])


@given(ANY, st.lists(shares(), min_size=1, max_size=5))
def test_the_curve_and_the_plans_agree(problem: Problem, many: list[float]) -> None:
    """Many budgets in one search give the same as one at a time."""
    frontier = ContinuousFrontier.of(problem)
    at = [between(frontier.cheapest_feasible_spend, frontier.largest_useful_spend, share) for share in many]
    hours, _ = frontier.curve_at(np.array(at))
    for budget, expected in zip(at, hours.tolist(), strict=True):
        found = frontier.solution_at(budget).classes
        assert weighted_hours(problem, [c.mean_jct_hours for c in found]) == pytest.approx(expected, rel=1e-7)


@given(problems(rescale=False, startup=False), shares())
def test_on_tables_real_widths_equal_mixed_widths_in_value(problem: Problem, share: float) -> None:
    """Real widths on the envelope and mixes of whole widths have the same JCT, spend and budget range."""
    whole, real = MixedFrontier.of(problem), ContinuousFrontier.of(problem)
    budget = between(whole.cheapest_feasible_spend, whole.largest_useful_spend, share)
    a, b = whole.solution_at(budget), real.solution_at(budget)

    assert b.weighted_mean_jct_hours == pytest.approx(a.weighted_mean_jct_hours, rel=1e-9)
    assert b.mean_spend == pytest.approx(a.mean_spend, rel=1e-9)
    assert b.lower_bound_mean_jct_hours == pytest.approx(a.lower_bound_mean_jct_hours, rel=1e-9)
    assert real.cheapest_feasible_spend == pytest.approx(whole.cheapest_feasible_spend, rel=1e-9)
    assert real.largest_useful_spend == pytest.approx(whole.largest_useful_spend, rel=1e-9)


@settings(max_examples=sampled(60))
@given(problems(most_classes=2), shares())
def test_coupled_classes_are_never_worse_than_at_whole_widths(problem: Problem, share: float) -> None:
    """The grid has every whole width of a table; the gap counts the gain of a finer grid."""
    whole, real = MixedFrontier.of(problem), ContinuousFrontier.of(problem)
    budget = between(whole.cheapest_feasible_spend, whole.largest_useful_spend, share)
    solution = real.solution_at(budget)

    assert real.cheapest_feasible_spend <= whole.cheapest_feasible_spend * (1 + 1e-9)
    assert solution.weighted_mean_jct_hours <= whole.solution_at(budget).weighted_mean_jct_hours * (1 + 1e-8)
    assert 0.0 <= solution.gap < 1e-3
    assert solution.mean_spend <= budget * (1 + 1e-9)


def test_a_coupled_class_of_equal_phases_is_one_phase() -> None:
    """Three phases of one power law have one width, as has one phase of the summed size."""
    curve = PowerLaw(exponent=0.5, max_gpus=50)
    three = one_type(a_class("c", (1.0, curve), (2.0, curve), (3.0, curve), rescale_hours=0.5))
    solution = solve_continuous(three, 15.0)

    one = solve_continuous(one_type(a_class("c", (6.0, curve))), 15.0)
    assert one.mean_jct_hours == pytest.approx(6 / (15 / 6))
    assert one.mean_jct_hours <= solution.mean_jct_hours <= one.mean_jct_hours * (1 + 1e-4)
    assert solution.dual_bound_hours <= one.mean_jct_hours * (1 + 1e-12)


@given(problems(curves=st.one_of(smooth_curves(most_gpus=12), tables()), rescale=False, startup=False))
def test_an_infeasible_budget_names_the_least_feasible_spend(problem: Problem) -> None:
    """Without overheads this is the least at whole widths, and it is feasible."""
    frontier = ContinuousFrontier.of(problem)
    with pytest.raises(InfeasibleBudget) as refused:
        frontier.solution_at(frontier.cheapest_feasible_spend * (1 - 1e-6))

    least = refused.value.least_spend
    assert least == pytest.approx(MixedFrontier.of(problem).cheapest_feasible_spend, rel=1e-9)
    assert frontier.solution_at(least).mean_spend == pytest.approx(least, rel=1e-9)


def test_equal_curves_have_equal_widths_whatever_the_load() -> None:
    """Without overheads the width depends on rates and sizes only through the multiplier."""
    curve = Amdahl(parallel_fraction=0.95)
    classes = [a_class(f"c{i}", (10.0**i, curve), arrivals_per_hour=3.0**-i) for i in range(-4, 5)]
    problem = one_type(*classes)
    least = ContinuousFrontier.of(problem).cheapest_feasible_spend

    found = widths(solve_continuous(problem, 1.3 * least))
    assert found == pytest.approx([found[0]] * len(classes), rel=1e-12)


@given(numbers(1e-9, 1e9), numbers(1e-9, 1e9), numbers(1e-3, 1e3))
def test_the_papers_example_holds_at_every_scale(rate: float, size: float, price: float) -> None:
    """Widths are 6 and 9 for rates, sizes and prices over many orders of magnitude."""
    problem = one_type(
        a_class("amdahl", (size, Amdahl(parallel_fraction=0.8)), arrivals_per_hour=rate),
        a_class("root", (size, PowerLaw(exponent=0.5)), arrivals_per_hour=rate),
        price=price,
    )
    solution = solve_continuous(problem, 5.0 * rate * size * price)

    assert widths(solution) == pytest.approx([6.0, 9.0], rel=1e-9)
    assert solution.mean_jct_hours == pytest.approx(size / 3, rel=1e-9)


@pytest.mark.parametrize("weight", [1e-9, 1e9])
def test_a_heavy_class_runs_wide_and_the_bound_ignores_weights(weight: float) -> None:
    """The light class runs on one GPU, and the lower bound is that of equal weights."""
    curve = PowerLaw(exponent=0.5)
    problem = one_type(a_class("a", (1.0, curve), weight=weight), a_class("b", (1.0, curve)))
    solution = solve_continuous(problem, 4.0)

    wide, narrow = (1, 0) if weight < 1 else (0, 1)
    assert widths(solution)[wide] > 8.9
    assert widths(solution)[narrow] == pytest.approx(1.0)
    # Unweighted both would take 4 GPUs: half an hour each.
    assert solution.lower_bound_mean_jct_hours == pytest.approx(0.5)
    assert solution.mean_jct_hours == pytest.approx((1 + 1 / 3) / 2, rel=1e-6)


@pytest.mark.parametrize(
    ("classes", "most"),
    [
        (
            (a_class("a", (1.0, Amdahl(parallel_fraction=0.8))), a_class("b", (1.0, PowerLaw(exponent=0.5)))),
            60,
        ),
        ((a_class("a", (1.0, Table(gpus=(1, 2, 4, 8), speeds=(1.0, 1.8, 2.9, 3.7)))),), 7),
        (
            (
                a_class("a", (1.0, Amdahl(parallel_fraction=0.8))),
                a_class("b", (1.0, Table(gpus=(1, 2, 4, 8), speeds=(1.0, 1.8, 2.9, 3.7)))),
            ),
            60,
        ),
    ],
)
def test_a_search_takes_few_steps_to_two_neighbouring_multipliers(
    classes: tuple[JobClass, ...], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spend is above the budget at one and at most the budget at the other; 7 steps suffice on tables."""
    frontier = ContinuousFrontier.of(one_type(*classes))
    terms, asked = frontier.terms, []
    best = type(terms).best

    def counted(self: RealWidths, multipliers: Floats) -> BestTerms:
        asked.append(len(multipliers))
        return best(self, multipliers)

    monkeypatch.setattr(RealWidths, "best", counted)
    ends = frontier.cheapest_feasible_spend, frontier.largest_useful_spend
    for budget in np.linspace(*ends, 7)[1:-1].tolist():
        asked.clear()
        under, over, multiplier = frontier.multipliers_at(np.array([budget]))
        assert len(asked) <= most
        assert under[0] <= multiplier[0] <= over[0]
        assert terms.total_spend(terms.best(under))[0] > budget >= terms.total_spend(terms.best(over))[0]
        slope = terms.total_hours(terms.best(over))[0] - terms.total_hours(terms.best(under))[0]
        assert slope >= 0.0
