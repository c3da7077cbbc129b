"""The calendar search: never worse than simple rules, optimal on small lists, and with helpful changes."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.strategies import floats, integers
from sampling import sampled

from policies.optimum.calendar import Calendar, CalendarJob, CalendarLimits, InstanceOption, calendar_of_order
from policies.optimum.calendar_search import (
    CHEAPEST,
    RULES,
    CalendarSearchResult,
    calendar_by_rule,
    deadline_fixes,
    search,
)
from policies.optimum.job_list import ListedJob
from tests.policies.optimum.test_calendar import MACHINES, check_limits, job_lists, limits

PRICES = {name: machine.usd_per_hour for name, machine in MACHINES.items()}


def a_job(name: str, hours: float, *, due: float | None = None, submit: float = 0.0) -> CalendarJob:
    """Return a job for one machine at one dollar per hour."""
    option = InstanceOption(gpu_type="one", instances=1, gpus=1, hours=hours, usd=hours)
    deadline = None if due is None else due - submit
    listed = ListedJob(id=name, class_name="c", submit_hours=submit, deadline_hours=deadline)
    return CalendarJob(job=listed, options=(option,))


def every_list(jobs: list[CalendarJob], most: CalendarLimits) -> Calendar:
    """Return the best calendar over all orders and options, with each job as early as possible."""
    found = []
    for order in itertools.permutations(jobs):
        for options in itertools.product(*(job.options for job in order)):
            pinned = [CalendarJob(job=j.job, options=(o,)) for j, o in zip(order, options, strict=True)]
            found.append(calendar_of_order(pinned, most, 0.0))
    return min(found, key=lambda calendar: calendar.key)


@given(jobs=job_lists(), most=limits())
def test_the_search_is_never_worse_than_a_simple_rule(jobs: list[CalendarJob], most: CalendarLimits) -> None:
    """Rules sort by date, submission or size, with the fastest or cheapest options; every limit is kept."""
    found = search(jobs, most, PRICES, tries=30)

    check_limits(found.calendar, most)
    for rule, price in itertools.product(RULES, (0.0, CHEAPEST)):
        assert found.calendar.key <= calendar_by_rule(jobs, rule, most, price).key


@settings(max_examples=sampled(30))
@given(jobs=job_lists(), most=limits(), factor=floats(1.0, 3.0), more=integers(0, 2))
def test_more_money_and_machines_are_never_worse(
    jobs: list[CalendarJob], most: CalendarLimits, factor: float, more: int
) -> None:
    """Calendars are compared by left-out jobs, missed deadlines and waiting, not by their end."""
    looser = replace(
        most,
        usd_per_hour=most.usd_per_hour * factor,
        usd_per_period=most.usd_per_period * factor,
        usd_in_all=most.usd_in_all * factor,
        instances={name: number + more for name, number in most.instances.items()},
    )
    known = search(jobs, most, PRICES, tries=8)
    found = search(jobs, looser, PRICES, tries=8, known=known)

    assert looser.allows(most)
    assert (factor == 1.0 and not more) or most == looser or not most.allows(looser)
    check_limits(found.calendar, looser)
    assert found.calendar.key <= known.calendar.key


@given(jobs=job_lists(most=3), most=limits())
def test_bounds_hold_for_the_best_calendar_of_all(jobs: list[CalendarJob], most: CalendarLimits) -> None:
    """No order and no combination of options is below the bounds."""
    found = search(jobs, most, PRICES, tries=40)
    best = every_list(jobs, most)

    if not best.left_out:
        assert best.weighted_hours >= found.bound_weighted_hours * (1.0 - 1e-6)
    assert len(best.missed) >= found.least_missed


@pytest.mark.exhaustive
def test_small_lists_are_nearly_always_solved_to_the_optimum() -> None:
    """Of 15 random lists of four jobs at most one misses the optimum, and by 10 % at most."""
    rng = np.random.default_rng(5)
    most = CalendarLimits(usd_per_hour=34.0, instances={"one": 2, "big": 2})
    worse = []
    for _ in range(sampled(15)):
        jobs = []
        for number in range(4):
            hours = float(rng.uniform(1.0, 9.0))
            options = tuple(
                InstanceOption(
                    gpu_type=name,
                    instances=1,
                    gpus=MACHINES[name].gpus,
                    hours=hours / speed,
                    usd=hours / speed * MACHINES[name].usd_per_hour,
                )
                for name, speed in (("one", 1.0), ("big", 4.0))
            )
            listed = ListedJob(
                id=str(number),
                class_name="c",
                submit_hours=float(rng.uniform(0.0, 4.0)),
                deadline_hours=float(rng.uniform(1.0, 12.0)),
            )
            jobs.append(CalendarJob(job=listed, options=options))
        found, best = search(jobs, most, PRICES).calendar.key, every_list(jobs, most).key
        if found[:2] > best[:2] or found[2] > best[2] * (1.0 + 1e-6):
            worse.append((found, best))

    assert len(worse) <= 1
    assert all(found[1] == best[1] and found[2] <= 1.1 * best[2] for found, best in worse)


def test_three_jobs_on_one_machine_miss_one_deadline_and_the_bound_says_so() -> None:
    """Each takes four hours and is due at hour nine: two jobs fit."""
    jobs = [a_job(name, 4.0, due=9.0) for name in "abc"]
    found = search(jobs, CalendarLimits(instances={"one": 1}), {"one": 1.0})

    assert len(found.calendar.missed) == 1
    assert found.least_missed == 1
    assert found.calendar.all_done == 12.0
    # The bound is exact here: 4 + 8 + 12 hours.
    assert found.bound_weighted_hours == pytest.approx(24.0)
    assert found.gap == pytest.approx(0.0)


def test_the_cheapest_change_is_named_for_each_missed_deadline() -> None:
    """A second machine saves the third job at no extra cost."""
    jobs = [a_job(name, 4.0, due=9.0) for name in "abc"]
    most = CalendarLimits(instances={"one": 1})
    found = search(jobs, most, {"one": 1.0})
    (change,) = deadline_fixes(found, most).values()

    assert (change.kind, change.gpu_type, change.instances, change.extra_usd) == ("quota", "one", 2, 0.0)
    wider = CalendarLimits(instances={"one": change.instances})
    assert not search(jobs, wider, {"one": 1.0}).calendar.missed


def test_a_larger_budget_is_named_where_money_is_short() -> None:
    """Ten dollars per 24 hours; two jobs of eight dollars each are due within the first period."""
    jobs = [a_job("a", 8.0, due=20.0), a_job("b", 8.0, due=20.0)]
    most = CalendarLimits(usd_per_period=10.0, period_hours=24.0)
    found = search(jobs, most, {"one": 1.0})
    (change,) = deadline_fixes(found, most).values()

    assert change.kind == "budget"
    assert 10.0 * change.factor >= 16.0
    assert found.least_missed == 1


def test_a_deadline_before_the_fastest_end_can_only_be_moved() -> None:
    """The change names the earliest possible date."""
    job = a_job("a", 5.0, due=3.0)
    most = CalendarLimits(usd_per_hour=10.0, instances={"one": 3})
    found = search([job], most, {"one": 1.0})
    (change,) = deadline_fixes(found, most).values()

    assert (change.kind, change.ends) == ("date", 5.0)
    assert found.least_missed == 1


def test_a_change_to_on_demand_saves_a_deadline_and_makes_no_other_job_late() -> None:
    """Moving the job to the front on spot would make the other job late.

    Three dollars an hour pay for one job at a time. On demand the job takes eight hours for 24 dollars, which
    leaves the other job its eight hours. On spot it takes ten hours for ten dollars, and the other job begins
    two hours later. Money is dear here, so the list took spot.
    """
    spot = InstanceOption(gpu_type="one@spot", instances=1, gpus=1, hours=10.0, usd=10.0, sure_hours=13.0)
    firm = InstanceOption(gpu_type="one", instances=1, gpus=1, hours=8.0, usd=24.0)
    either = CalendarJob(
        job=ListedJob(id="either", class_name="c", deadline_hours=14.0), options=(spot, firm)
    )
    other = CalendarJob(job=ListedJob(id="other", class_name="c", deadline_hours=17.0), options=(firm,))
    most = CalendarLimits(usd_per_hour=3.0)
    order = (other, either)
    found = CalendarSearchResult(
        calendar=calendar_of_order(order, most, CHEAPEST),
        order=order,
        hours_per_usd=CHEAPEST,
        own={},
        bound_weighted_hours=0.0,
        least_missed=0,
    )
    assert [job.job.id for job in found.calendar.missed] == ["either"]

    (change,) = deadline_fixes(found, most).values()

    assert (change.kind, change.misses) == ("on-demand", ())
    assert change.extra_usd == pytest.approx(24.0 - 10.0)
    first = calendar_of_order((either, other), most, CHEAPEST)
    assert [job.job.id for job in first.missed] == ["other"]
    saved = calendar_of_order((replace(either, options=(firm,)), other), most, CHEAPEST)
    assert saved.missed == ()


@given(jobs=job_lists(), most=limits())
def test_moving_a_job_to_the_front_saves_its_deadline_where_that_is_named(
    jobs: list[CalendarJob], most: CalendarLimits
) -> None:
    """Every missed deadline has a change."""
    found = search(jobs, most, PRICES, tries=20)
    changes = deadline_fixes(found, most)

    assert set(changes) == {job.job.id for job in found.calendar.missed}
    for name, change in changes.items():
        if change.kind == "first":
            order = sorted(found.order, key=lambda job: job.job.id != name)
            again = calendar_of_order(order, most, found.hours_per_usd)
            assert name not in {job.job.id for job in again.missed}


def test_a_known_calendar_that_is_worse_changes_nothing() -> None:
    """The known calendar has a third of the money; under looser limits the search keeps its own."""
    jobs = [a_job("a", 4.0), a_job("b", 2.0), a_job("c", 1.0)]
    known = search(jobs, CalendarLimits(usd_per_hour=1.0), PRICES, tries=8)
    alone = search(jobs, CalendarLimits(usd_per_hour=3.0), PRICES, tries=8)
    beside = search(jobs, CalendarLimits(usd_per_hour=3.0), PRICES, tries=8, known=known)

    assert alone.calendar.key < known.calendar.key
    assert beside.calendar.key == alone.calendar.key


def test_the_same_list_gives_the_same_calendar() -> None:
    """Each step draws its move from a generator that is seeded with the number of the step."""
    jobs = [a_job(str(n), 1.0 + n % 3, due=10.0, submit=n % 2) for n in range(12)]
    most = CalendarLimits(instances={"one": 2})

    assert search(jobs, most, {"one": 1.0}) == search(jobs, most, {"one": 1.0})


def test_a_calendar_that_leaves_jobs_out_has_no_gap() -> None:
    """The gap is None if a job is left out, else a share of the weighted hours."""
    found = search([a_job("a", 2.0), a_job("b", 1.0)], CalendarLimits(usd_per_hour=1.0), PRICES, tries=5)
    some = replace(found, bound_weighted_hours=0.75 * found.calendar.weighted_hours)
    assert some.gap == pytest.approx(0.25)
    assert replace(some, bound_weighted_hours=2.0 * found.calendar.weighted_hours).gap == 0.0
    short = replace(some, calendar=replace(found.calendar, left_out=found.order[:1]))
    assert short.gap is None


@pytest.mark.parametrize(
    ("rule", "order"), [("edf", ["late", "long", "short"]), ("fifo", ["long", "late", "short"])]
)
def test_rules_sort_jobs_by_deadline_submission_or_size(rule: str, order: list[str]) -> None:
    """On one free machine jobs without a deadline come last, and equal jobs keep their order."""
    jobs = [
        a_job("short", 1.0, submit=0.2),
        a_job("long", 3.0, submit=0.0),
        a_job("late", 2.0, submit=0.1, due=9.0),
    ]
    found = calendar_by_rule(jobs, rule, CalendarLimits(instances={"one": 1}), 0.0)
    assert [entry.job.job.id for entry in found.entries] == order
    short_first = calendar_by_rule(jobs, "srpt", CalendarLimits(instances={"one": 1}), 0.0)
    assert [entry.job.job.id for entry in short_first.entries] == ["short", "late", "long"]


def test_a_gap_is_the_share_above_the_larger_bound() -> None:
    """Ten hours against bounds of eight and nine. It is at least 0, and None where a job has no place."""
    job = a_job("a", 10.0)
    calendar = calendar_by_rule([job], "edf", CalendarLimits(), 0.0)
    found = CalendarSearchResult(
        calendar=calendar,
        order=(job,),
        hours_per_usd=0.0,
        own={},
        bound_weighted_hours=8.0,
        least_missed=0,
        bound_with_dates=9.0,
    )
    assert (found.gap, found.gap_with_dates) == pytest.approx((0.2, 0.1))
    assert replace(found, bound_with_dates=7.0).gap_with_dates == pytest.approx(0.2)
    assert replace(found, bound_weighted_hours=11.0).gap == 0.0
    nowhere = calendar_by_rule([job], "edf", CalendarLimits(instances={"one": 0}), 0.0)
    assert (replace(found, calendar=nowhere).gap, replace(found, calendar=nowhere).gap_with_dates) == (
        None,
        None,
    )
