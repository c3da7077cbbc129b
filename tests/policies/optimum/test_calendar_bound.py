"""Bounds that no calendar can beat, in closed form: from a money rate, periods, one sum, and deadlines."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.optimum.calendar import CalendarJob, CalendarLimits, InstanceOption
from policies.optimum.calendar_bound import (
    _hull,
    bound_weighted_hours,
    least_missed,
    machine_rate,
    spendable,
)
from policies.optimum.job_list import ListedJob

POINTS = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=12)


@given(POINTS)
def test_the_hull_is_convex_and_no_option_is_below_it(points: list[tuple[int, int]]) -> None:
    """From the cheapest option to the fastest, each step saves less per dollar than the one before."""
    options = tuple(
        InstanceOption(gpu_type="g", instances=1, gpus=1, hours=float(h), usd=float(usd)) for usd, h in points
    )
    listed = ListedJob(id="a", class_name="c", submit_hours=0.0, deadline_hours=None)
    hull = _hull(CalendarJob(job=listed, options=options))
    slopes = [(a[1] - b[1]) / (b[0] - a[0]) for a, b in pairwise(hull)]
    assert all(slope > 0.0 for slope in slopes)
    assert all(first > later for first, later in pairwise(slopes))
    assert hull[0] == min((float(usd), float(hours)) for usd, hours in points)
    assert hull[-1][1] == min(hours for _, hours in points)
    usd, hours = np.array(hull).T
    assert all(np.interp(x, usd, hours) <= y + 1e-9 for x, y in points)


PRICES = {"g": 2.0, "other": 5.0}


def a_listed(
    *options: tuple[float, float], submit: float = 0.0, due: float | None = None, weight: float = 1.0
) -> CalendarJob:
    """Return a job with options of (dollars, hours); `due` counts from the calendar's beginning."""
    deadline = None if due is None else due - submit
    job = ListedJob(id="a", class_name="c", submit_hours=submit, deadline_hours=deadline, weight=weight)
    made = (InstanceOption(gpu_type="g", instances=1, gpus=1, usd=usd, hours=hours) for usd, hours in options)
    return CalendarJob(job=job, options=tuple(made))


def bound(*jobs: CalendarJob, **limits: float) -> float:
    """Return the bound under limits of money."""
    return bound_weighted_hours(jobs, CalendarLimits(**limits), PRICES)  # type: ignore[arg-type]


def test_the_rate_of_money_comes_from_the_budget_or_from_quotas_in_use() -> None:
    """Three nodes cost two dollars each; a quota of a type that no job runs on has no effect."""
    jobs = [a_listed((1.0, 1.0))]
    for usd, instances, rate in (
        (10.0, {"g": 3, "other": 9}, 6.0),
        (4.0, {"g": 3}, 4.0),
        (10.0, {"other": 1}, 10.0),
        (np.inf, {}, np.inf),
    ):
        assert machine_rate(jobs, CalendarLimits(usd_per_hour=usd, instances=instances), PRICES) == rate


def test_without_limits_each_job_runs_at_its_fastest() -> None:
    """The bound is the sum of weights times least hours, also with a quota of zero nodes."""
    jobs = (a_listed((1.0, 9.0), (4.0, 3.0), weight=2.0), a_listed((1.0, 4.0)))
    assert bound(*jobs) == 2.0 * 3.0 + 4.0
    none = CalendarLimits(usd_per_period=3.0, period_hours=10.0, instances={"g": 0})
    assert bound_weighted_hours(jobs, none, PRICES) == 10.0


@pytest.mark.parametrize(
    ("jobs", "hours"),
    [
        ([a_listed((10.0, 2.0))], 5.0 + 1.0),
        ([a_listed((4.0, 2.0)), a_listed((2.0, 2.0))], (4.0 + 1.0) + (1.0 + 1.0)),
        ([a_listed((4.0, 2.0), weight=3.0), a_listed((2.0, 2.0))], 3.0 * (2.0 + 1.0) + (5.0 + 1.0)),
        ([a_listed((4.0, 1.0)), a_listed((1.0, 1.0), submit=2.0)], (2.5 + 0.5) + (2.5 + 0.5 - 2.0)),
        ([a_listed((1.0, 0.5)), a_listed((1.0, 0.5), submit=5.0)], 2 * (0.5 + 0.25)),
    ],
)
def test_money_is_a_machine_that_serves_the_most_weight_per_dollar(
    jobs: list[CalendarJob], hours: float
) -> None:
    """At a dollar an hour a job ends half its hours after the mean moment of its dollars."""
    assert bound(*jobs, usd_per_hour=1.0) == pytest.approx(hours)
    assert bound(*jobs, usd_per_hour=4.0) < hours


@pytest.mark.parametrize(
    ("jobs", "rate", "hours"),
    [
        ([a_listed((5.0, 2.0))], np.inf, 0.4 * 10.0 + 1.0),
        ([a_listed((5.0, 2.0))], 1.0, 0.6 * 1.5 + 0.4 * 11.0 + 1.0),
        (
            [a_listed((3.0, 1.0)), a_listed((9.0, 1.0), submit=14.0)],
            np.inf,
            0.5 + ((10.0 + 20.0 + 30.0) / 3.0 + 0.5 - 14.0),
        ),
        ([a_listed((4.0, 1.0)), a_listed((2.0, 1.0))], np.inf, (0.25 * 0.0 + 0.75 * 10.0 + 0.5) + 0.5),
    ],
)
def test_money_of_a_period_is_available_from_its_beginning(
    jobs: list[CalendarJob], rate: float, hours: float
) -> None:
    """Three dollars every ten hours are spent at once or at a dollar an hour."""
    found = bound(*jobs, usd_per_hour=rate, usd_per_period=3.0, period_hours=10.0)
    assert found == pytest.approx(hours)


@pytest.mark.parametrize(
    ("usd", "hours"), [(3.0, 40.0), (4.0, 40.0), (6.0, 28.0), (8.0, 16.0), (10.0, 12.0), (99.0, 8.0)]
)
def test_one_sum_is_spent_where_a_dollar_saves_most(usd: float, hours: float) -> None:
    """Ten hours cost two dollars and two hours six: a dollar saves two hours, thrice as much for weight 3."""
    options = ((2.0, 10.0), (6.0, 2.0), (5.0, 9.0))
    assert bound(a_listed(*options), a_listed(*options, weight=3.0), usd_in_all=usd) == pytest.approx(hours)


@pytest.mark.parametrize(
    ("until", "rate", "limits", "usd"),
    [
        (3.0, 2.0, CalendarLimits(), 6.0),
        (3.0, 2.0, CalendarLimits(usd_in_all=5.0), 5.0),
        (25.0, 1.0, CalendarLimits(usd_per_period=4.0, period_hours=10.0), 12.0),
        (22.0, 1.0, CalendarLimits(usd_per_period=4.0, period_hours=10.0), 10.0),
        (20.0, 1.0, CalendarLimits(usd_per_period=4.0, period_hours=10.0), 8.0),
        (20.0, np.inf, CalendarLimits(usd_per_period=4.0, period_hours=10.0), 8.0),
        (25.0, 0.2, CalendarLimits(usd_per_period=4.0, period_hours=10.0), 5.0),
        (25.0, 1.0, CalendarLimits(usd_per_period=4.0, period_hours=10.0, usd_in_all=9.0), 9.0),
    ],
)
def test_spendable_money_grows_by_rate_and_period_up_to_the_sum(
    until: float, rate: float, limits: CalendarLimits, usd: float
) -> None:
    """Whole periods count, and a part of the next one."""
    assert spendable(until, rate, limits) == pytest.approx(usd)


@pytest.mark.parametrize(
    ("jobs", "missed"),
    [
        ([a_listed((9.0, 9.0))], 0),
        ([a_listed((3.0, 4.0), due=4.0)], 0),
        ([a_listed((3.0, 4.1), due=4.0)], 1),
        ([a_listed((3.0, 3.1), submit=1.0, due=4.0)], 1),
        ([a_listed((3.0, 1.0), due=4.0), a_listed((2.0, 1.0), due=4.0)], 1),
        ([a_listed((3.0, 1.0), due=5.0), a_listed((2.0, 1.0), due=5.0)], 0),
        ([a_listed((3.0, 1.0), due=5.9), a_listed((3.0, 1.0), due=4.0)], 1),
        ([a_listed((3.0, 1.0), due=6.0), a_listed((3.0, 1.0), due=4.0)], 0),
        ([a_listed((2.0, 1.0), due=1.5), a_listed((1.0, 1.0), due=1.5), a_listed((1.0, 1.0), due=1.9)], 2),
        ([a_listed((1.0, 9.0), (5.0, 2.0), due=3.0)], 1),
        ([a_listed((9.0, 9.0)), a_listed((3.0, 9.0), due=4.0), a_listed((5.0, 1.0), due=4.0)], 2),
    ],
)
def test_deadlines_are_missed_where_widths_or_money_are_too_slow(
    jobs: list[CalendarJob], missed: int
) -> None:
    """At a dollar an hour the dearest jobs are given up; each job counts its cheapest timely option."""
    assert least_missed(jobs, CalendarLimits(usd_per_hour=1.0), PRICES) == missed
