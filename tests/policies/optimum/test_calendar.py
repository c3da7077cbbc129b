"""Calendars: every limit is kept at every moment, and no job starts before its submission."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.errors import InvalidProblem
from policies.model import GpuType, InstanceType, JobClass, Phase, Problem
from policies.optimum.calendar import (
    Calendar,
    CalendarEntry,
    CalendarJob,
    CalendarLimits,
    InstanceOption,
    Timeline,
    _beats,
    calendar_jobs,
    calendar_of_order,
    per_period,
)
from policies.optimum.job_list import ListedJob
from policies.speedup import Amdahl, Table

BIG = InstanceType(name="big", gpu_type="big", gpus=8, usd_per_hour=16.0)
ONE = InstanceType(name="one", gpu_type="one", gpus=1, usd_per_hour=1.5)
MACHINES = {"big": BIG, "one": ONE}
TYPES = (GpuType(name="big", usd_per_gpu_hour=2.0), GpuType(name="one", usd_per_gpu_hour=1.5))


def a_problem(**speedups: Table | Amdahl) -> Problem:
    """Return one class of eight GPU-hours of work."""
    phases = (Phase(size_gpu_hours=8.0, speedups=speedups),)
    return Problem(classes=(JobClass(name="c", arrivals_per_hour=1.0, phases=phases),), gpu_types=TYPES)


@st.composite
def job_lists(draw: st.DrawFn, most: int = 8) -> list[CalendarJob]:
    """Draw jobs with one to three options on two types."""
    jobs = []
    for number in range(draw(st.integers(1, most))):
        options = []
        for _ in range(draw(st.integers(1, 3))):
            name = draw(st.sampled_from(["big", "one"]))
            instances = draw(st.integers(1, 3))
            hours = draw(st.floats(0.1, 12.0))
            usd = MACHINES[name].usd_per_hour * instances * hours
            gpus = instances * MACHINES[name].gpus
            options.append(
                InstanceOption(gpu_type=name, instances=instances, gpus=gpus, hours=hours, usd=usd)
            )
        listed = ListedJob(
            id=str(number),
            class_name="c",
            weight=draw(st.sampled_from([1.0, 1.0, 4.0])),
            submit_hours=draw(st.floats(0.0, 20.0)),
            deadline_hours=draw(st.one_of(st.none(), st.floats(0.5, 30.0))),
        )
        jobs.append(CalendarJob(job=listed, options=tuple(options)))
    return jobs


@st.composite
def limits(draw: st.DrawFn) -> CalendarLimits:
    """Draw any mixture of limits."""
    has_period = draw(st.booleans())
    quota = st.dictionaries(st.sampled_from(["big", "one"]), st.integers(0, 5))
    return CalendarLimits(
        usd_per_hour=draw(st.one_of(st.just(np.inf), st.floats(1.0, 100.0))),
        usd_per_period=draw(st.floats(10.0, 400.0)) if has_period else np.inf,
        period_hours=draw(st.sampled_from([3.0, 24.0])) if has_period else np.inf,
        usd_in_all=draw(st.one_of(st.just(np.inf), st.floats(10.0, 2000.0))),
        instances=draw(quota),
    )


def check_limits(calendar: Calendar, most: CalendarLimits) -> None:
    """Assert, moment by moment and without the timeline, that no limit is exceeded."""
    assert calendar.spend <= most.usd_in_all * (1.0 + 1e-6)
    for moment in {entry.starts for entry in calendar.entries}:
        running = [e for e in calendar.entries if e.starts <= moment < e.ends * (1.0 - 1e-9)]
        assert sum(e.option.usd_per_hour for e in running) <= most.usd_per_hour * (1.0 + 1e-6)
        held: Counter[str] = Counter()
        for entry in running:
            held[entry.option.gpu_type] += entry.option.instances
        assert all(held[name] <= number for name, number in most.instances.items())
    if np.isfinite(most.usd_per_period):
        periods = per_period(calendar, most.period_hours)
        assert float(np.sum(periods)) == pytest.approx(calendar.spend)
        assert all(usd <= most.usd_per_period * (1.0 + 1e-6) for usd in periods)


@given(jobs=job_lists(), most=limits(), price=st.sampled_from([0.0, 0.1, 1e9]))
def test_no_limit_is_ever_exceeded(jobs: list[CalendarJob], most: CalendarLimits, price: float) -> None:
    """Machines and dollars per hour at every start, dollars per period, and dollars in all."""
    check_limits(calendar_of_order(jobs, most, price), most)


@given(jobs=job_lists(), most=limits())
def test_each_job_has_one_place_after_its_submission(jobs: list[CalendarJob], most: CalendarLimits) -> None:
    """A job is placed once or left out, never both; without limits no job is left out."""
    found = calendar_of_order(jobs, most, 0.0)

    named = [e.job.job.id for e in found.entries] + [job.job.id for job in found.left_out]
    assert sorted(named) == sorted(job.job.id for job in jobs)
    assert all(e.starts >= e.job.job.submit_hours for e in found.entries)
    if most == CalendarLimits():
        assert not found.left_out


@given(jobs=job_lists())
def test_without_limits_every_job_starts_at_once_at_its_fastest(jobs: list[CalendarJob]) -> None:
    """Each job starts at its submission with its shortest option."""
    found = calendar_of_order(jobs, CalendarLimits(), 0.0)

    for entry in found.entries:
        assert entry.starts == entry.job.job.submit_hours
        assert entry.option.hours == pytest.approx(entry.job.least_hours)


def test_a_short_job_fits_before_one_that_was_placed_earlier() -> None:
    """One machine is busy from 4 to 8: four hours fit before, five do not."""
    most = CalendarLimits(instances={"one": 1})
    timeline = Timeline(most)
    four = InstanceOption(gpu_type="one", instances=1, gpus=1, hours=4.0, usd=6.0)
    five = InstanceOption(gpu_type="one", instances=1, gpus=1, hours=5.0, usd=7.5)
    timeline.take(four, 4.0)

    assert timeline.earliest(four, 0.0) == 0.0
    assert timeline.earliest(five, 0.0) == 8.0
    assert timeline.earliest(four, 0.5) == 8.0


def test_a_job_that_crosses_the_end_of_a_period_is_paid_from_both() -> None:
    """3 dollars per period of 10 hours: 1 dollar per hour for 4 hours may start at 7, not at 0 or 8."""
    most = CalendarLimits(usd_per_period=3.0, period_hours=10.0)
    option = InstanceOption(gpu_type="one", instances=1, gpus=1, hours=4.0, usd=4.0)
    timeline = Timeline(most)

    assert timeline.earliest(option, 0.0) == 7.0
    timeline.take(option, 7.0)
    # The first period is spent; the second has 2 of 3 dollars left for its last two hours.
    assert timeline.earliest(option, 0.0) == 18.0


def test_an_option_that_never_fits_has_no_start() -> None:
    """The type has no machine, the rate is above the limit, or two periods cannot pay for the job."""
    option = InstanceOption(gpu_type="big", instances=1, gpus=8, hours=5.0, usd=80.0)
    for most in (
        CalendarLimits(instances={"big": 0}),
        CalendarLimits(usd_per_hour=15.0),
        CalendarLimits(usd_per_period=39.0, period_hours=1000.0),
    ):
        assert Timeline(most).earliest(option, 0.0) == np.inf


def test_options_are_whole_instances_with_their_boot() -> None:
    """Up to eight GPUs cost a whole machine, so only the fastest width of each machine count is kept."""
    problem = a_problem(big=Table(gpus=(1, 4, 8, 12, 16), speeds=(1.0, 3.2, 5.0, 6.0, 8.0)))
    (job,) = calendar_jobs(problem, [ListedJob(id="a", class_name="c", scale=5.0)], MACHINES, boot_hours=0.5)

    assert [(o.gpus, o.instances, o.hours, o.usd) for o in job.options] == [
        (8, 1, 8.5, 8.5 * 16.0),
        (16, 2, 5.5, 5.5 * 32.0),
    ]


def test_an_option_that_is_dearer_and_slower_is_dropped() -> None:
    """Three machines of one GPU are slower than two."""
    problem = a_problem(one=Table(gpus=(1, 2, 3), speeds=(1.0, 1.8, 1.7)))
    (job,) = calendar_jobs(problem, [ListedJob(id="a", class_name="c")], MACHINES)

    assert [option.gpus for option in job.options] == [1, 2]


def test_thinned_options_keep_the_fastest_and_the_cheapest() -> None:
    """Sixty-four machines of one GPU each are thinned to a dozen options."""
    problem = a_problem(one=Amdahl(parallel_fraction=0.99, max_gpus=64))
    (job,) = calendar_jobs(problem, [ListedJob(id="a", class_name="c")], MACHINES)

    assert len(job.options) <= 12
    assert {1, 64} <= {option.gpus for option in job.options}


def test_an_unknown_class_is_refused() -> None:
    """The error names the class."""
    with pytest.raises(InvalidProblem, match="'d', which does not exist"):
        calendar_jobs(
            a_problem(one=Table(gpus=(1,), speeds=(1.0,))), [ListedJob(id="a", class_name="d")], MACHINES
        )


def test_phases_without_a_width_in_common_are_refused() -> None:
    """A job keeps its width in a calendar."""
    phases = tuple(
        Phase(size_gpu_hours=1.0, speedups={"one": Table(gpus=(width,), speeds=(1.0,))}) for width in (1, 2)
    )
    classes = (JobClass(name="c", arrivals_per_hour=1.0, phases=phases),)
    with pytest.raises(InvalidProblem, match="no GPU type has a width"):
        calendar_jobs(
            Problem(classes=classes, gpu_types=TYPES), [ListedJob(id="a", class_name="c")], MACHINES
        )


def an_option(hours: float, usd: float = 1.0, **others: Any) -> InstanceOption:
    """Return an option of one machine of one GPU."""
    return InstanceOption(
        **({"gpu_type": "one", "instances": 1, "gpus": 1, "hours": hours, "usd": usd} | others)
    )


def a_calendar_job(*options: InstanceOption, **others: Any) -> CalendarJob:
    """Return a job with some options."""
    return CalendarJob(job=ListedJob(**({"id": "a", "class_name": "c"} | others)), options=options)


@pytest.mark.parametrize(
    ("limits", "tighter", "looser"),
    [
        ({"usd_per_hour": 5.0}, {"usd_per_hour": 4.0}, {"usd_per_hour": 5.01}),
        ({"usd_in_all": 5.0}, {"usd_in_all": 4.0}, {"usd_in_all": 5.01}),
        (
            {"usd_per_period": 5.0, "period_hours": 24.0},
            {"usd_per_period": 4.0, "period_hours": 24.0},
            {"usd_per_period": 5.01, "period_hours": 24.0},
        ),
        (
            {"usd_per_period": 5.0, "period_hours": 24.0},
            {"usd_per_period": 5.0, "period_hours": 24.0, "usd_in_all": 3.0},
            {"usd_per_period": 5.0, "period_hours": 48.0},
        ),
        ({"instances": {"one": 2}}, {"instances": {"one": 1, "big": 0}}, {"instances": {"one": 3}}),
        (
            {"instances": {"one": 2}},
            {"instances": {"one": 2}, "usd_per_hour": 1.0},
            {"instances": {"big": 1}},
        ),
        (
            {"windows": {"one": (1.0, 2.0)}},
            {"windows": {"one": (1.0, 2.0)}, "usd_in_all": 1.0},
            {"windows": {"one": (1.0, 3.0)}},
        ),
        ({}, {"period_hours": 24.0}, {"windows": {"one": (1.0, 2.0)}}),
    ],
)
def test_limits_allow_equal_and_tighter_limits(
    limits: dict[str, Any], tighter: dict[str, Any], looser: dict[str, Any]
) -> None:
    """Limits that are looser in one respect are not allowed."""
    most = CalendarLimits(**limits)
    assert most.allows(CalendarLimits(**limits))
    assert most.allows(CalendarLimits(**tighter))
    assert not most.allows(CalendarLimits(**looser))


def test_a_job_is_late_after_its_deadline_and_not_at_it() -> None:
    """Submitted at 2 and due within 3 hours; on spot `sure_hours` count."""
    job = a_calendar_job(an_option(3.0, 9.0), an_option(2.0, 11.0), submit_hours=2.0, deadline_hours=3.0)
    assert (job.due_hours, job.least_usd, job.least_hours) == (5.0, 9.0, 2.0)
    assert a_calendar_job(an_option(1.0)).due_hours == np.inf
    for starts, hours, sure, is_late in (
        (2.0, 3.0, 0.0, False),
        (2.0, 3.0 + 1e-6, 0.0, True),
        (2.01, 3.0, 0.0, True),
        (2.0, 1.0, 3.0, False),
        (2.0, 1.0, 3.1, True),
    ):
        entry = CalendarEntry(job=job, option=an_option(hours, sure_hours=sure), starts=starts)
        assert entry.ends == starts + hours
        assert entry.is_late == is_late, (starts, hours, sure)


def test_a_calendar_sums_finished_late_and_left_out_jobs() -> None:
    """Two entries, one of them late, and two jobs without a place, one of them with a deadline."""
    dated = {"submit_hours": 1.0, "deadline_hours": 4.0}
    early = a_calendar_job(an_option(4.0, 6.0), id="early", weight=2.0, **dated)
    late = a_calendar_job(an_option(5.0, 7.0), id="late", weight=3.0, **dated)
    out, free = a_calendar_job(id="out", weight=5.0, **dated), a_calendar_job(id="free", weight=11.0)
    entries = tuple(CalendarEntry(job=job, option=job.options[0], starts=1.0) for job in (early, late))
    found = Calendar(entries=entries, left_out=(out, free))

    assert [job.job.id for job in found.missed] == ["late", "out"]
    assert (found.spend, found.all_done, found.weighted_hours) == (6.0 + 7.0, 6.0, 2.0 * 4.0 + 3.0 * 5.0)
    assert found.key == (5.0 + 11.0, 3.0 + 5.0, 2.0 * 4.0 + 3.0 * 5.0)
    assert (Calendar(entries=()).all_done, Calendar(entries=()).key) == (0.0, (0.0, 0.0, 0.0))
    assert per_period(found, 4.0).tolist() == pytest.approx([3 * 1.5 + 3 * 1.4, 1 * 1.5 + 2 * 1.4])
    assert per_period(found, 6.0).tolist() == pytest.approx([13.0])


@pytest.mark.parametrize(
    ("other", "is_beaten"),
    [
        (an_option(2.0, 6.0, gpus=2), True),
        (an_option(2.0, 6.0, gpus=1), False),
        (an_option(2.1, 6.0), True),
        (an_option(2.0, 6.1), True),
        (an_option(2.0, 6.0, instances=2), True),
        (an_option(1.9, 6.1), False),
        (an_option(2.1, 5.9), False),
        (an_option(1.9, 6.0), False),
        (an_option(2.1, 6.1, gpu_type="big"), False),
    ],
)
def test_an_option_is_beaten_by_one_that_is_nowhere_worse_and_somewhere_better(
    other: InstanceOption, is_beaten: bool
) -> None:
    """The option to beat takes two hours for 6 dollars on one instance and one GPU."""
    one = an_option(2.0, 6.0)
    assert _beats(one, other) == is_beaten
    assert not _beats(one, one)


@pytest.mark.parametrize("widths", [12, 13, 40])
def test_more_than_twelve_options_are_thinned_to_an_even_spread(widths: int) -> None:
    """The options nearest to eleven durations stay, each duration the same part of the last."""
    problem = a_problem(one=Amdahl(parallel_fraction=0.99, max_gpus=widths))
    (job,) = calendar_jobs(problem, [ListedJob(id="a", class_name="c")], MACHINES)
    every = [8.0 * (0.01 + 0.99 / gpus) for gpus in range(1, widths + 1)]
    spread = [every[0] * (every[-1] / every[0]) ** (part / 10) for part in range(11)]
    near = {min(every, key=lambda hours: abs(hours - at)) for at in spread}

    kept = every if widths <= 12 else sorted(near, reverse=True)
    assert [option.hours for option in job.options] == pytest.approx(kept)


@pytest.mark.parametrize(
    ("limits", "hours", "start"),
    [
        # A dollar an hour: the limit is exactly enough, or a thousandth too small.
        ({"usd_per_hour": 1.0}, 2.0, 0.0),
        ({"usd_per_hour": 0.999}, 2.0, np.inf),
        ({"instances": {"one": 1}}, 2.0, 0.0),
        # A period pays for 3 of its 10 hours: 6 hours fit across the end of a period, more fit nowhere.
        ({"usd_per_period": 3.0, "period_hours": 10.0}, 3.0, 0.0),
        ({"usd_per_period": 3.0, "period_hours": 10.0}, 3.1, 7.0),
        ({"usd_per_period": 3.0, "period_hours": 10.0}, 6.0, 7.0),
        ({"usd_per_period": 3.0, "period_hours": 10.0}, 6.01, np.inf),
        # Periods that pay for all of their hours pay for any duration.
        ({"usd_per_period": 10.0, "period_hours": 10.0}, 25.0, 0.0),
        # Instances are available from 4 to 8 only.
        ({"instances": {"one": 1}, "windows": {"one": (4.0, 8.0)}}, 4.0, 4.0),
        ({"instances": {"one": 1}, "windows": {"one": (4.0, 8.0)}}, 4.01, np.inf),
    ],
)
def test_the_earliest_start_at_limits_just_kept_and_just_exceeded(
    limits: dict[str, Any], hours: float, start: float
) -> None:
    """One machine at a dollar an hour is wanted from hour 0 on."""
    assert Timeline(CalendarLimits(**limits)).earliest(an_option(hours, hours), 0.0) == pytest.approx(start)


def test_a_placed_option_blocks_its_machine_only_while_it_runs() -> None:
    """One machine is taken from 2 to 4 and one from 3 to 6, of two machines or of 2 or 3 dollars an hour."""
    for limits in (
        CalendarLimits(instances={"one": 2}),
        CalendarLimits(usd_per_hour=3.0),
        CalendarLimits(usd_per_hour=2.0),
    ):
        timeline, option = Timeline(limits), an_option(1.0)
        timeline.take(an_option(2.0, 2.0), 2.0)
        timeline.take(an_option(3.0, 3.0), 3.0)
        room = limits.usd_per_hour != 3.0
        assert timeline.spent == 5.0
        assert timeline.earliest(option, 1.0) == 1.0
        assert timeline.earliest(an_option(2.0, 2.0), 1.0) == 1.0
        assert timeline.earliest(an_option(2.1, 2.1), 1.0) == (4.0 if room else 1.0)
        assert timeline.earliest(option, 2.5) == (4.0 if room else 2.5)
        assert timeline.earliest(an_option(9.0, 9.0), 4.0) == 4.0


@pytest.mark.parametrize(
    ("price", "weight", "deadline", "own", "hours"),
    [
        # 4 hours for 4 dollars or 2 hours for 6: they are equal at a price of one hour for a dollar.
        (0.9, 1.0, None, None, 2.0),
        (1.1, 1.0, None, None, 4.0),
        (1.1, 2.0, None, None, 2.0),
        # Equal costs: the first option stays.
        (1.0, 1.0, None, None, 4.0),
        # Meeting the deadline comes first.
        (1.1, 1.0, 3.0, None, 2.0),
        (0.9, 1.0, None, {"a": 1.1}, 4.0),
        (0.9, 1.0, None, {"b": 1.1}, 2.0),
    ],
)
def test_an_option_is_chosen_by_deadline_and_then_by_price(
    price: float, weight: float, deadline: float | None, own: dict[str, float] | None, hours: float
) -> None:
    """The price weighs dollars against hours: least weight x end + price x dollars."""
    job = a_calendar_job(an_option(4.0, 4.0), an_option(2.0, 6.0), weight=weight, deadline_hours=deadline)
    (entry,) = calendar_of_order([job], CalendarLimits(), price, own).entries
    assert entry.option.hours == hours


@pytest.mark.parametrize(
    ("usd", "hours", "left_out"),
    [
        # Two jobs with 4 hours for 4 dollars or 2 for 6 each: both fast, one fast, none fast, and too little.
        (12.0, [2.0, 2.0], 0),
        (11.9, [2.0, 4.0], 0),
        (10.0, [2.0, 4.0], 0),
        (9.9, [4.0, 4.0], 0),
        (8.0, [4.0, 4.0], 0),
        (7.9, [2.0], 1),
        (4.0, [4.0], 1),
        (3.9, [], 2),
    ],
)
def test_a_total_sum_reserves_the_cheapest_options_of_later_jobs(
    usd: float, hours: list[float], left_out: int
) -> None:
    """If the sum does not pay for the cheapest options of all jobs, the first jobs choose freely."""
    jobs = [a_calendar_job(an_option(4.0, 4.0), an_option(2.0, 6.0), id=name) for name in "ab"]
    found = calendar_of_order(jobs, CalendarLimits(usd_in_all=usd), 0.0)
    assert [entry.option.hours for entry in found.entries] == hours
    assert len(found.left_out) == left_out
