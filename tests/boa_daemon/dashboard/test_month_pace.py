"""The forecast of a month: the mean of three days, with what is paid beside, up to the caps of the days."""

from __future__ import annotations

from typing import Any

import pytest

from boa_daemon.dashboard.month_pace import PACE_POINTS, month_pace

NOW = 1_794_571_200.0
"""13 November 2026, noon: 17.5 days are left."""
LEFT_HOURS = 17.5 * 24.0


def past(*rates: float | None) -> dict[str, Any]:
    """Return a history of three days whose equal parts have these rates; None was not seen."""
    each = PACE_POINTS // len(rates)
    values = [rate for rate in rates for _ in range(each)]
    minutes = [0 if rate is None else 4 for rate in values]
    series = {"usd_per_hour": values} if any(values) else {}
    return {"step_seconds": 720.0, "minutes": minutes, "series": series}


def books(*, spent: float = 100.0, day_cap: float | None = None, today: float = 0.0) -> dict[str, Any]:
    """Return the figures of the day and the month."""
    return {"day": {"spent_usd": today, "cap_usd": day_cap}, "month": {"spent_usd": spent, "cap_usd": None}}


def test_steady_days_end_at_their_rate_with_what_is_paid_beside() -> None:
    """No band: every day costs the same."""
    found = month_pace(past(2.0, 2.0, 2.0), books(), now=NOW, beside_usd_per_hour=0.5)
    assert found is not None
    assert found["ends_usd"] == pytest.approx([100.0 + 2.5 * LEFT_HOURS] * 3)
    assert found["seconds_seen"] == 3 * 86_400.0


def test_days_that_differ_have_a_band() -> None:
    """Twice the standard error of a day's mean: 1, 2 and 3 dollars an hour are 2 give or take 1.15."""
    found = month_pace(past(1.0, 2.0, 3.0), books(), now=NOW)
    assert found is not None
    low, mean, high = found["ends_usd"]
    assert mean == pytest.approx(100.0 + 2.0 * LEFT_HOURS)
    assert high - mean == pytest.approx(mean - low) == pytest.approx(2.0 / 3.0**0.5 * LEFT_HOURS)


def test_the_cap_of_a_day_holds_what_the_other_days_may_cost() -> None:
    """Forty dollars are left of today, and seventeen days of fifty follow."""
    found = month_pace(past(9.0, 9.0, 9.0), books(day_cap=50.0, today=10.0), now=NOW)
    assert found is not None
    assert found["is_held"]
    assert found["ends_usd"] == pytest.approx([100.0 + 40.0 + 17 * 50.0] * 3)


def test_seen_hours_in_which_nothing_was_rented_cost_nothing() -> None:
    """The history has no series then."""
    found = month_pace(past(0.0), books(), now=NOW)
    assert found is not None
    assert found["ends_usd"] == [100.0] * 3


def test_hours_that_were_not_seen_count_for_nothing_and_a_few_minutes_are_no_pace() -> None:
    """A daemon that was off for two days forecasts by the third."""
    found = month_pace(past(None, None, 4.0), books(), now=NOW)
    assert found is not None
    assert found["usd_per_hour"] == 4.0
    assert month_pace(past(*[None] * (PACE_POINTS - 1), 4.0), books(), now=NOW) is None
