"""Plans of classes with a rescale cost between phases: the whole hull, by shortest paths."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import sampled
from strategies_planner import (
    a_class,
    coupled_classes,
    every_plan,
    numbers,
    one_type,
    plan_cost_and_time,
    undominated,
)

from policies.optimum import coupled_plans
from policies.optimum.coupled_plans import CoupledClass, PlanHull, best_costs, plan_hulls
from policies.optimum.frontier import MixedFrontier
from policies.optimum.hull import lower_hulls
from policies.speedup import Table


@given(st.lists(coupled_classes(), min_size=1, max_size=3))
def test_the_hull_of_plans_is_that_of_all_plans(classes: list[CoupledClass]) -> None:
    """Classes solved together have the hulls that listing every plan gives."""
    for job_class, hull in zip(classes, plan_hulls(classes), strict=True):
        points = every_plan(job_class)
        chain = lower_hulls(points[:, 0], points[:, 1], np.zeros(len(points), dtype=np.int64), groups=1)

        assert hull.cost[[0, -1]] == pytest.approx(chain.cost[[0, -1]], rel=1e-9)
        assert np.interp(chain.cost, hull.cost, hull.time) == pytest.approx(chain.time, rel=1e-9)
        for cost, time, plan in zip(hull.cost, hull.time, hull.columns.tolist(), strict=True):
            assert plan_cost_and_time(job_class, tuple(plan)) == pytest.approx((cost, time))


@given(coupled_classes(), numbers(1e-6, 1e6))
def test_a_shortest_path_is_the_least_of_all_plans(job_class: CoupledClass, multiplier: float) -> None:
    """The least is of time + multiplier x cost."""
    points = every_plan(job_class)

    assert best_costs(job_class, np.array([multiplier])) == pytest.approx(
        [(points[:, 1] + multiplier * points[:, 0]).min()]
    )


def hull_of(job_class: CoupledClass) -> PlanHull:
    """Return the hull of one class."""
    return plan_hulls([job_class])[0]


def test_a_rescale_dearer_than_any_width_keeps_one_width() -> None:
    """With a rescale of a thousand hours no plan on the hull changes its width."""
    rng = np.random.default_rng(3)
    job_class = CoupledClass(
        phase_time=rng.uniform(0.1, 1.0, (30, 8)),
        rate=np.arange(1.0, 9.0),
        startup_hours=0.1,
        rescale_hours=1000.0,
    )

    assert all(len(set(plan)) == 1 for plan in hull_of(job_class).columns.tolist())


def test_a_rescale_that_costs_next_to_nothing_is_free() -> None:
    """The hull with a rescale of 1e-12 hours is that of uncoupled phases."""
    table = Table(gpus=(1, 2, 4, 8), speeds=(1.0, 1.8, 2.9, 3.7))
    late = Table(gpus=(1, 2, 4, 8), speeds=(1.0, 2.0, 3.9, 7.0))
    phases = ((1.0, table), (2.0, late), (0.5, table))
    coupled = MixedFrontier.of(one_type(a_class("c", *phases, rescale_hours=1e-12)))
    free = MixedFrontier.of(one_type(a_class("c", *phases)))
    at = np.linspace(free.cheapest_feasible_spend * (1 + 1e-9), free.largest_useful_spend, 50)

    assert coupled.mean_jct_at(at) == pytest.approx(free.mean_jct_at(at), rel=1e-9)


def test_linear_speeds_tie_all_plans_of_one_width() -> None:
    """Where speed is linear every width costs the same, so the widest plan is the only vertex."""
    widths = np.array([1.0, 2.0, 4.0, 8.0])
    job_class = CoupledClass(
        phase_time=np.array([[3.0], [5.0], [7.0]]) / widths, rate=widths, startup_hours=0.0, rescale_hours=0.2
    )

    assert hull_of(job_class).columns.tolist() == [[3, 3, 3]]


def test_the_ends_are_exact_where_time_and_money_are_far_apart() -> None:
    """The cheapest plan saves a billionth and takes a million times as long; it is still the first vertex."""
    job_class = CoupledClass(
        phase_time=np.array([[1e6, 1.0], [1e6, 1.0]]),
        rate=np.array([1e-6, 1.0 + 1e-9]),
        startup_hours=0.0,
        rescale_hours=10.0,
    )
    hull = hull_of(job_class)

    assert hull.columns[0].tolist() == [0, 0]
    assert hull.cost[0] == pytest.approx(2.0, rel=1e-12)
    assert hull.columns[-1].tolist() == [1, 1]


@settings(max_examples=sampled(30))
@given(st.integers(0, 10_000), st.sampled_from([1e-9, 1e9]))
def test_the_search_ends_on_a_hundred_phases_of_ties(seed: int, scale: float) -> None:
    """Speeds of a few whole numbers make thousands of plans tie; the hull is convex."""
    rng = np.random.default_rng(seed)
    widths = np.arange(1.0, 9.0)
    speeds = rng.integers(1, 4, (100, 8)).astype(float)
    hull = hull_of(
        CoupledClass(
            phase_time=scale / speeds, rate=widths, startup_hours=0.0, rescale_hours=float(scale * 0.5)
        )
    )

    slopes = np.diff(hull.time) / np.diff(hull.cost)
    assert np.all(slopes < 0)
    assert np.all(np.diff(slopes) >= -1e-9 * np.abs(slopes[1:]))
    points = np.column_stack([hull.cost, hull.time])
    assert len(undominated(points)) == len(points)


def four_phases() -> CoupledClass:
    """Return a class of four phases, each of five columns."""
    rng = np.random.default_rng(7)
    return CoupledClass(
        phase_time=rng.uniform(0.1, 1.0, (4, 5)),
        rate=np.arange(1.0, 6.0),
        startup_hours=0.1,
        rescale_hours=0.05,
    )


def test_passes_of_bounded_memory_give_the_hull_of_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """One path at a time gives the same hull as all at once."""
    job_class = four_phases()
    whole = hull_of(job_class)
    monkeypatch.setattr(coupled_plans, "ROW_CELLS", 1)
    parts = hull_of(job_class)
    assert (parts.cost, parts.time) == (pytest.approx(whole.cost), pytest.approx(whole.time))


@pytest.mark.parametrize("seed", range(6))
def test_each_chord_is_searched_once_until_no_plan_lies_below_one(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the two ends alone, three classes together find every vertex with about two paths for each."""
    rng = np.random.default_rng(seed)
    classes = [
        CoupledClass(
            phase_time=rng.uniform(0.1, 1.0, (phases, 5)),
            rate=np.arange(1.0, 6.0) * 10.0 ** (phases - 3),
            startup_hours=0.1,
            rescale_hours=0.02,
        )
        for phases in (2, 3, 4)
    ]
    asked: list[list[tuple[int, float]]] = []
    best_plans = coupled_plans._best_plans

    def counted(stack: Any, owner: Any, multiplier: Any) -> Any:
        asked.append(list(zip(owner.tolist(), multiplier.tolist(), strict=True)))
        return best_plans(stack, owner, multiplier)

    monkeypatch.setattr(coupled_plans, "SPREAD", np.array(coupled_plans.ENDS))
    monkeypatch.setattr(coupled_plans, "_best_plans", counted)
    hulls = plan_hulls(classes)

    for job_class, hull in zip(classes, hulls, strict=True):
        points = every_plan(job_class)
        chain = lower_hulls(points[:, 0], points[:, 1], np.zeros(len(points), dtype=np.int64), groups=1)
        assert hull.cost == pytest.approx(chain.cost, rel=1e-9)
        assert hull.time == pytest.approx(chain.time, rel=1e-9)
    assert len(asked[0]) == 4 * len(classes)
    chords = [chord for step in asked[1:] for chord in step]
    assert len(chords) == len(set(chords)) <= 2 * sum(len(hull.cost) for hull in hulls)


def test_plans_within_a_tolerance_of_a_chord_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """One phase of three columns: at multiplier 1 the ends cost 4 and the middle one 0.005 of that less."""
    monkeypatch.setattr(coupled_plans, "SPREAD", np.array(coupled_plans.ENDS))
    job_class = CoupledClass(
        phase_time=np.array([[3.0, 2.0 * 0.99, 1.0]]),
        rate=np.array([1.0 / 3.0, 2.0 / (2.0 * 0.99), 3.0]),
        startup_hours=0.0,
        rescale_hours=0.0,
    )
    assert [len(plan_hulls([job_class], tolerance=by)[0].cost) for by in (0.0, 0.004, 0.006)] == [3, 3, 2]


def test_paths_are_split_into_passes_without_changing_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven paths of 4 x 5 cells, two per pass of 40 cells, take four passes."""
    job_class = four_phases()
    multipliers, passes = np.geomspace(0.01, 10.0, 7), []
    whole, one_pass = best_costs(job_class, multipliers), coupled_plans._one_pass

    def counted(stack: Any, owner: Any, multiplier: Any) -> Any:
        passes.append(len(owner))
        return one_pass(stack, owner, multiplier)

    monkeypatch.setattr(coupled_plans, "ROW_CELLS", 40)
    monkeypatch.setattr(coupled_plans, "_one_pass", counted)
    assert best_costs(job_class, multipliers).tolist() == whole.tolist()
    assert passes == [2, 2, 2, 1]


def test_the_first_paths_are_spread_around_the_mean_rate_of_each_class() -> None:
    """Multipliers fall over two orders of magnitude to each side, with two more beyond at each end."""
    hours = np.ones((1, 2))
    classes = [
        CoupledClass(phase_time=hours, rate=np.array(rates), startup_hours=0.0, rescale_hours=0.0)
        for rates in ([1.0, 3.0], [20.0, 20.0])
    ]
    owner, multipliers = coupled_plans._first_multipliers(classes)
    first, second = multipliers[owner == 0], multipliers[owner == 1]
    assert first == pytest.approx(10.0 * second)
    assert (2.0 * first)[[0, 1, 2, -3, -2, -1]] == pytest.approx([1e18, 1e9, 1e2, 1e-2, 1e-9, 1e-18])
    assert (np.diff(first) < 0.0).all()
