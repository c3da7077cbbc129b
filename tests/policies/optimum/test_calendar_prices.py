"""The bound at prices: below every calendar of small lists, and close where the answer is known."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.optimum.calendar import Calendar, CalendarJob, CalendarLimits, InstanceOption, calendar_of_order
from policies.optimum.calendar_prices import bound_at_prices
from policies.optimum.calendar_search import search
from policies.optimum.job_list import ListedJob
from policies.optimum.working_time import WorkingTime
from tests.policies.optimum.test_calendar import MACHINES, job_lists, limits

PRICES = {name: machine.usd_per_hour for name, machine in MACHINES.items()}


def every_calendar(jobs: list[CalendarJob], most: CalendarLimits) -> list[Calendar]:
    """Return the calendars of all orders and options in which every job has a place."""
    found = []
    for order in itertools.permutations(jobs):
        for options in itertools.product(*(job.options for job in order)):
            pinned = [CalendarJob(job=j.job, options=(o,)) for j, o in zip(order, options, strict=True)]
            found.append(calendar_of_order(pinned, most, 0.0))
    return [one for one in found if not one.left_out]


@given(jobs=job_lists(most=3), most=limits(), off=st.booleans())
def test_no_calendar_is_below_the_bound(jobs: list[CalendarJob], most: CalendarLimits, off: bool) -> None:
    """The bound with dates is for calendars that keep the same deadlines; some lists have hours off."""
    if off:
        windows = [(24.0 * day + 8.0, 24.0 * day + 20.0) for day in range(400)]
        fields = ("usd_per_hour", "usd_per_period", "period_hours", "usd_in_all", "instances")
        most = CalendarLimits(
            **{name: getattr(most, name) for name in fields}, working=WorkingTime.without(windows)
        )
    calendars = every_calendar(jobs, most)
    for known in calendars[:1]:
        kept = {entry.job.job.id for entry in known.entries if not entry.is_late}
        free = bound_at_prices(jobs, most, PRICES, known).bound
        dated = bound_at_prices(jobs, most, PRICES, known, keeps_dates=True).bound
        for one in calendars:
            assert one.weighted_hours >= free * (1.0 - 1e-6)
            if kept <= {entry.job.job.id for entry in one.entries if not entry.is_late}:
                assert one.weighted_hours >= dated * (1.0 - 1e-6)


def a_backlog(jobs: int, hours: float) -> list[CalendarJob]:
    """Return equal jobs that wait from the beginning for one machine at one dollar per hour."""
    option = InstanceOption(gpu_type="one", instances=1, gpus=1, hours=hours, usd=hours)
    return [
        CalendarJob(job=ListedJob(id=str(number), class_name="c"), options=(option,))
        for number in range(jobs)
    ]


@pytest.mark.parametrize(
    "most",
    [
        CalendarLimits(instances={"one": 1}),
        CalendarLimits(usd_per_hour=1.0),
        CalendarLimits(usd_per_period=10.0, period_hours=10.0, instances={"one": 1}),
    ],
)
def test_the_gap_of_a_backlog_on_one_machine_is_at_most_one_cell(most: CalendarLimits) -> None:
    """Ends are 1, 2, 3, ... times the hours; the grid has 48 cells."""
    found = search(a_backlog(40, 5.0), most, {"one": 1.0}, tries=24)

    assert found.calendar.weighted_hours == pytest.approx(5.0 * np.arange(1, 41).sum())
    assert found.gap is not None
    assert found.gap < 0.04


def test_a_backlog_that_outruns_its_periods_has_a_small_gap() -> None:
    """Each period pays for two jobs, so pairs of jobs end in one period after the other."""
    most = CalendarLimits(usd_per_period=10.0, period_hours=100.0)
    found = search(a_backlog(40, 5.0), most, {"one": 1.0}, tries=24)

    assert found.calendar.weighted_hours == pytest.approx(2.0 * (100.0 * np.arange(20)).sum() + 40 * 5.0)
    assert found.gap == pytest.approx(0.0, abs=0.02)


def test_the_gap_with_dates_compares_with_calendars_that_keep_them() -> None:
    """A long job with a deadline goes first, though the short job would wait less before the long one."""
    long = InstanceOption(gpu_type="one", instances=1, gpus=1, hours=10.0, usd=10.0)
    short = InstanceOption(gpu_type="one", instances=1, gpus=1, hours=1.0, usd=1.0)
    jobs = [
        CalendarJob(job=ListedJob(id="long", class_name="c", deadline_hours=10.0), options=(long,)),
        CalendarJob(job=ListedJob(id="short", class_name="c"), options=(short,)),
    ]
    found = search(jobs, CalendarLimits(instances={"one": 1}), {"one": 1.0})

    assert not found.calendar.missed
    assert found.gap == pytest.approx(1.0 - 12.0 / 21.0, abs=0.02)
    assert found.gap_with_dates is not None
    assert found.gap_with_dates < 0.25
