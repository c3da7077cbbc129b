"""Low and high variants of a calendar: all jobs faster or slower together, within the same limits."""

from __future__ import annotations

import pytest

from boa_daemon.planning.calendar_range import (
    CalendarRange,
    calendar_range,
    job_range,
    range_document,
    range_said,
)
from policies.optimum.calendar import (
    Calendar,
    CalendarEntry,
    CalendarJob,
    CalendarLimits,
    InstanceOption,
)
from policies.optimum.calendar_search import search
from policies.optimum.job_list import ListedJob


def a_job(name: str, *, hours: float = 10.0, due: float | None = None, sure: float = 0.0) -> CalendarJob:
    """Return a job on one instance at two dollars per hour."""
    option = InstanceOption(
        gpu_type="gpu", instances=1, gpus=4, hours=hours, usd=2.0 * hours, sure_hours=sure
    )
    return CalendarJob(job=ListedJob(id=name, class_name="c", deadline_hours=due), options=(option,))


def between(*jobs: CalendarJob, spread: float = 0.2, limits: CalendarLimits | None = None) -> CalendarRange:
    """Return the range of the calendar of these jobs, one at a time."""
    limits = limits or CalendarLimits(instances={"gpu": 1})
    return calendar_range(search(jobs, limits, {"gpu": 2.0}), limits, {"c": spread})


def test_jobs_are_fast_or_slow_together() -> None:
    """Hours and dollars a fifth less, or more; later jobs begin sooner, or later."""
    found = between(a_job("a"), a_job("b"))
    assert (found.low.all_done, found.high.all_done) == (pytest.approx(16.0), pytest.approx(24.0))
    assert (found.low.spend, found.high.spend) == (pytest.approx(32.0), pytest.approx(48.0))


def test_no_job_takes_no_time() -> None:
    """However wide the spread is."""
    assert between(a_job("a"), spread=1.0).low.all_done == pytest.approx(0.1)


def test_the_high_case_takes_the_hours_that_dates_are_checked_with() -> None:
    """Where they are more than the mean."""
    assert between(a_job("a", sure=15.0)).high.all_done == pytest.approx(18.0)
    assert between(a_job("a", sure=5.0)).high.all_done == pytest.approx(12.0)


def test_a_date_that_the_high_case_misses_is_at_risk() -> None:
    """Though it is met on average."""
    found = between(a_job("a", due=11.0), a_job("b", due=30.0))
    assert [job.job.id for job in found.at_risk] == ["a"]


def test_limits_hold_in_the_high_case_too() -> None:
    """A job that the money does not pay for then has no end there."""
    limits = CalendarLimits(usd_in_all=40.0, instances={"gpu": 1})
    found = between(a_job("a"), a_job("b"), limits=limits)
    assert len(found.high.left_out) == 1
    name = found.high.left_out[0].job.id
    low, high = found.by_job[name]
    assert low is not None
    assert high is None
    row = job_range(found, None, low, lambda hours: f"at {hours:g}")
    assert (row["end_high_hours"], row["end_high_at"], row["is_at_risk"]) == (None, None, True)
    document = range_document(found, lambda hours: f"at {hours:g}")
    assert document["high"]["left_out"] == [name]
    assert document["low"]["left_out"] == []
    assert document["low"]["all_done_at"] == "at 16"


def test_the_range_of_a_job_holds_its_own_end() -> None:
    """Also where an order makes the low case end later than the plan."""
    job = a_job("a", due=11.5)
    entry = CalendarEntry(job=job, option=job.options[0], starts=0.0)
    late = CalendarEntry(job=job, option=job.options[0], starts=3.0)
    found = CalendarRange(low=Calendar(entries=(late,)), high=Calendar(entries=(late,)), spread={"c": 0.1})
    row = job_range(found, None, entry, lambda _hours: None)
    assert (row["end_low_hours"], row["end_high_hours"], row["is_at_risk"]) == (10.0, 13.0, True)
    assert (row["spend_low"], row["spend_high"], row["market"], row["interruptions"]) == (
        20.0,
        20.0,
        "on-demand",
        0.0,
    )


@pytest.mark.parametrize(
    ("spread", "said"), [({"a": 0.1, "b": 0.1}, "by 10%;"), ({"a": 0.3, "b": 0.1}, "by 10% to 30%;")]
)
def test_what_low_and_high_mean_is_said(spread: dict[str, float], said: str) -> None:
    """From the narrowest to the widest class."""
    empty = Calendar(entries=())
    assert said in range_said(CalendarRange(low=empty, high=empty, spread=spread))
