"""The multiplier table: the multiplier at each budget, the grain of jobs, and the curvature."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from load_scenarios import PROBLEM

from policies.online.multiplier_table import MultiplierTable, Position, _between
from policies.optimum.frontier import MixedFrontier
from policies.speedup import Floats

TABLE = MultiplierTable.of(PROBLEM)


@pytest.mark.parametrize("budget", [31.0, 45.0, 60.0, 75.0])
def test_the_planned_multiplier_matches_the_frontier(budget: float) -> None:
    """The exact optimum's slope lies between the multipliers of the planned edge and the next."""
    position = TABLE.planned(budget)
    frontier = MixedFrontier.of(PROBLEM)
    slope = float(frontier.multiplier_at(np.array([budget]))[0])

    assert TABLE.cost_at(TABLE.rates, position) == pytest.approx(budget)
    assert TABLE.multipliers[position.edge] >= slope >= TABLE.multipliers[position.edge + 1]


def test_the_grain_grows_with_the_size_of_jobs() -> None:
    """Jobs ten times as large and as rare make the same load ten times as coarse."""
    rare = replace(
        PROBLEM,
        classes=tuple(
            replace(
                c,
                arrivals_per_hour=c.arrivals_per_hour / 10.0,
                startup_hours=10.0 * c.startup_hours,
                rescale_hours=10.0 * c.rescale_hours,
                phases=tuple(replace(p, size_gpu_hours=10.0 * p.size_gpu_hours) for p in c.phases),
            )
            for c in PROBLEM.classes
        ),
    )
    small, large = (MultiplierTable.of(problem).grain_hours(60.0) for problem in (PROBLEM, rare))

    assert large == pytest.approx(10.0 * small)


BY_HAND = MultiplierTable(
    multipliers=np.array([8.0, 2.0, 0.5]),
    edge_class=np.array([0, 1]),
    edge_cost=np.array([3.0, 5.0]),
    least_cost=np.array([1.0, 2.0]),
    rates=np.array([2.0, 1.0]),
)
"""Two jobs of the first class and one of the second cost 4 an hour, then 2 x 3 more, then 5 more."""


@pytest.mark.parametrize(
    ("money", "edge", "share", "multiplier"),
    [
        (-1.0, 0, 0.0, 8.0),
        (4.0, 0, 0.0, 8.0),
        (7.0, 0, 0.5, 4.0),
        (10.0, 1, 0.0, 2.0),
        (12.5, 1, 0.5, 1.0),
        (15.0, 2, 0.0, 0.5),
        (99.0, 2, 0.0, 0.5),
    ],
)
def test_money_has_a_position_between_two_edges(
    money: float, edge: int, share: float, multiplier: float
) -> None:
    """The multiplier between two levels is their geometric mean; beyond the ends nothing changes."""
    position = BY_HAND.planned(money)

    assert (position.edge, position.share, position.multiplier) == pytest.approx((edge, share, multiplier))
    assert BY_HAND.position(BY_HAND.rates, money) == position
    cost = min(max(money, 4.0), 15.0)
    assert BY_HAND.rates_cost_at(position) == BY_HAND.cost_at(BY_HAND.rates, position) == pytest.approx(cost)
    assert BY_HAND.is_end(position) == (cost in (4.0, 15.0))
    assert BY_HAND.at(edge) == Position(edge=edge, share=0.0, multiplier=(8.0, 2.0, 0.5)[edge])


def test_without_jobs_any_money_reaches_the_last_edge() -> None:
    """The costs at each edge, with one and three jobs, are those by hand."""
    assert BY_HAND.position(np.zeros(2), 1.0).edge == 2
    assert BY_HAND.costs(np.array([1.0, 3.0])).tolist() == [7.0, 10.0, 25.0]


def test_draws_above_one_minus_the_share_are_one_edge_further() -> None:
    """With a share of 1/4 these are the draws from 0.75 on; with a share of 0 no draw is."""
    mixed = Position(edge=3, share=0.25, multiplier=1.0)
    assert [mixed.level_for(draw) for draw in (0.0, 0.74, 0.75, 0.99)] == [3, 3, 4, 4]
    assert Position(edge=3, share=0.0, multiplier=1.0).level_for(0.999) == 3


def test_the_grain_is_the_squared_cost_of_jobs_over_the_squared_budget() -> None:
    """At 12.50 USD/hour jobs cost 1 + 3 and 2 + 5 / 2; they arrive 2 and 1 times an hour."""
    assert BY_HAND.grain_hours(12.5) == pytest.approx((2.0 * 4.0**2 + 1.0 * 4.5**2) / 12.5**2)
    assert BY_HAND.grain_hours(4.0) == pytest.approx((2.0 * 1.0**2 + 1.0 * 2.0**2) / 4.0**2)


def test_multipliers_lie_between_slopes() -> None:
    """Inner ones are geometric means; outer ones are twice and half the outer slopes; no slope gives 1."""
    assert _between(np.array([16.0, 4.0, 1.0])).tolist() == [32.0, 8.0, 2.0, 0.5]
    assert _between(np.zeros(0)).tolist() == [1.0]


@given(pull=st.floats(0.0, 1.0), jobs=st.lists(st.floats(0.0, 50.0), min_size=3, max_size=3).map(np.array))
def test_a_position_is_drawn_by_its_cost(pull: float, jobs: Floats) -> None:
    """The dearer the jobs are at it, the further it is from the plan's; ends are taken where nothing is."""
    planned = TABLE.planned(60.0)

    def draw(cost: float) -> float:
        return pull * math.tanh((cost - 500.0) / 100.0)

    found = TABLE.drawn(jobs, planned, draw)
    wanted = planned.multiplier * math.exp(draw(TABLE.cost_at(jobs, found)))
    assert found.multiplier == pytest.approx(wanted) or TABLE.is_end(found)
    if pull == 0.0:
        assert found == planned


@pytest.mark.parametrize("limit", [1e-3, 0.5, 100.0])
def test_a_sharp_edge_ends_at_it_or_at_the_limit(limit: float) -> None:
    """Money that must not be exceeded is met exactly where the limit permits."""
    planned, jobs = TABLE.planned(60.0), TABLE.rates
    found = TABLE.drawn(jobs, planned, lambda cost: limit * (cost > 50.0))
    farthest = planned.multiplier * math.exp(limit)

    assert planned.multiplier <= found.multiplier <= farthest * (1.0 + 1e-9)
    met = TABLE.cost_at(jobs, found) == pytest.approx(50.0)
    assert met or found.multiplier == pytest.approx(farthest)
