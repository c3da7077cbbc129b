"""The weekly rhythm of the load: its estimate, and its use by the control law."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from load_scenarios import PROBLEM

from policies.errors import InvalidProblem
from policies.model import Money
from policies.online.multiplier_table import MultiplierTable
from policies.online.pacing import MONTH_HOURS, Pace, pace_step
from policies.online.rhythm import HOURS_PER_WEEK, MONDAY_HOUR, Rhythm, _shrunk, estimate_rhythm, hour_of_week
from policies.speedup import Floats

OFFICE = np.outer([1.3, 1.3, 1.3, 1.3, 1.3, 0.3, 0.2], [0.4] * 8 + [1.6] * 12 + [0.4] * 4).ravel()
OFFICE /= OFFICE.mean()
RHYTHM = Rhythm(tuple(OFFICE.tolist()))
firsts = st.integers(-400_000, 600_000)


def came(weeks: int, first_hour: int, factors: Floats = OFFICE) -> Floats:
    """Return the work of whole weeks from an hour of the epoch on, ten units in a mean hour."""
    hours = (first_hour - MONDAY_HOUR + np.arange(weeks * HOURS_PER_WEEK)) % HOURS_PER_WEEK
    return 10.0 * factors[hours]


@given(at=st.datetimes(min_value=datetime(1990, 1, 1), max_value=datetime(2090, 1, 1)))
def test_hours_of_the_week_are_those_of_the_calendar(at: datetime) -> None:
    """The calendar is that of the standard library."""
    at = at.replace(tzinfo=UTC)
    expected = 24.0 * at.weekday() + at.hour + at.minute / 60.0 + at.second / 3600.0

    assert hour_of_week(at.timestamp()) == pytest.approx(expected + at.microsecond / 3.6e9, abs=1e-6)


@given(first=firsts, weeks=st.integers(3, 20))
def test_a_rhythm_without_noise_is_found_exactly(first: int, weeks: int) -> None:
    """The data may begin at any hour of the week."""
    found = estimate_rhythm(came(weeks, first), first_hour=first)

    assert found is not None
    np.testing.assert_allclose(found.factors, RHYTHM.factors, rtol=1e-9)
    assert found.by_day == pytest.approx(OFFICE.reshape(7, 24).mean(axis=1))


@given(seed=st.integers(0, 10_000), weeks=st.integers(2, 12), per_hour=st.floats(0.05, 50.0))
def test_steady_arrivals_have_daily_factors_near_one(seed: int, weeks: int, per_hour: float) -> None:
    """The factors are nearer with more weeks and more arrivals."""
    rng = np.random.default_rng(seed)
    found = estimate_rhythm(
        rng.poisson(per_hour, weeks * HOURS_PER_WEEK).astype(float), first_hour=MONDAY_HOUR
    )
    days = np.ones(7) if found is None else np.array(found.by_day)

    assert np.abs(days - 1.0).max() <= 4.0 / np.sqrt(24.0 * weeks * per_hour)


def test_two_weeks_show_an_ordinary_rhythm() -> None:
    """At eight jobs an hour, factors of days are within 0.25 and factors of hours within 0.5."""
    rng = np.random.default_rng(1)
    found = estimate_rhythm(rng.poisson(0.8 * came(2, MONDAY_HOUR)).astype(float), first_hour=MONDAY_HOUR)

    assert found is not None
    assert not found.differs(RHYTHM, by=0.5)
    assert found.by_day == pytest.approx(RHYTHM.by_day, abs=0.25)
    assert found.differs(None, by=0.25)


def test_less_than_two_weeks_and_no_work_give_no_rhythm() -> None:
    """Constant work gives no rhythm either."""
    assert estimate_rhythm(came(3, 50)[: 2 * HOURS_PER_WEEK - 1], first_hour=50) is None
    assert estimate_rhythm(np.zeros(5 * HOURS_PER_WEEK), first_hour=0) is None
    assert estimate_rhythm(np.zeros(0), first_hour=0) is None
    assert estimate_rhythm(np.ones(5 * HOURS_PER_WEEK), first_hour=0) is None


@given(begin=st.floats(-500.0, 500.0), hours=st.floats(0.0, 2000.0), more=st.floats(0.0, 500.0))
def test_hours_of_load_add_up(begin: float, hours: float, more: float) -> None:
    """A week counts as 168 hours; the least and the largest factor bound the hours of an interval."""
    found = RHYTHM.hours_of_load(begin, hours)

    assert found + RHYTHM.hours_of_load(begin + hours, more) == pytest.approx(
        RHYTHM.hours_of_load(begin, hours + more), abs=1e-6
    )
    assert RHYTHM.hours_of_load(begin, float(HOURS_PER_WEEK)) == pytest.approx(HOURS_PER_WEEK)
    assert min(RHYTHM.factors) * hours - 1e-6 <= found <= max(RHYTHM.factors) * hours + 1e-6


@pytest.mark.parametrize(
    ("factors", "says"),
    [
        ((1.0,) * 167, "168 positive factors, not 167"),
        ((0.0, 2.0) + (1.0,) * 166, "168 positive factors"),
        ((2.0,) * 168, "must have the mean 1; got 2"),
        ((float("nan"),) * 168, "168 positive factors"),
    ],
)
def test_an_invalid_rhythm_is_refused(factors: tuple[float, ...], says: str) -> None:
    """A rhythm has 168 positive factors with a mean of one; single factors may be small."""
    assert Rhythm((0.001, 1.999) + (1.0,) * 166).factors[0] == 0.001
    with pytest.raises(InvalidProblem, match=says):
        Rhythm(factors)


def test_every_hour_has_its_own_factor() -> None:
    """Checked in the first hour of the week, in the last one, and across the end of the week."""
    hours = (0.0, 0.25, 23.5, 100.0, 167.0, 167.5)
    found = [RHYTHM.hours_of_load(hour, 0.25) for hour in hours]
    assert found == pytest.approx([0.25 * RHYTHM.factors[int(hour)] for hour in hours])
    turned = Rhythm((0.5, *(1.0,) * 166, 1.5))
    assert turned.hours_of_load(167.5, 1.0) == pytest.approx(0.5 * 1.5 + 0.5 * 0.5)


def test_a_rhythm_differs_by_its_days_or_its_hours() -> None:
    """Factors of 1.5 and 0.5, of days or of hours, differ from a flat rhythm by exactly one half."""
    days = Rhythm((1.5,) * 24 + (0.5,) * 24 + (1.0,) * 120)
    hours = Rhythm(((1.5, 0.5) + (1.0,) * 22) * 7)
    for one in (days, hours):
        assert [one.differs(None, by=by) for by in (0.49, 0.5)] == [True, False]
        assert not one.differs(one, by=0.0)
    assert days.differs(hours, by=0.4)


def test_only_the_last_thirteen_weeks_count() -> None:
    """A quiet week is forgotten after thirteen more weeks, and still counts after twelve."""
    quiet = 0.5 * came(1, MONDAY_HOUR)[::-1]
    forgotten, known = (
        estimate_rhythm(np.concatenate([quiet, came(weeks, MONDAY_HOUR)]), first_hour=MONDAY_HOUR)
        for weeks in (13, 12)
    )
    assert forgotten is not None
    assert forgotten.factors == pytest.approx(RHYTHM.factors)
    assert known is not None
    assert known.differs(RHYTHM, by=0.01)


def test_a_known_rhythm_keeps_the_multiplier_calm() -> None:
    """Over a month the multiplier varies less than a fifth as much as without the rhythm."""
    table, moved = MultiplierTable.of(PROBLEM), []
    for pace in (Pace(budget=60.0), Pace(budget=60.0, rhythm=RHYTHM)):
        spent, memory, multipliers = 0.0, tuple[float, ...](), []
        for hour in range(int(MONTH_HOURS)):
            money = Money(
                spent=spent,
                elapsed_hours=float(hour),
                period_elapsed_hours=float(hour),
                period_left_hours=MONTH_HOURS - hour,
                memory=memory,
                memory_age_hours=1.0 if memory else 0.0,
                hour_of_week=float(hour % HOURS_PER_WEEK),
            )
            step = pace_step(pace, table, np.zeros(3), money)
            spent += table.cost_at(table.rates * OFFICE[hour % HOURS_PER_WEEK], step.position)
            memory = step.memory
            multipliers.append(step.position.multiplier)
        moved.append(np.log(multipliers).std())
    assert moved[1] < 0.2 * moved[0], moved


def test_means_are_shrunk_as_far_as_weeks_do_not_repeat_them() -> None:
    """Means 1.3 and 0.7, each week 0.1 off: the noise of a mean is 0.01, their spread 0.18."""
    kept = 1.0 - 0.01 / 0.18
    assert _shrunk(np.array([[1.4, 0.8], [1.2, 0.6]])) == pytest.approx([1.0 + 0.3 * kept, 1.0 - 0.3 * kept])
    assert _shrunk(np.array([[1.5, 0.7], [0.5, 1.3]])).tolist() == [1.0, 1.0]
    assert _shrunk(np.ones((3, 4))).tolist() == [1.0] * 4
    assert _shrunk(np.array([[1.5, 0.5]] * 3)).tolist() == [1.5, 0.5]
