"""The law: monotone, bounded, without oscillation, calm under rhythms, blind to the unit of money."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from load_scenarios import PROBLEM
from unnamed import by_place, hidden, hurried, unnamed

import policies.online
from policies.errors import InvalidProblem
from policies.model import GpuType, Money
from policies.online.multiplier_table import MultiplierTable
from policies.online.pacing import MONTH_HOURS, TOLERANCE, Pace, Step, pace_step
from policies.speedup import Floats

PACE = Pace(budget=60.0, grain_hours=0.05)
TABLE = MultiplierTable.of(PROBLEM)
spent = st.floats(0.0, 50_000.0)
elapsed = st.floats(0.0, 730.0)
present = st.lists(st.floats(0.0, 100.0), min_size=3, max_size=3).map(np.array)
memories = st.one_of(
    st.just(()),
    st.tuples(st.floats(-1000.0, 1000.0), st.floats(0.0, 50_000.0), st.floats(1.0, 1000.0), st.just(1.0)),
)


def books(
    *,
    spent: float = 0.0,
    elapsed_hours: float = 0.0,
    is_refused: bool = False,
    memory: tuple[float, ...] = (),
) -> Money:
    """Return books in a month of 730 hours that began with them; the last tick was six minutes ago."""
    return Money(
        spent=spent,
        elapsed_hours=elapsed_hours,
        month_elapsed_hours=elapsed_hours % MONTH_HOURS,
        month_left_hours=MONTH_HOURS - elapsed_hours % MONTH_HOURS,
        is_refused=is_refused,
        memory=memory,
        memory_age_hours=0.1,
    )


def fluid_run(pace: Pace, load: Floats, *, noise: Floats | None = None) -> tuple[list[Step], Floats]:
    """Run the law in the fluid limit: each hour so many times the stated load comes, paid at once."""
    steps, paid, spent_usd, memory = list[Step](), list[float](), 0.0, tuple[float, ...]()
    for hour, factor in enumerate(load.tolist()):
        money = books(spent=spent_usd, elapsed_hours=float(hour), memory=memory)
        step = pace_step(pace, TABLE, np.zeros(3), replace(money, memory_age_hours=1.0 if memory else 0.0))
        extra = 0.0 if noise is None else pace.budget * float(noise[hour])
        spent_usd, memory = (
            spent_usd + factor * TABLE.cost_at(TABLE.rates, step.position) + extra,
            step.memory,
        )
        steps.append(step)
        paid.append(spent_usd)
    return steps, np.array(paid)


def day_and_night(hours: int) -> Floats:
    """Return 1.6 times the load from 8 to 20 h, 0.4 times at night."""
    hour = np.arange(hours) % 24
    return np.where((hour >= 8) & (hour < 20), 1.6, 0.4)


@given(jobs=present, hours=elapsed, low=spent, high=spent)
def test_more_spent_never_means_wider(jobs: Floats, hours: float, low: float, high: float) -> None:
    """The multiplier rises, or stays, with the money spent; but for the last digits."""
    low, high = sorted((low, high))
    less, more = (
        pace_step(PACE, TABLE, jobs, books(spent=s, elapsed_hours=hours)).position for s in (low, high)
    )

    assert more.multiplier >= less.multiplier * (1.0 - 1e-6)


@given(jobs=present, hours=elapsed, paid=spent, memory=memories)
def test_it_is_bounded(jobs: Floats, hours: float, paid: float, memory: tuple[float, ...]) -> None:
    """Multiplier, horizon and load stay in their ranges whatever the books say; so does the memory."""
    step = pace_step(PACE, TABLE, jobs, books(spent=paid, elapsed_hours=hours, memory=memory))

    assert TABLE.multipliers[-1] <= step.position.multiplier <= TABLE.multipliers[0]
    assert PACE.floor_hours <= step.horizon_hours <= MONTH_HOURS
    assert step.load_correction > 0.0
    assert all(math.isfinite(value) for value in (step.load_correction, *step.memory))


def test_what_a_month_leaves_is_carried_over_as_far_as_the_tolerance() -> None:
    """After a month without jobs the next begins with 2 % of its money; within a month nothing is forgone."""
    next_month = books(elapsed_hours=MONTH_HOURS)
    allowed = TOLERANCE * MONTH_HOURS

    assert PACE.opening_hours(next_month) == pytest.approx(MONTH_HOURS - allowed)
    assert PACE.ahead(next_month) == pytest.approx(60.0 * allowed)
    assert PACE.opening_hours(books(elapsed_hours=700.0)) == 0.0
    assert PACE.opening_hours(books(elapsed_hours=MONTH_HOURS, spent=60.0 * 720.0)) == 0.0
    assert PACE.ahead(books(elapsed_hours=MONTH_HOURS, spent=60.0 * 800.0)) == -60.0 * 70.0


def test_a_window_of_hours_keeps_a_window_of_credit() -> None:
    """With a window that is no month, what is older than the window is forgone at any time."""
    pace = Pace(budget=8.0, window_hours=4.0)

    assert pace.opening_hours(books(elapsed_hours=10.0, spent=8.0)) == 5.0
    assert pace_step(pace, TABLE, np.zeros(3), books(elapsed_hours=1.0)).horizon_hours <= 4.0


def test_the_horizon_is_what_is_left_of_the_month_but_not_less_than_the_floor() -> None:
    """730 hours on the first day, the floor on the last ones; a large debt is spread over longer."""
    hours = [PACE.horizon_hours(books(elapsed_hours=at), 0.0) for at in (0.0, 500.0, 729.0)]

    assert hours == [730.0, 230.0, PACE.floor_hours]
    assert PACE.horizon_hours(books(elapsed_hours=729.0), -60.0 * 0.5 * 300.0) == 300.0
    assert PACE.horizon_hours(books(elapsed_hours=729.0), -60.0 * 5000.0) == MONTH_HOURS


def test_without_stock_credit_counts_as_none() -> None:
    """While the cloud refuses, unspent money widens no job."""
    refused = pace_step(PACE, TABLE, np.ones(3), books(elapsed_hours=300.0, is_refused=True))
    served = pace_step(PACE, TABLE, np.ones(3), books(elapsed_hours=300.0))

    assert refused.position.multiplier == pytest.approx(TABLE.planned(60.0).multiplier, rel=0.05)
    assert refused.position.multiplier > served.position.multiplier


def test_the_floor_is_as_long_as_the_tolerance_permits() -> None:
    """Spend over the floor spreads by half of the tolerance; very small or large jobs meet limits."""
    middle = replace(PACE, grain_hours=0.5)

    assert math.sqrt(0.5 * middle.floor_hours) == pytest.approx(0.5 * TOLERANCE * MONTH_HOURS)
    assert replace(PACE, grain_hours=0.0).floor_hours == MONTH_HOURS / 4.0
    assert replace(PACE, grain_hours=50.0).floor_hours == pytest.approx(MONTH_HOURS / 12.0)


@given(factor=st.floats(0.01, 100.0), hours=elapsed, paid=spent, jobs=present)
def test_the_unit_of_money_does_not_matter(factor: float, hours: float, paid: float, jobs: Floats) -> None:
    """Prices, budget and spend times a factor: the multiplier is divided by it, so no width changes."""
    dearer = replace(PROBLEM, gpu_types=(GpuType(name="gpu", usd_per_gpu_hour=factor),))
    one = pace_step(PACE, TABLE, jobs, books(spent=paid, elapsed_hours=hours))
    other = pace_step(
        replace(PACE, budget=60.0 * factor),
        MultiplierTable.of(dearer),
        jobs,
        books(spent=paid * factor, elapsed_hours=hours),
    )

    assert other.position.multiplier * factor == pytest.approx(one.position.multiplier, rel=1e-6)


def test_right_beliefs_are_left_alone() -> None:
    """Nights of 0.4 and days of 1.6 times the load move the belief about the load little, and ever less."""
    steps, paid = fluid_run(PACE, day_and_night(730))
    corrections = np.array([step.load_correction for step in steps])

    assert np.abs(np.log(corrections[72:])).max() < 0.06
    assert np.abs(np.log(corrections[240:])).max() < 0.02
    assert paid[-1] == pytest.approx(60.0 * 730.0, rel=TOLERANCE)


@pytest.mark.parametrize("truth", [0.6, 0.75, 1.2, 1.5])
def test_wrong_beliefs_are_given_up_and_the_month_ends_on_its_money(truth: float) -> None:
    """The load is known to a tenth after five days, which may be workdays; a month keeps its money."""
    pace = replace(PACE, budget=45.0)
    steps, paid = fluid_run(pace, np.full(730, truth))
    burn = np.diff(paid)[365:] / 45.0

    assert math.log(steps[120].load_correction) == pytest.approx(math.log(truth), abs=0.1)
    assert math.log(steps[365].load_correction) == pytest.approx(math.log(truth), abs=0.08)
    assert paid[-1] == pytest.approx(45.0 * 730.0, rel=TOLERANCE)
    assert np.abs(burn - 1.0).max() <= 0.1, "no swing is left"


@given(actual=st.floats(0.0, 1e5), more=st.floats(1.0, 100.0), stated=st.floats(1.0, 1e5))
def test_the_belief_lies_between_what_was_stated_and_what_was_seen(
    actual: float, more: float, stated: float
) -> None:
    """The correction is on the side of the evidence and within it; an unstated load follows sooner."""
    correction = PACE.load_correction(actual, stated)
    seen = (actual + 43.8) / (stated + 43.8)  # 0.001 x 730 h x 60 USD/h on both sides

    assert min(1.0, seen) * (1.0 - 1e-9) <= correction <= max(1.0, seen) * (1.0 + 1e-9)
    unstated = replace(PACE, is_stated=False).load_correction(actual, stated)
    assert abs(math.log(unstated)) >= abs(math.log(correction)) - 1e-9
    assert PACE.load_correction(0.0, 0.0) == 1.0


def test_what_was_believed_of_the_load_outlives_a_change_of_prices() -> None:
    """Prices and budget doubled, as after a new class file: the same correction as before."""
    steps, paid = fluid_run(PACE, np.full(100, 1.5))
    forgotten, *rest = steps[-1].memory
    money = books(spent=2.0 * float(paid[-1]), elapsed_hours=100.0, memory=(2.0 * forgotten, *rest))
    dearer = MultiplierTable.of(replace(PROBLEM, gpu_types=(GpuType(name="gpu", usd_per_gpu_hour=2.0),)))
    after = pace_step(replace(PACE, budget=120.0), dearer, np.zeros(3), money)

    assert after.load_correction == pytest.approx(steps[-1].load_correction, rel=0.01)


@pytest.mark.parametrize("grain", [0.1, 0.5])
def test_the_variance_of_the_burn_is_the_one_that_is_foretold(grain: float) -> None:
    """The law under the noise of single jobs, forty months: within a third of the closed form."""
    pace = Pace(budget=60.0, grain_hours=grain)
    rng = np.random.default_rng(7)
    found = []
    for _ in range(40):
        noise = rng.normal(0.0, math.sqrt(2.0 * grain), 730)
        steps, _ = fluid_run(pace, np.ones(730), noise=noise)
        burn = [TABLE.cost_at(TABLE.rates, step.position) / 60.0 for step in steps]
        found.append(np.mean((np.array(burn) - 1.0) ** 2))

    assert np.mean(found) == pytest.approx(pace.burn_variance(), rel=0.34)


@pytest.mark.parametrize("values", [{"budget": 0.0}, {"budget": 1.0, "window_hours": float("nan")}])
def test_a_pace_is_positive(values: dict[str, float]) -> None:
    """No budget and no window are refused."""
    with pytest.raises(InvalidProblem, match="more than zero"):
        Pace(**values)  # type: ignore[arg-type]


def test_what_nobody_names_is_nothing_but_for_these() -> None:
    """In all of `policies.online`; what is kept to answer again is no part of a value."""
    assert unnamed(policies.online) == {
        "Pace.is_stated": True,
        "Pace.window_hours": 730.0,
        "PacedBudgetOptimal.margin": 1e-6,
        "PacedBudgetOptimal.unit": "USD",
        "Sizes.mean": 1.0,
        "SpotMarket.down_hours": 2.0,
        "SpotMarket.up_hours": 4.0,
    }
    reckoned = dict.fromkeys(
        ("MultiplierTable._planned", "MultiplierTable.costs_of_rates"), "init repr compare"
    )
    kept = ("CostsByScale._tables", "PacedBudgetOptimal.costs", "WholeNodes.known_left", "WholeNodes.menus")
    assert hidden(policies.online) == reckoned | dict.fromkeys(kept, "repr compare") | {
        "CostToGo._stay_between": "init repr compare",
        "CostToGo._stay_to": "init repr compare",
    }
    assert by_place(policies.online) == []


def test_what_is_asked_for_again_and_again_is_made_quickly_or_once() -> None:
    """In all of `policies.online`; what is kept by question has an end."""
    assert hurried(policies.online) == dict.fromkeys(["Position", "Step"], "quick") | {"_solved": 8}
