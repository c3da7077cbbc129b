"""The law: monotone, bounded, without windup or oscillation, and blind to the unit of money."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.scenarios import PROBLEM
from policies.errors import InvalidProblem
from policies.frontier import MixedFrontier
from policies.model import GpuType, Money
from policies.pacing import MOST_LEAN, MultiplierTable, Pace, pace_step

PACE = Pace(budget=60.0, window_hours=24.0)
TABLE = MultiplierTable.of(PROBLEM)
spent = st.floats(0.0, 5000.0)
elapsed = st.floats(0.0, 100.0)
present = st.lists(st.floats(0.0, 100.0), min_size=3, max_size=3).map(np.array)
leans = st.floats(-0.75, 1.5)


def books(
    *, spent_usd: float = 0.0, elapsed_hours: float = 0.0, is_refused: bool = False, memory: float = 0.0
) -> Money:
    """Return books whose last tick was six minutes ago."""
    return Money(
        spent_usd=spent_usd,
        elapsed_hours=elapsed_hours,
        is_refused=is_refused,
        memory=memory,
        memory_age_hours=0.1,
    )


@pytest.mark.parametrize("budget", [31.0, 45.0, 60.0, 75.0])
def test_the_table_is_the_frontier(budget: float) -> None:
    """At the believed rates the planned multiplier is between the slopes around the exact optimum's."""
    position = TABLE.planned(budget)
    frontier = MixedFrontier.of(PROBLEM)
    slope = float(frontier.multiplier_at(np.array([budget]))[0])

    assert TABLE.cost_at(TABLE.rates, position) == pytest.approx(budget)
    assert TABLE.multipliers[position.edge] >= slope >= TABLE.multipliers[position.edge + 1]


@given(jobs=present, hours=elapsed, low=spent, high=spent, memory=leans)
def test_more_spent_never_means_wider(
    jobs: np.ndarray[tuple[int], np.dtype[np.float64]], hours: float, low: float, high: float, memory: float
) -> None:
    """The multiplier rises, or stays, with the money spent; but for the last digits."""
    low, high = sorted((low, high))
    less, more = (
        pace_step(PACE, TABLE, jobs, books(spent_usd=s, elapsed_hours=hours, memory=memory)).position
        for s in (low, high)
    )

    assert more.multiplier >= less.multiplier * (1.0 - 1e-6)


@given(jobs=present, hours=elapsed, paid=spent, memory=leans)
def test_it_is_bounded(
    jobs: np.ndarray[tuple[int], np.dtype[np.float64]], hours: float, paid: float, memory: float
) -> None:
    """Multiplier, horizon and memory stay in their ranges whatever the books say."""
    step = pace_step(PACE, TABLE, jobs, books(spent_usd=paid, elapsed_hours=hours, memory=memory))

    assert TABLE.multipliers[-1] <= step.position.multiplier <= TABLE.multipliers[0]
    assert PACE.response_hours <= step.horizon_hours <= PACE.window_hours
    assert -0.75 <= step.memory <= MOST_LEAN


def test_credit_does_not_wind_up() -> None:
    """A month without jobs is worth no more than one window, and teaches nothing."""
    day, month = (pace_step(PACE, TABLE, np.zeros(3), books(elapsed_hours=hours)) for hours in (24.0, 720.0))

    assert month.credit == day.credit == 24.0 * 60.0
    assert month.position == day.position
    assert month.memory == 0.0
    assert PACE.opening_hours(books(elapsed_hours=720.0)) == 720.0 - 24.0


def test_without_stock_credit_counts_as_none() -> None:
    """While the cloud refuses, unspent money neither widens jobs nor teaches anything."""
    jobs = np.ones(3)
    refused = pace_step(PACE, TABLE, jobs, books(elapsed_hours=10.0, is_refused=True))
    served = pace_step(PACE, TABLE, jobs, books(elapsed_hours=10.0))

    assert refused.position.multiplier == pytest.approx(TABLE.planned(60.0).multiplier, rel=0.2)
    assert refused.position.multiplier > served.position.multiplier
    assert refused.memory == 0.0


@pytest.mark.parametrize("ahead_usd", [80.0, -40.0])
def test_nothing_is_learnt_at_an_end_of_the_frontier(ahead_usd: float) -> None:
    """Money that no multiplier could spend, or save, says nothing of beliefs; a contrary memory may shrink."""
    at_end = books(spent_usd=600.0 - ahead_usd, elapsed_hours=10.0)
    within = books(spent_usd=600.0 - ahead_usd / 8.0, elapsed_hours=10.0)
    contrary = replace(at_end, memory=-0.01 * ahead_usd / abs(ahead_usd))

    assert TABLE.is_end(pace_step(PACE, TABLE, np.zeros(3), at_end).position)
    assert pace_step(PACE, TABLE, np.zeros(3), at_end).memory == 0.0
    assert pace_step(PACE, TABLE, np.zeros(3), within).memory * ahead_usd > 0.0
    assert (pace_step(PACE, TABLE, np.zeros(3), contrary).memory - contrary.memory) * ahead_usd > 0.0


def test_the_response_is_longer_where_jobs_are_large() -> None:
    """Of 20, 4 and 8 jobs an hour none moves the burn much; jobs ten times as large and as rare do."""
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
    assert replace(PACE, grain_hours=small).response_hours == 24.0 / 24.0
    assert replace(PACE, grain_hours=large).response_hours == 24.0 / 12.0
    assert 1.0 < replace(PACE, grain_hours=2.5 * small).response_hours < 2.0


@given(factor=st.floats(0.01, 100.0), hours=elapsed, paid=spent, jobs=present)
def test_the_unit_of_money_does_not_matter(
    factor: float, hours: float, paid: float, jobs: np.ndarray[tuple[int], np.dtype[np.float64]]
) -> None:
    """Prices, budget and spend times a factor: the multiplier is divided by it, so no width changes."""
    dearer = replace(PROBLEM, gpu_types=(GpuType(name="gpu", usd_per_gpu_hour=factor),))
    one = pace_step(PACE, TABLE, jobs, books(spent_usd=paid, elapsed_hours=hours))
    other = pace_step(
        replace(PACE, budget=60.0 * factor),
        MultiplierTable.of(dearer),
        jobs,
        books(spent_usd=paid * factor, elapsed_hours=hours),
    )

    assert other.position.multiplier * factor == pytest.approx(one.position.multiplier, rel=1e-6)


@pytest.mark.parametrize("truth", [0.65, 0.8, 1.0, 1.2, 1.5])
def test_a_wrong_belief_is_learnt_without_oscillation(truth: float) -> None:
    """In the fluid limit credit rises to one peak, returns, and overshoots by less than a fifth of it."""
    hours, step_hours, paid, memory = 0.0, 0.05, 0.0, 0.0
    pace, seen = replace(PACE, budget=45.0), list[float]()
    rate = 0.0
    while hours < 72.0:
        money = Money(spent_usd=paid, elapsed_hours=hours, memory=memory, memory_age_hours=step_hours)
        step = pace_step(pace, TABLE, np.zeros(3), money)
        rate = truth * TABLE.cost_at(TABLE.rates, step.position)
        memory, paid, hours = step.memory, paid + rate * step_hours, hours + step_hours
        seen.append(step.credit)

    side = 1.0 if truth <= 1.0 else -1.0
    peak, overshoot = side * max(seen, key=abs), -min(side * credit for credit in seen)
    assert rate == pytest.approx(45.0, rel=0.01)
    assert abs(seen[-1]) <= 0.01 * 45.0 * PACE.response_hours
    assert overshoot <= 0.2 * peak + 1e-6


@pytest.mark.parametrize("values", [{"budget": 0.0}, {"budget": 1.0, "window_hours": float("nan")}])
def test_a_pace_is_positive(values: dict[str, float]) -> None:
    """No budget and no window are refused."""
    with pytest.raises(InvalidProblem, match="more than zero"):
        Pace(**values)
