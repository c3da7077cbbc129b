"""The plan of a class: its hours, spend and widths, and the fractions of jobs at each width."""

from __future__ import annotations

import pytest

from policies.errors import PolicyError
from policies.model import Width
from policies.optimum.options import PhaseOption
from policies.optimum.solution import ClassSolution, PlanShare, ProblemTooLarge, Solution


def step(gpus: float, hours: float, spend: float, *, gpu_type: str = "gpu") -> PhaseOption:
    """Return a phase at a width."""
    return PhaseOption(gpu_type=gpu_type, gpus=gpus, hours=hours, spend=spend)


NARROW = PlanShare(job_fraction=0.25, steps=(step(1, 8.0, 8.0), step(2, 3.0, 6.0)))
WIDE = PlanShare(job_fraction=0.75, steps=(step(4, 2.5, 10.0), step(2, 3.0, 6.0)))
MIXED = ClassSolution(name="c", is_coupled=False, plans=(NARROW, WIDE))


def test_a_plan_takes_the_sum_of_its_phases() -> None:
    """Hours and spend add up, and widths are computed once."""
    assert (NARROW.hours, NARROW.spend) == (8.0 + 3.0, 8.0 + 6.0)
    assert NARROW.widths == (Width("gpu", 1), Width("gpu", 2))
    assert NARROW.widths is NARROW.widths


def test_a_class_takes_the_mean_of_its_plans() -> None:
    """A quarter of the jobs follows the narrow plan."""
    assert MIXED.mean_jct_hours == 0.25 * (8.0 + 3.0) + 0.75 * (2.5 + 3.0)
    assert MIXED.mean_spend == 0.25 * (8.0 + 6.0) + 0.75 * (10.0 + 6.0)


def test_equal_widths_of_two_plans_are_one_option_of_a_phase() -> None:
    """Two plans differ in phase 1 and agree in phase 2; equal GPUs of another type are another option."""
    first, second = MIXED.options()
    assert first == ((0.25, NARROW.steps[0]), (0.75, WIDE.steps[0]))
    assert second == ((0.25 + 0.75, WIDE.steps[1]),)

    types = (step(2, 3.0, 6.0), step(2, 2.0, 8.0, gpu_type="new"))
    plans = tuple(PlanShare(job_fraction=0.5, steps=(one,)) for one in types)
    (only,) = ClassSolution(name="c", is_coupled=False, plans=plans).options()
    assert only == ((0.5, types[0]), (0.5, types[1]))


def test_a_too_large_problem_carries_the_best_solution_and_its_gap() -> None:
    """`ProblemTooLarge` is a `PolicyError`."""
    best = Solution(
        version="integer-pure",
        status="feasible",
        budget=1.0,
        budget_unit="usd_per_hour",
        mean_jct_hours=1.0,
        weighted_mean_jct_hours=1.0,
        mean_spend=1.0,
        multiplier=0.0,
        dual_bound_hours=0.9,
        gap=0.1,
        cheapest_feasible_spend=0.5,
        largest_useful_spend=2.0,
        lower_bound_mean_jct_hours=0.8,
        is_weighted=False,
        classes=(MIXED,),
    )
    with pytest.raises(PolicyError, match="too many pairs") as caught:
        raise ProblemTooLarge("too many pairs", best=best, gap=0.1)
    assert isinstance(caught.value, ProblemTooLarge)
    assert (caught.value.best, caught.value.gap) == (best, 0.1)
