"""The control law is monotone, bounded, free of oscillation, and independent of the unit of money."""

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
from policies.online.rhythm import Rhythm
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
    """Return the money of a ledger opened at the start of a 730-hour month, 6 minutes after a tick."""
    return Money(
        spent=spent,
        elapsed_hours=elapsed_hours,
        period_elapsed_hours=elapsed_hours % MONTH_HOURS,
        period_left_hours=MONTH_HOURS - elapsed_hours % MONTH_HOURS,
        is_refused=is_refused,
        memory=memory,
        memory_age_hours=0.1,
    )


def fluid_run(pace: Pace, load: Floats, *, noise: Floats | None = None) -> tuple[list[Step], Floats]:
    """Run the law in the fluid limit: each hour a factor times the stated load comes and is paid at once."""
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
def test_more_money_spent_never_means_wider_jobs(jobs: Floats, hours: float, low: float, high: float) -> None:
    """The multiplier does not fall as the money spent rises, up to rounding."""
    low, high = sorted((low, high))
    less, more = (
        pace_step(PACE, TABLE, jobs, books(spent=s, elapsed_hours=hours)).position for s in (low, high)
    )

    assert more.multiplier >= less.multiplier * (1.0 - 1e-6)


@given(jobs=present, hours=elapsed, paid=spent, memory=memories)
def test_every_part_of_a_step_is_bounded(
    jobs: Floats, hours: float, paid: float, memory: tuple[float, ...]
) -> None:
    """Multiplier, horizon, load and memory stay in their ranges for any state of the ledger."""
    step = pace_step(PACE, TABLE, jobs, books(spent=paid, elapsed_hours=hours, memory=memory))

    assert TABLE.multipliers[-1] <= step.position.multiplier <= TABLE.multipliers[0]
    assert PACE.floor_hours <= step.horizon_hours <= MONTH_HOURS
    assert step.load_correction > 0.0
    assert all(math.isfinite(value) for value in (step.load_correction, *step.memory))


def test_unspent_money_of_a_month_is_carried_over_up_to_the_tolerance() -> None:
    """After a month without jobs the next begins with 2 % of its money; within a month nothing is forgone."""
    next_month = books(elapsed_hours=MONTH_HOURS)
    allowed = TOLERANCE * MONTH_HOURS

    assert PACE.opening_hours(next_month) == pytest.approx(MONTH_HOURS - allowed)
    assert PACE.ahead(next_month) == pytest.approx(60.0 * allowed)
    assert PACE.opening_hours(books(elapsed_hours=700.0)) == 0.0
    assert PACE.opening_hours(books(elapsed_hours=MONTH_HOURS, spent=60.0 * 720.0)) == 0.0
    assert PACE.ahead(books(elapsed_hours=MONTH_HOURS, spent=60.0 * 800.0)) == -60.0 * 70.0


def test_a_window_of_hours_keeps_a_window_of_credit() -> None:
    """With a window other than a month, credit older than the window is forgone at any time."""
    pace = Pace(budget=8.0, window_hours=4.0)

    assert pace.opening_hours(books(elapsed_hours=10.0, spent=8.0)) == 5.0
    assert pace_step(pace, TABLE, np.zeros(3), books(elapsed_hours=1.0)).horizon_hours <= 4.0


def test_the_horizon_is_what_is_left_of_the_month_but_not_less_than_the_floor() -> None:
    """730 hours on the first day, the floor on the last days; a large debt is spread over more hours."""
    hours = [PACE.horizon_hours(books(elapsed_hours=at), 0.0) for at in (0.0, 500.0, 729.0)]

    assert hours == [730.0, 230.0, PACE.floor_hours]
    assert PACE.horizon_hours(books(elapsed_hours=729.0), -60.0 * 0.5 * 300.0) == 300.0
    assert PACE.horizon_hours(books(elapsed_hours=729.0), -60.0 * 5000.0) == MONTH_HOURS


def test_credit_does_not_count_while_the_cloud_refuses() -> None:
    """Unspent money then widens no job."""
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
    """With prices, budget and spend times a factor, the multiplier is divided by the factor."""
    dearer = replace(PROBLEM, gpu_types=(GpuType(name="gpu", usd_per_gpu_hour=factor),))
    one = pace_step(PACE, TABLE, jobs, books(spent=paid, elapsed_hours=hours))
    other = pace_step(
        replace(PACE, budget=60.0 * factor),
        MultiplierTable.of(dearer),
        jobs,
        books(spent=paid * factor, elapsed_hours=hours),
    )

    assert other.position.multiplier * factor == pytest.approx(one.position.multiplier, rel=1e-6)


def test_right_beliefs_stay_nearly_unchanged() -> None:
    """Nights at 0.4 and days at 1.6 times the load move the load correction little, and ever less."""
    steps, paid = fluid_run(PACE, day_and_night(730))
    corrections = np.array([step.load_correction for step in steps])

    assert np.abs(np.log(corrections[72:])).max() < 0.06
    assert np.abs(np.log(corrections[240:])).max() < 0.02
    assert paid[-1] == pytest.approx(60.0 * 730.0, rel=TOLERANCE)


@pytest.mark.parametrize("truth", [0.6, 0.75, 1.2, 1.5])
def test_wrong_beliefs_are_corrected_and_the_month_spends_its_budget(truth: float) -> None:
    """The load is known to a tenth after five days, and the spend of the month is within the tolerance."""
    pace = replace(PACE, budget=45.0)
    steps, paid = fluid_run(pace, np.full(730, truth))
    burn = np.diff(paid)[365:] / 45.0

    assert math.log(steps[120].load_correction) == pytest.approx(math.log(truth), abs=0.1)
    assert math.log(steps[365].load_correction) == pytest.approx(math.log(truth), abs=0.08)
    assert paid[-1] == pytest.approx(45.0 * 730.0, rel=TOLERANCE)
    assert np.abs(burn - 1.0).max() <= 0.1, "no swing is left"


@given(actual=st.floats(0.0, 1e5), more=st.floats(1.0, 100.0), stated=st.floats(1.0, 1e5))
def test_the_load_correction_lies_between_the_stated_and_the_observed_load(
    actual: float, more: float, stated: float
) -> None:
    """An unstated load follows the evidence at least as far."""
    correction = PACE.load_correction(actual, stated)
    seen = (actual + 43.8) / (stated + 43.8)  # 0.001 x 730 h x 60 USD/h on both sides

    assert min(1.0, seen) * (1.0 - 1e-9) <= correction <= max(1.0, seen) * (1.0 + 1e-9)
    unstated = replace(PACE, is_stated=False).load_correction(actual, stated)
    assert abs(math.log(unstated)) >= abs(math.log(correction)) - 1e-9
    assert PACE.load_correction(0.0, 0.0) == 1.0


def test_the_load_correction_survives_a_change_of_prices() -> None:
    """Prices and budget are doubled, as by a new class file."""
    steps, paid = fluid_run(PACE, np.full(100, 1.5))
    forgotten, *rest = steps[-1].memory
    money = books(spent=2.0 * float(paid[-1]), elapsed_hours=100.0, memory=(2.0 * forgotten, *rest))
    dearer = MultiplierTable.of(replace(PROBLEM, gpu_types=(GpuType(name="gpu", usd_per_gpu_hour=2.0),)))
    after = pace_step(replace(PACE, budget=120.0), dearer, np.zeros(3), money)

    assert after.load_correction == pytest.approx(steps[-1].load_correction, rel=0.01)


@pytest.mark.parametrize("grain", [pytest.param(0.1, marks=pytest.mark.exhaustive), 0.5])
def test_the_variance_of_spending_matches_its_closed_form(grain: float) -> None:
    """The law under the noise of single jobs, over forty months: within a third."""
    pace = Pace(budget=60.0, grain_hours=grain)
    rng = np.random.default_rng(7)
    found = []
    for _ in range(40):
        noise = rng.normal(0.0, math.sqrt(2.0 * grain), 730)
        steps, _ = fluid_run(pace, np.ones(730), noise=noise)
        burn = [TABLE.cost_at(TABLE.rates, step.position) / 60.0 for step in steps]
        found.append(np.mean((np.array(burn) - 1.0) ** 2))

    assert np.mean(found) == pytest.approx(pace.burn_variance(), rel=0.34)


def expected_correction(x: float, hours: float, *, grain: float, has_rhythm: bool, is_stated: bool) -> float:
    """Return the posterior mean: odds of 1/4 right, 1/4 right with a weekly rhythm, and 1/2 wrong."""
    noise = 2.0 * grain / hours + (730.0 / 150.0 * math.exp(x) / hours) ** 2
    if not is_stated:
        return math.exp(x * 0.7**2 / (0.7**2 + noise))
    week = 0.0 if has_rhythm else (0.15 * min(1.0, (168.0 / hours) ** 2)) ** 2
    part = whole = 0.0
    for odds, prior, more in ((0.25, 0.05**2, 0.0), (0.25, 0.05**2, week), (0.5, 0.7**2, 0.0)):
        spread = prior + more + noise
        likely = odds * math.exp(-0.5 * x**2 / spread) / math.sqrt(spread)
        part, whole = part + likely * prior / spread, whole + likely
    return math.exp(x * part / whole)


@pytest.mark.parametrize("grain", [0.0, 0.05, 2.0])
@pytest.mark.parametrize(
    ("actual", "stated"), [(130.0, 100.0), (9e3, 7e3), (9e3, 1e4), (1e4, 12e3), (4e4, 3e4)]
)
def test_the_correction_is_the_posterior_mean(grain: float, actual: float, stated: float) -> None:
    """A thousandth of a month's money is added to both sides; the evidence spans 2 to 500 hours."""
    first = 0.001 * 730.0 * 60.0
    x, hours = math.log((actual + first) / (stated + first)), (stated + first) / 60.0
    for rhythm in (None, Rhythm((1.0,) * 168)):
        for is_stated in (True, False):
            pace = Pace(budget=60.0, grain_hours=grain, rhythm=rhythm, is_stated=is_stated)
            expected = expected_correction(
                x, hours, grain=grain, has_rhythm=rhythm is not None, is_stated=is_stated
            )
            assert pace.load_correction(actual, stated) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("grain", [0.02, 0.1, 0.5])
@pytest.mark.parametrize("is_stated", [True, False])
def test_the_variance_of_spending_is_the_mean_over_the_month(grain: float, is_stated: bool) -> None:
    """A bridge until the last H_f hours, a relaxation in them, and the error learnt over half a window."""
    pace = Pace(budget=60.0, grain_hours=grain, is_stated=is_stated)
    floor, noise, steps = pace.floor_hours, 2.0 * grain, 200_000
    at = (np.arange(steps) + 0.5) * 730.0 / steps
    left = np.maximum(730.0 - at, floor)
    after = np.maximum(at - (730.0 - floor), 0.0)
    steady = noise / (2.0 * floor)
    bridge = noise * (1.0 / left - 1.0 / 730.0)
    month = np.where(after > 0.0, steady + (bridge - steady) * np.exp(-2.0 * after / floor), bridge)
    learnt = noise / 365.0 + (730.0 / 150.0 / 365.0) ** 2
    prior = (0.05 if is_stated else 0.7) ** 2
    believed = learnt * (prior / (prior + learnt)) ** 2

    assert pace.burn_variance() == pytest.approx(float(month.mean()) + believed, rel=1e-4)
    short = replace(pace, window_hours=100.0)
    learnt = noise / 50.0 + (100.0 / 150.0 / 50.0) ** 2
    believed = learnt * (prior / (prior + learnt)) ** 2
    assert short.burn_variance() == pytest.approx(noise / (2.0 * short.floor_hours) + believed)
    assert pace.costed(2.0).loss_fraction == 2.0 * pace.burn_variance()
    assert pace.costed(None).loss_fraction is None


@pytest.mark.parametrize("elapsed_hours", [50.0, 700.0])
def test_a_step_remembers_the_actual_and_the_stated_load(elapsed_hours: float) -> None:
    """73 hours after the last tick, at half the prices, with a rhythm of quiet and busy hours."""
    rhythm = Rhythm((0.5, 1.5) * 84)
    pace, jobs, age = replace(PACE, rhythm=rhythm), np.array([1.0, 2.0, 0.0]), 73.0
    yardstick = float(TABLE.rates @ TABLE.least_cost)
    money = replace(
        books(spent=1000.0, elapsed_hours=elapsed_hours, memory=(200.0, 700.0, 2.0 * yardstick, 1.0)),
        memory_age_hours=age,
        hour_of_week=100.0,
    )
    step = pace_step(pace, TABLE, jobs, money)

    owed = TABLE.cost_at(jobs, TABLE.planned(60.0))
    came, kept = 1000.0 + owed - 200.0, math.exp(-73.0 / 365.0)
    assert step.load_correction == pace.load_correction(came, 350.0)
    assert step.credit == pytest.approx(60.0 * elapsed_hours - 1000.0 - owed)
    left = 730.0 - elapsed_hours
    hours = step.horizon_hours
    assert hours == pace.horizon_hours(money, step.credit) >= left
    load_hours = rhythm.hours_of_load(100.0, left) + hours - left
    assert step.load_hours == pytest.approx(load_hours)
    to_come = TABLE.rates * step.load_correction * load_hours + jobs
    assert TABLE.position(to_come, 60.0 * hours + step.credit + owed) == step.position
    believed = TABLE.rates_cost_at(step.position) * rhythm.hours_of_load(27.0, age)
    assert step.memory == pytest.approx(
        (1000.0 + owed - came * kept, 350.0 * kept + believed, yardstick, step.load_correction)
    )
    first = pace_step(pace, TABLE, jobs, replace(money, memory=(), memory_age_hours=0.0))
    assert first.memory == pytest.approx((1000.0 + owed, 0.0, yardstick, 1.0))


@pytest.mark.parametrize("values", [{"budget": 0.0}, {"budget": 1.0, "window_hours": float("nan")}])
def test_a_pace_is_positive(values: dict[str, float]) -> None:
    """A budget of zero and a window of NaN are refused."""
    with pytest.raises(InvalidProblem, match="more than zero"):
        Pace(**values)  # type: ignore[arg-type]


def test_only_these_defaults_are_not_empty() -> None:
    """In all of `policies.online`; caches are hidden from comparison."""
    assert unnamed(policies.online) == {
        "Pace.is_stated": True,
        "Pace.window_hours": 730.0,
        "PacedBudgetOptimal.margin": 1e-6,
        "PacedBudgetOptimal.unit": "USD",
        "SizeSums.mean": 1.0,
        "SpotMarket.down_hours": 2.0,
        "SpotMarket.up_hours": 4.0,
    }
    reckoned = dict.fromkeys(
        ("MultiplierTable._planned", "MultiplierTable.costs_of_rates"), "init repr compare"
    )
    kept = (
        "CostsByScale._tables",
        "PacedBudgetOptimal.costs",
        "WholeNodePrices.known_left",
        "WholeNodePrices.menus",
    )
    assert hidden(policies.online) == reckoned | dict.fromkeys(kept, "repr compare") | {
        "CostsByScale._kept": "repr compare",
        "CostToGo._stay_between": "init repr compare",
        "CostToGo._stay_to": "init repr compare",
    }
    assert by_place(policies.online) == []


def test_types_made_often_have_the_fast_init_and_caches_are_bounded() -> None:
    """The lists cover all of `policies.online`."""
    assert hurried(policies.online) == dict.fromkeys(["Position", "Step"], "quick") | {"_solved": 8}
