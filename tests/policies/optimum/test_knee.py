"""The knee: the point furthest below the chord, on curves whose knee is known in closed form."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.optimum.knee import NEAR_FLOOR, knee_of


def test_a_corner_is_the_knee() -> None:
    """Two straight lines have their knee where they meet."""
    knee = knee_of(np.array([1.0, 3.0, 10.0]), np.array([9.0, 2.0, 0.9]))

    assert (knee.budget, knee.hours) == (3.0, 2.0)
    assert (knee.cliff_budget, knee.cliff_hours, knee.floor_hours) == (1.0, 9.0, 0.9)


def test_a_straight_line_has_its_knee_where_it_ends() -> None:
    """Every dollar is worth the same; the line counts as ended after 95 % of its drop."""
    knee = knee_of(np.array([1.0, 3.0]), np.array([9.0, 1.0]))

    assert knee.budget == pytest.approx(1.0 + 0.95 * 2.0)
    assert knee.hours == pytest.approx(9.0 - 0.95 * 8.0)


def test_a_hyperbola_bends_where_its_slope_is_that_of_the_chord() -> None:
    """T = 1/b from b = 1 to b2: the slope -1/b^2 equals the chord's -1/b2 at b = sqrt(b2)."""
    budget = np.linspace(1.0, 101.0, 200_001)
    knee = knee_of(budget, 1.0 / budget)
    flat = 1.0 / (1.0 / 101.0 + NEAR_FLOOR * (1.0 - 1.0 / 101.0))

    assert knee.flat_budget == pytest.approx(flat, rel=1e-6)
    assert knee.budget == pytest.approx(np.sqrt(flat), rel=1e-3)


def test_an_exponential_bends_where_its_slope_is_that_of_the_chord() -> None:
    """T = exp(-b) from 0 to b2: exp(-b) = (1 - exp(-b2)) / b2."""
    budget = np.linspace(0.0, 30.0, 300_001)
    knee = knee_of(budget, np.exp(-budget))
    flat = -np.log(NEAR_FLOOR)

    assert knee.flat_budget == pytest.approx(flat, rel=1e-6)
    assert knee.budget == pytest.approx(-np.log((1.0 - NEAR_FLOOR) / flat), rel=1e-3)


def test_a_curve_of_one_point_has_its_knee_at_that_point() -> None:
    """Where money saves no time, there is only one budget to choose."""
    knee = knee_of(np.array([4.0]), np.array([2.0]))

    assert (knee.budget, knee.hours, knee.flat_budget, knee.floor_hours) == (4.0, 2.0, 4.0, 2.0)


@st.composite
def curves(draw: st.DrawFn) -> tuple[list[float], list[float]]:
    """Draw a falling convex curve by its steps and slopes."""
    steps = draw(st.lists(st.floats(0.01, 10.0), min_size=1, max_size=12))
    slopes = sorted(draw(st.lists(st.floats(0.01, 10.0), min_size=len(steps), max_size=len(steps))))[::-1]
    budgets = np.cumsum([draw(st.floats(0.1, 10.0)), *steps])
    drops = np.array(steps) * np.array(slopes)
    hours = 1.0 + np.append(np.cumsum(drops[::-1])[::-1], 0.0)
    return budgets.tolist(), hours.tolist()


@given(curve=curves(), money=st.floats(0.01, 100.0), time=st.floats(0.01, 100.0))
def test_units_do_not_move_the_knee(
    curve: tuple[list[float], list[float]], money: float, time: float
) -> None:
    """In cents and minutes the knee is equally far below the chord."""
    budgets, hours = np.array(curve[0]), np.array(curve[1])
    here, there = knee_of(budgets, hours), knee_of(budgets * money, hours * time)

    def depth(knee: object, budget: float, at: float) -> float:
        span = knee.flat_budget - knee.cliff_budget  # type: ignore[attr-defined]
        drop = (1.0 - NEAR_FLOOR) * (knee.cliff_hours - knee.floor_hours)  # type: ignore[attr-defined]
        return (knee.cliff_hours - at) / drop - (budget - knee.cliff_budget) / span  # type: ignore[attr-defined]

    assert depth(there, there.budget, there.hours) == pytest.approx(
        depth(here, here.budget, here.hours), abs=1e-6
    )


@given(curve=curves())
def test_the_knee_is_on_the_curve_and_in_the_range(curve: tuple[list[float], list[float]]) -> None:
    """The range is from the cliff to the flat part."""
    budgets, hours = np.array(curve[0]), np.array(curve[1])
    knee = knee_of(budgets, hours)

    assert knee.cliff_budget <= knee.budget <= knee.flat_budget <= budgets[-1] * (1 + 1e-12)
    assert knee.hours == pytest.approx(float(np.interp(knee.budget, budgets, hours)), rel=1e-9)
