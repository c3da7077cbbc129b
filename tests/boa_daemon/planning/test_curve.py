"""The curve of mean JCT against budget: one sweep gives the answers of solving at each budget."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from boa_daemon.planning.curve import Curve
from policies.errors import InfeasibleBudget
from policies.model import GpuType, JobClass, Phase, Problem
from policies.optimum.boa import solve
from policies.optimum.solution import Version
from policies.speedup import Amdahl, PowerLaw, SpeedupCurve, Table


def a_problem(*curves: SpeedupCurve, **changes: float) -> Problem:
    """Return a problem with a class of two GPU-hours for each curve; changes go to the first class."""
    classes = tuple(
        JobClass(
            name=f"c{number}",
            phases=(Phase(size_gpu_hours=2.0, speedups={"gpu": curve}),),
            **(changes if number == 0 else {}),
        )
        for number, curve in enumerate(curves)
    )
    return Problem(classes=classes, gpu_types=(GpuType(name="gpu", usd_per_gpu_hour=2.0),))


TABLE = Table(gpus=(1, 2, 4, 8), speeds=(1.0, 1.8, 3.0, 4.0))
AMDAHL = Amdahl(parallel_fraction=0.9, max_gpus=16)


@pytest.mark.parametrize("version", get_args(Version))
def test_the_curve_matches_solve_at_each_budget(version: Version) -> None:
    """The pure version is drawn as the mixed one, which is its lower bound."""
    problem = a_problem(TABLE, AMDAHL, weight=3.0)
    curve = Curve.of(problem, version)
    budgets = np.linspace(curve.cheapest, 1.1 * curve.largest_useful, 9)
    drawn = curve.weighted_hours_at(budgets)

    for budget, hours in zip(budgets.tolist(), drawn.tolist(), strict=True):
        solution = solve(problem, budget, version=version)
        assert curve.solution_at(budget).weighted_mean_jct_hours == pytest.approx(
            solution.weighted_mean_jct_hours
        )
        if version == "integer-pure":
            assert hours <= solution.weighted_mean_jct_hours * (1.0 + 1e-12)
        else:
            assert hours == pytest.approx(solution.weighted_mean_jct_hours)


@pytest.mark.parametrize("version", get_args(Version))
def test_the_vertices_run_from_the_cliff_to_the_floor_and_are_convex(version: Version) -> None:
    """The cliff is the least budget, and above the floor more money saves nothing."""
    curve = Curve.of(a_problem(TABLE, PowerLaw(exponent=0.6, max_gpus=32)), version)
    budgets, hours = curve.vertices()

    assert budgets[0] == pytest.approx(curve.cheapest)
    assert budgets[-1] == pytest.approx(curve.largest_useful)
    slopes = np.diff(hours) / np.diff(budgets)
    assert (slopes < 0.0).all()
    assert (np.diff(slopes) >= -1e-6 * np.abs(slopes[:-1])).all()


def test_mean_jct_at_is_the_unweighted_mean_of_the_weighted_plan() -> None:
    """The curve itself is the weighted mean."""
    problem = a_problem(TABLE, AMDAHL, weight=3.0)
    curve = Curve.of(problem, "integer-mixed")
    budget = curve.knee().budget

    assert curve.mean_jct_at(budget) == solve(problem, budget).mean_jct_hours
    assert curve.mean_jct_at(budget) != pytest.approx(curve.knee().hours)


@pytest.mark.parametrize("version", get_args(Version))
def test_a_budget_below_the_cliff_is_infeasible(version: Version) -> None:
    """The error has the least budget."""
    curve = Curve.of(a_problem(TABLE), version)

    with pytest.raises(InfeasibleBudget) as refusal:
        curve.solution_at(0.9 * curve.cheapest)
    assert refusal.value.least_spend == pytest.approx(curve.cheapest)


@pytest.mark.parametrize("version", get_args(Version))
def test_a_problem_with_one_width_is_a_curve_of_one_budget(version: Version) -> None:
    """The cliff, the knee and the floor are the same point."""
    curve = Curve.of(a_problem(Table(gpus=(4,), speeds=(4.0,))), version)
    knee = curve.knee()

    assert curve.cheapest == pytest.approx(curve.largest_useful) == pytest.approx(4 * 2.0 * 0.5)
    assert knee.budget == pytest.approx(curve.cheapest)
    assert knee.hours == knee.floor_hours == pytest.approx(0.5)
