"""The three versions together, the properties of any optimum, and the policy that follows the optimum."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies_planner import (
    a_class,
    between,
    numbers,
    one_type,
    problems,
    shares,
    smooth_curves,
    steps_of,
    tables,
)

from boa_daemon.testing import a_job
from policies.errors import InvalidProblem, PolicyError
from policies.model import Budget, GpuType, JobClass, Problem
from policies.optimum.boa import BudgetOptimal, solve
from policies.optimum.continuous import ContinuousFrontier, solve_continuous
from policies.optimum.frontier import MixedFrontier
from policies.optimum.solution import ClassSolution, Solution, Version
from policies.speedup import PowerLaw, Table

FACTORS = st.sampled_from([0.25, 0.5, 2.0, 4.0, 1024.0])
"""Powers of two scale without rounding, so that ties stay ties."""
versions = pytest.mark.parametrize("version", get_args(Version))


def budget_for(problem: Problem, share: float) -> float:
    """Return the budget at a share of the way from the least to the largest useful one."""
    frontier = MixedFrontier.of(problem)
    return between(frontier.cheapest_feasible_spend, frontier.largest_useful_spend, share)


def with_classes(problem: Problem, change: Callable[[JobClass], JobClass]) -> Problem:
    """Return the problem with every class changed."""
    return replace(problem, classes=tuple(change(c) for c in problem.classes))


def same_plans(a: Solution, b: Solution) -> None:
    """Assert that both answers take the same types and widths, in the same fractions.

    Not for real widths on tables: equal tables tie there, and rounding says which of them moves first.
    """
    if a.version == "continuous":
        return
    for one, other in zip(a.classes, b.classes, strict=True):
        assert len(one.plans) == len(other.plans)
        for p, q in zip(one.plans, other.plans, strict=True):
            assert p.job_fraction == pytest.approx(q.job_fraction, rel=1e-5, abs=1e-6)
            assert [s.gpu_type for s in p.steps] == [s.gpu_type for s in q.steps]
            assert [s.gpus for s in p.steps] == pytest.approx([s.gpus for s in q.steps], rel=1e-6)


@given(problems(most_classes=2, most_phases=2), shares())
def test_continuous_beats_mixed_beats_pure(problem: Problem, share: float) -> None:
    """Each version with more freedom has no longer JCT, and no version is below its own dual bound."""
    budget = budget_for(problem, share)
    real, mixed, pure = (
        solve(problem, budget, version=v) for v in ("continuous", "integer-mixed", "integer-pure")
    )

    assert real.weighted_mean_jct_hours <= mixed.weighted_mean_jct_hours * (1 + 1e-8)
    assert mixed.weighted_mean_jct_hours <= pure.weighted_mean_jct_hours * (1 + 1e-9)
    for solution in (real, mixed, pure):
        assert solution.dual_bound_hours <= solution.weighted_mean_jct_hours
        assert solution.gap >= 0.0


@versions
@given(problems(most_classes=2, most_phases=2), FACTORS, st.floats(0.01, 0.99))
def test_scaling_rates_and_budget_keeps_the_widths(
    version: Version, problem: Problem, factor: float, share: float
) -> None:
    """Twice the jobs for twice the money: the same widths and the same JCT."""
    budget = budget_for(problem, share)
    more = with_classes(problem, lambda c: replace(c, arrivals_per_hour=c.arrivals_per_hour * factor))
    before, after = solve(problem, budget, version=version), solve(more, budget * factor, version=version)

    same_plans(before, after)
    assert after.weighted_mean_jct_hours == pytest.approx(before.weighted_mean_jct_hours, rel=1e-9)
    assert after.multiplier == pytest.approx(before.multiplier, rel=1e-6)


def larger(job_class: JobClass, factor: float) -> JobClass:
    """Return the class with work and overheads scaled."""
    return replace(
        job_class,
        phases=tuple(replace(p, size_gpu_hours=p.size_gpu_hours * factor) for p in job_class.phases),
        startup_hours=job_class.startup_hours * factor,
        rescale_hours=job_class.rescale_hours * factor,
    )


@versions
@given(problems(most_classes=2, most_phases=2), FACTORS, st.floats(0.01, 0.99))
def test_scaling_sizes_and_budget_scales_the_jct(
    version: Version, problem: Problem, factor: float, share: float
) -> None:
    """Twice the work (and overheads) for twice the money: the same widths, twice the JCT."""
    budget = budget_for(problem, share)
    before = solve(problem, budget, version=version)
    after = solve(with_classes(problem, lambda c: larger(c, factor)), budget * factor, version=version)

    same_plans(before, after)
    assert after.weighted_mean_jct_hours == pytest.approx(before.weighted_mean_jct_hours * factor, rel=1e-9)


@versions
@given(problems(most_classes=2, most_phases=2), FACTORS, st.floats(0.01, 0.99))
def test_scaling_prices_and_budget_keeps_widths_and_jct(
    version: Version, problem: Problem, factor: float, share: float
) -> None:
    """In another currency only the multiplier changes: it is divided by the factor."""
    budget = budget_for(problem, share)
    dearer = replace(
        problem,
        gpu_types=tuple(replace(g, usd_per_gpu_hour=g.usd_per_gpu_hour * factor) for g in problem.gpu_types),
    )
    before, after = solve(problem, budget, version=version), solve(dearer, budget * factor, version=version)

    same_plans(before, after)
    assert after.weighted_mean_jct_hours == pytest.approx(before.weighted_mean_jct_hours, rel=1e-9)
    assert after.multiplier * factor == pytest.approx(before.multiplier, rel=1e-6)


@given(
    problems(curves=smooth_curves(), most_types=1, startup=False, rescale=False),
    st.tuples(*(numbers(0.01, 100.0) for _ in range(3))),
    st.floats(0.01, 0.99),
)
def test_scaling_rates_sizes_and_prices_keeps_real_widths(
    problem: Problem, factors: tuple[float, float, float], share: float
) -> None:
    """On smooth curves widths move by rounding only, whatever the three factors are."""
    rates, sizes, prices = factors
    frontier = ContinuousFrontier.of(problem)
    budget = between(frontier.cheapest_feasible_spend, frontier.largest_useful_spend, share)
    scaled = replace(
        with_classes(
            problem, lambda c: replace(larger(c, sizes), arrivals_per_hour=c.arrivals_per_hour * rates)
        ),
        gpu_types=tuple(replace(g, usd_per_gpu_hour=g.usd_per_gpu_hour * prices) for g in problem.gpu_types),
    )
    before, after = frontier.solution_at(budget), solve_continuous(scaled, budget * rates * sizes * prices)

    for one, other in zip(before.classes, after.classes, strict=True):
        widths = [[step.gpus for step in found.plans[0].steps] for found in (one, other)]
        assert widths[1] == pytest.approx(widths[0], rel=1e-6)
    assert after.mean_jct_hours == pytest.approx(before.mean_jct_hours * sizes, rel=1e-8)


@given(
    smooth_curves(), st.lists(st.tuples(numbers(0.1, 10), numbers(0.1, 10)), min_size=2, max_size=5), shares()
)
def test_equal_speedups_get_equal_widths(
    curve: PowerLaw, loads: list[tuple[float, float]], share: float
) -> None:
    """For any rates and sizes, without overheads, real widths are equal up to rounding."""
    problem = one_type(
        *(a_class(f"c{i}", (size, curve), arrivals_per_hour=rate) for i, (rate, size) in enumerate(loads))
    )
    found = [
        c.plans[0].steps[0].gpus
        for c in solve(problem, budget_for(problem, share), version="continuous").classes
    ]

    assert found == pytest.approx([found[0]] * len(found), rel=1e-7)


@given(tables(), st.lists(st.tuples(numbers(0.1, 10), numbers(0.1, 10)), min_size=2, max_size=5), shares())
def test_equal_tables_use_two_neighbouring_widths_at_most(
    table: Table, loads: list[tuple[float, float]], share: float
) -> None:
    """Equal tables tie at whole widths: all classes are at one vertex of the envelope, or at the next."""
    problem = one_type(
        *(a_class(f"c{i}", (size, table), arrivals_per_hour=rate) for i, (rate, size) in enumerate(loads))
    )
    solution = solve(problem, budget_for(problem, share))
    vertices = table.envelope()[0].tolist()
    used = {vertices.index(s.gpus) for c in solution.classes for p in c.plans for s in p.steps}

    assert max(used) - min(used) <= 1


@versions
@given(problems(startup=False, rescale=False))
def test_the_least_budget_takes_the_best_width_per_gpu_hour(version: Version, problem: Problem) -> None:
    """Every phase has its least price x width / speed, and the fastest width among equals."""
    solution = solve(problem, MixedFrontier.of(problem).cheapest_feasible_spend, version=version)
    for job_class, found in zip(problem.classes, solution.classes, strict=True):
        for number, phase in enumerate(job_class.phases):
            every = [(rate * hours, hours) for _, _, hours, rate in steps_of(problem, phase)]
            least = min(spend for spend, _ in every)
            fastest = min(hours for spend, hours in every if spend <= least * (1 + 1e-13))
            for plan in found.plans:
                assert plan.steps[number].spend == pytest.approx(least, rel=1e-9)
                assert plan.steps[number].hours == pytest.approx(fastest, rel=1e-9)


def test_the_least_budget_takes_one_gpu_where_speed_is_sublinear() -> None:
    """Both classes run on one GPU."""
    curve = PowerLaw(exponent=0.9)
    problem = one_type(a_class("a", (1.0, curve)), a_class("b", (5.0, curve), arrivals_per_hour=2.0))
    solution = solve(problem, 1.0 + 2.0 * 5.0)

    assert [c.plans[0].widths[0].gpus for c in solution.classes] == [1, 1]
    assert solution.mean_jct_hours == pytest.approx((1.0 + 2.0 * 5.0) / 3)


@versions
@given(problems(most_classes=2, most_phases=2), shares())
def test_spend_is_never_above_the_budget(version: Version, problem: Problem, share: float) -> None:
    """Spend is the sum over all steps of price x width x hours."""
    budget = budget_for(problem, share)
    solution = solve(problem, budget, version=version)
    spent = 0.0
    for job_class, found in zip(problem.classes, solution.classes, strict=True):
        for plan in found.plans:
            for step in plan.steps:
                assert step.spend == pytest.approx(problem.price_of(step.gpu_type) * step.gpus * step.hours)
            spent += job_class.arrivals_per_hour * plan.job_fraction * plan.spend

    assert spent <= budget * (1 + 1e-9)
    assert solution.mean_spend == pytest.approx(spent, rel=1e-9)


@given(problems(most_classes=2, most_phases=2))
def test_the_jct_falls_with_the_budget_in_every_version(problem: Problem) -> None:
    """Where jobs have weights, this is the weighted JCT."""
    for version in get_args(Version):
        values = [
            solve(problem, budget_for(problem, share), version=version).weighted_mean_jct_hours
            for share in (0.0, 0.2, 0.5, 0.9, 1.0)
        ]
        assert all(b <= a * (1 + 1e-9) for a, b in itertools.pairwise(values))


@versions
@given(problems(most_classes=3, most_phases=2), shares())
def test_jobs_in_the_system_are_rate_times_jct(version: Version, problem: Problem, share: float) -> None:
    """Little's law: jobs present, class by class and step by step, add up to arrivals x mean JCT."""
    solution = solve(problem, budget_for(problem, share), version=version)
    present = sum(
        job_class.arrivals_per_hour * plan.job_fraction * step.hours
        for job_class, found in zip(problem.classes, solution.classes, strict=True)
        for plan in found.plans
        for step in plan.steps
    )
    arrivals = sum(c.arrivals_per_hour for c in problem.classes)

    assert present == pytest.approx(arrivals * solution.mean_jct_hours, rel=1e-9)


@pytest.mark.parametrize("version", ["integer-mixed", "continuous"])
@given(problems(startup=False, rescale=False), st.floats(0.01, 0.99), st.floats(0.0, 1.0))
def test_the_size_distribution_does_not_matter(
    version: Version, problem: Problem, spread: float, share: float
) -> None:
    """Half the jobs larger and half smaller by the same amount have the same mean JCT for the same money."""
    budget = budget_for(problem, share)
    halves = []
    for job_class in problem.classes:
        for name, factor in (("large", 1 + spread), ("small", 1 - spread)):
            half = replace(larger(job_class, factor), name=f"{job_class.name} {name}")
            halves.append(replace(half, arrivals_per_hour=job_class.arrivals_per_hour / 2))
    split = replace(problem, classes=tuple(halves))

    assert solve(split, budget, version=version).weighted_mean_jct_hours == pytest.approx(
        solve(problem, budget, version=version).weighted_mean_jct_hours, rel=1e-9
    )


@given(problems(startup=False, rescale=False, most_phases=1), shares(), st.data())
def test_no_dynamic_mix_beats_the_mixed_optimum(problem: Problem, share: float, data: st.DataObject) -> None:
    """Parts of a job's work at several widths, in any shares within the budget, gain nothing."""
    budget = budget_for(problem, share)
    bound = solve(problem, budget).weighted_mean_jct_hours
    spent = hours = 0.0
    for job_class in problem.classes:
        every = steps_of(problem, job_class.phases[0])
        parts = np.array([data.draw(st.floats(0.0, 1.0)) for _ in every]) + 1e-9
        parts /= parts.sum()
        for part, (_, _, time, rate) in zip(parts.tolist(), every, strict=True):
            spent += job_class.arrivals_per_hour * part * time * rate
            hours += job_class.arrivals_per_hour * job_class.weight * part * time
    value = hours / sum(c.arrivals_per_hour * c.weight for c in problem.classes)
    if spent <= budget:
        assert value >= bound * (1 - 1e-9)
    else:
        assert value >= solve(problem, spent).weighted_mean_jct_hours * (1 - 1e-9)


@versions
@given(problems(most_classes=2, most_phases=2), st.floats(0.0, 1.0))
def test_equal_weights_change_no_plan(version: Version, problem: Problem, share: float) -> None:
    """Weights of 4 give the plans of weights of 1."""
    budget = budget_for(problem, share)
    plain = with_classes(problem, lambda c: replace(c, weight=1.0))
    heavy = with_classes(problem, lambda c: replace(c, weight=4.0))
    before, after = solve(plain, budget, version=version), solve(heavy, budget, version=version)

    same_plans(before, after)
    assert not after.is_weighted
    assert after.weighted_mean_jct_hours == pytest.approx(after.mean_jct_hours, rel=1e-9)
    assert after.multiplier == pytest.approx(4.0 * before.multiplier, rel=1e-6)


def test_a_budget_in_gpus_is_a_price_of_one() -> None:
    """Counting GPUs gives the same JCT as renting them at 1 USD an hour."""
    classes = (a_class("c", (1.0, PowerLaw(exponent=0.5)), arrivals_per_hour=2.0),)
    counted = Problem(
        classes=classes, gpu_types=(GpuType(name="gpu", usd_per_gpu_hour=3.06),), budget_unit="gpus"
    )

    assert solve(counted, 5.0).mean_jct_hours == solve(one_type(*classes), 5.0).mean_jct_hours


@versions
@pytest.mark.parametrize("budget", [0.0, -1.0, float("nan"), float("inf")])
def test_a_budget_is_positive_and_finite(version: Version, budget: float) -> None:
    """Other budgets are refused before anything is solved."""
    with pytest.raises(InvalidProblem, match="a budget must be a finite number, more than zero"):
        solve(one_type(a_class("c", (1.0, PowerLaw(exponent=0.5)))), budget, version=version)


@versions
def test_one_phase_and_one_width_leave_nothing_to_choose(version: Version) -> None:
    """Every feasible budget gives the only plan."""
    problem = one_type(a_class("c", (3.0, Table(gpus=(4,), speeds=(2.0,)))))
    for budget in (6.0, 6.1, 1000.0):
        solution = solve(problem, budget, version=version)
        assert solution.mean_jct_hours == pytest.approx(3 / 2)
        assert solution.mean_spend == pytest.approx(4 * 3 / 2)
        assert solution.gap == pytest.approx(0.0, abs=1e-12)


@versions
@pytest.mark.parametrize("rate", [1e-9, 1.0, 1e9])
@pytest.mark.parametrize("size", [1e-9, 1.0, 1e9])
@pytest.mark.parametrize("overhead", [0.0, 1e-9, 1e9])
def test_problems_of_every_scale_are_solved(
    version: Version, rate: float, size: float, overhead: float
) -> None:
    """Two classes, one of them coupled, differ by tens of orders of magnitude; JCT and gap stay finite."""
    table = Table(gpus=(1, 2, 4, 8), speeds=(1.0, 1.9, 3.0, 4.1))
    coupled = a_class(
        "far",
        (size, table),
        (2.0 * size, table),
        arrivals_per_hour=rate,
        startup_hours=overhead,
        rescale_hours=overhead,
    )
    problem = one_type(coupled, a_class("near", (1.0, table)))
    budget = budget_for(problem, 0.5)
    solution = solve(problem, budget, version=version)

    assert solution.mean_spend <= budget * (1 + 1e-9)
    assert 0.0 < solution.mean_jct_hours < float("inf")
    assert 0.0 <= solution.gap < 1e-3


def mixed_problem() -> Problem:
    """Return one class; at 1.75 USD/hour 3 of 8 jobs run on 2 GPUs and 5 of 8 on 4 GPUs."""
    return one_type(a_class("c", (1.0, Table(gpus=(1, 2, 4), speeds=(1.0, 1.5, 2.0)))))


def test_the_draw_of_a_job_picks_its_plan() -> None:
    """Fractions of jobs are fractions of the draws on [0, 1)."""
    policy = BudgetOptimal.from_problem(mixed_problem(), Budget(amount=4 / 3 + 0.6 * (2 - 4 / 3)))
    jobs = [a_job(f"j{i}", draw=i / 1000) for i in range(1000)]
    widths = policy.allocate(jobs, now=0.0).widths

    assert [widths[job.id].gpus for job in jobs] == [2] * 400 + [4] * 600


def test_every_job_runs_at_once_with_a_width_of_its_own() -> None:
    """The width does not depend on other jobs."""
    policy = BudgetOptimal.from_problem(mixed_problem(), Budget(amount=1.7))
    jobs = [a_job(f"j{i}", draw=i / 10) for i in range(10)]
    together = policy.allocate(jobs, now=0.0).widths

    assert together == {job.id: policy.allocate([job], now=1e9).widths[job.id] for job in jobs}


def test_a_budget_in_another_unit_is_refused() -> None:
    """A budget in GPUs does not fit a problem in dollars."""
    with pytest.raises(InvalidProblem, match="the budget is 3 GPUs, but the problem counts usd_per_hour"):
        BudgetOptimal.from_problem(mixed_problem(), Budget(amount=3.0, unit="gpus"))


def test_equal_widths_in_two_plans_are_one_option() -> None:
    """In a class of two phases, one of them mixed, the other phase has one option of fraction one."""
    table = Table(gpus=(1, 2), speeds=(1.0, 1.5))
    only = Table(gpus=(4,), speeds=(3.0,))
    solution = solve(one_type(a_class("c", (1.0, only), (1.0, table))), 4 / 3 + 1.1)
    found: ClassSolution = solution.classes[0]

    assert [[fraction for fraction, _ in options] for options in found.options()] == [
        [pytest.approx(1.0)],
        pytest.approx([0.7, 0.3]),
    ]


def test_an_infeasible_budget_is_a_policy_error() -> None:
    """All errors of the solver share this root, so that callers need one except clause."""
    with pytest.raises(PolicyError):
        solve(mixed_problem(), 0.5)
