"""Working time: a clock that stops in hours off, and calendars that pause with it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis.strategies import floats, lists, tuples

from policies.optimum.calendar import (
    CalendarJob,
    CalendarLimits,
    InstanceOption,
    calendar_of_order,
    per_period,
)
from policies.optimum.job_list import ListedJob
from policies.optimum.working_time import ALWAYS, WorkingTime

STRETCHES = lists(tuples(floats(0.0, 100.0), floats(0.1, 30.0)), max_size=6)


@given(off=STRETCHES, at=floats(0.0, 200.0))
def test_the_clock_runs_only_outside_of_hours_off(off: list[tuple[float, float]], at: float) -> None:
    """Hours worked are all hours less hours off, and lead back to the same moment."""
    stretches = [(begin, begin + hours) for begin, hours in off]
    found = WorkingTime.without(stretches)
    grid = np.linspace(0.0, at, 2001)
    is_off = np.zeros(len(grid), dtype=bool)
    for begin, end in stretches:
        is_off |= (grid >= begin) & (grid < end)

    assert found.worked(at) == pytest.approx(float((~is_off).mean()) * at, abs=max(1.0, at) * 0.01)
    assert found.worked(found.start(found.worked(at))) == pytest.approx(found.worked(at))
    assert found.end(found.worked(at)) <= at + 1e-9
    assert found.start(found.worked(at)) >= at - 1e-9
    assert ALWAYS.worked(at) == ALWAYS.start(at) == ALWAYS.end(at) == at


def a_job(name: str, hours: float, usd: float, *, submit: float = 0.0) -> CalendarJob:
    """Return a job with one option, of one instance."""
    option = InstanceOption(gpu_type="gpu", instances=1, gpus=1, hours=hours, usd=usd)
    return CalendarJob(job=ListedJob(id=name, class_name="c", submit_hours=submit), options=(option,))


def test_jobs_pause_in_hours_off_and_continue() -> None:
    """12 hours from hour 4 on, with hours 8 to 20 of each day off: 4 today and 8 after the break."""
    nights = WorkingTime.without((24.0 * day + 8.0, 24.0 * day + 20.0) for day in range(9))
    limits = CalendarLimits(instances={"gpu": 1}, working=nights)
    first, second = calendar_of_order(
        [a_job("a", 12.0, 12.0, submit=4.0), a_job("b", 3.0, 3.0)], limits, 0.0
    ).entries

    assert (first.starts, first.ends) == (4.0, 28.0)
    assert (second.starts, second.ends) == (0.0, 3.0)


def test_no_job_starts_in_hours_off() -> None:
    """Submitted at 10, the job begins at 20."""
    nights = WorkingTime.without([(8.0, 20.0)])
    (entry,) = calendar_of_order(
        [a_job("a", 2.0, 2.0, submit=10.0)], CalendarLimits(working=nights), 0.0
    ).entries

    assert (entry.starts, entry.ends) == (20.0, 22.0)


def test_a_daily_budget_is_kept_with_hours_off() -> None:
    """At 10 dollars a day, half of each day off, no day exceeds its budget, and all jobs are placed."""
    nights = WorkingTime.without((24.0 * day + 12.0, 24.0 * day + 24.0) for day in range(99))
    limits = CalendarLimits(usd_per_period=10.0, period_hours=24.0, working=nights)
    jobs = [a_job(str(number), 4.0, 6.0) for number in range(8)]
    found = calendar_of_order(jobs, limits, 0.0)
    spent = per_period(found, 24.0)

    assert not found.left_out
    assert spent.max() <= 10.0 + 1e-6
    assert spent.sum() == pytest.approx(48.0)


def test_a_job_that_no_day_pays_for_is_left_out() -> None:
    """12 working hours a day at 1 dollar an hour; 40 hours need 12 dollars on some day."""
    nights = WorkingTime.without((24.0 * day + 12.0, 24.0 * day + 24.0) for day in range(99))
    limits = CalendarLimits(usd_per_period=8.0, period_hours=24.0, working=nights)

    assert calendar_of_order([a_job("a", 40.0, 40.0)], limits, 0.0).left_out


@pytest.mark.parametrize(
    ("stretches", "off"),
    [
        ([(-5.0, 3.0)], [(0.0, 3.0)]),
        ([(-5.0, -1.0), (-5.0, 0.0)], []),
        ([(5.0, 4.0), (6.0, 6.0)], []),
        ([(0.25, 0.5)], [(0.25, 0.5)]),
        ([(5.0, 7.0), (1.0, 2.0), (2.0, 3.0), (6.0, 6.5)], [(1.0, 3.0), (5.0, 7.0)]),
    ],
)
def test_intervals_off_are_clipped_merged_and_sorted(
    stretches: list[tuple[float, float]], off: list[tuple[float, float]]
) -> None:
    """Intervals before hour 0 and empty intervals are dropped; touching intervals are merged."""
    found = WorkingTime.without(stretches)
    assert list(zip(found.begins.tolist(), found.ends.tolist(), strict=True)) == off
    assert len(found.before) == len(off)
    assert found.is_always is (not off)
    assert found != WorkingTime.without(stretches)
