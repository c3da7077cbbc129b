"""`learning/beliefs.py`: what is believed of a class, when it is looked at again, and when a plan follows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis.strategies import floats, lists

from boa_daemon.learning import beliefs as module
from boa_daemon.learning.beliefs import (
    Beliefs,
    ClassBelief,
    EvidenceWeights,
    PlannedFigures,
    classes_differ,
    estimate_class,
    explain_belief,
    phase_at,
    remaining_work_of,
    work_until,
)
from boa_daemon.learning.samples import ENOUGH_MORE, HOUR, Sample
from boa_daemon.testing import a_class, a_job
from policies.online.estimates import SPREAD, Belief
from policies.speedup import Amdahl, Table

CLASS = a_class(sizes=(4.0,), arrivals_per_hour=2.0)
NOW = 100.0 * HOUR


def arrived(at: float, count: float = 1.0) -> Sample:
    """Return arrivals at an hour."""
    return Sample(key=f"a{at}", kind="arrivals", class_name="c", at=at * HOUR, count=count, moment=count)


def ended(at: float, work: float, kind: Any = "size", count: float = 1.0) -> Sample:
    """Return jobs that ended at an hour with so much work each."""
    return Sample(
        key=f"{kind}{at}{work}", kind=kind, class_name="c", at=at * HOUR, count=count, total=work,
        moment=float(np.log(work)),
    )  # fmt: skip


def seen(at: float) -> Sample:
    """Return the first job of a class, at an hour."""
    return Sample(key="s", kind="seen", class_name="c", at=at * HOUR)


def believed(rows: list[Sample], running: list[float] | None = None, **changes: Any) -> ClassBelief:
    """Return the belief at hour 100."""
    how = {"now": NOW, "weights": EvidenceWeights()} | changes
    return estimate_class(CLASS, rows, running or [], **how)


def test_without_data_the_class_file_is_believed() -> None:
    """And nobody is believed to have worked longer without having more left."""
    found = believed([])
    assert (found.rate.low < 2.0 < found.rate.high, found.size.low < 4.0 < found.size.high) == (True, True)
    assert (found.arrivals, found.ended, found.cut, found.newest_at, found.began_at) == (0, 0, 0, None, None)
    assert found.size.spread <= 0.99
    assert found.size_factor == pytest.approx(found.size.mean / 4.0)


def test_jobs_are_counted_by_what_became_of_them() -> None:
    """The first one is an arrival, too."""
    rows = [seen(90.0), arrived(95.0, 3.0), ended(96.0, 5.0), ended(97.0, 2.0, "cut", count=2.0)]
    found = believed(rows)
    assert (found.arrivals, found.ended, found.cut) == (4, 1, 2)
    assert (found.newest_at, found.began_at) == (97.0 * HOUR, 90.0 * HOUR)


def test_an_unstated_rate_is_outweighed_by_the_first_arrivals() -> None:
    """A stated one counts as two jobs."""
    rows = [seen(90.0), *(arrived(at + 0.5, 20.0) for at in range(90, 100))]
    stated, unstated = (believed(rows, is_rate_stated=is_so).rate.mean for is_so in (True, False))
    assert 2.0 < stated < unstated
    few = believed(rows, is_rate_stated=False, weights=EvidenceWeights(prior_jobs=0.1)).rate.mean
    assert few > unstated


def test_an_hour_that_has_just_begun_counts_as_long_as_it_is() -> None:
    """Three jobs in its first minutes are more per hour than three in a whole one."""
    rows = [seen(98.0), arrived(98.5, 3.0), arrived(99.95, 3.0)]
    early = believed([*rows[:2]], now=99.05 * HOUR)
    late = believed([*rows[:2]], now=99.95 * HOUR)
    assert early.rate.mean > 1.15 * late.rate.mean


def test_old_data_count_less() -> None:
    """A week old, half: of large and small jobs the newer ones decide, also among those that were cut."""
    week = 168.0
    now = 2000.0 * HOUR
    for kind in ("size", "cut"):
        small, large = (
            [ended(2000.0 - age, work, kind, 8.0)] for age, work in ((0.1, 1.0), (4 * week, 30.0))
        )
        mixed = believed(small + large, now=now).size.mean
        turned = [replace(small[0], at=large[0].at), replace(large[0], at=small[0].at)]
        assert mixed < believed(turned, now=now).size.mean


def test_a_size_stays_until_jobs_end_or_run_much_longer() -> None:
    """A job that was cut is evidence, too; a rate is estimated each time."""
    rows = [seen(90.0), ended(95.0, 5.0)]
    before = believed(rows, [4.0])
    assert believed(rows, [4.0 * ENOUGH_MORE], before=before).size is before.size
    assert believed(rows, [4.1 * ENOUGH_MORE], before=before).size is not before.size
    assert believed([*rows, ended(96.0, 5.0)], [4.0], before=before).size is not before.size
    assert believed([*rows, ended(96.0, 5.0, "cut")], [4.0], before=before).size is not before.size
    assert believed(rows, [0.0, -1.0]).unfinished == 0.0
    assert believed(rows, [4.0, 8.0]).unfinished == 3.0
    assert believed(rows, [40.0]).size.mean > before.size.mean


RATE, SIZE = Belief(mean=3.0, low=1.0, high=5.0), Belief(mean=8.0, low=6.0, high=10.0, spread=0.7)
BELIEF = ClassBelief(name="c", rate=RATE, size=SIZE, stated_per_hour=2.0, stated_gpu_hours=4.0)


@pytest.mark.parametrize(
    ("planned", "follows", "found"),
    [
        ((1.0, 1.5), (True, True), (1.0, 1.5)),
        ((5.0, 2.5), (True, True), (5.0, 2.5)),
        ((0.9, 1.4), (True, True), (3.0, 2.0)),
        ((5.1, 2.6), (True, True), (3.0, 2.0)),
        ((9.0, 9.0), (False, True), (9.0, 2.0)),
        ((9.0, 9.0), (True, False), (3.0, 9.0)),
    ],
)
def test_a_figure_stays_within_its_interval_and_is_the_estimate_beyond(
    planned: tuple[float, float], follows: tuple[bool, bool], found: tuple[float, float]
) -> None:
    """Each by itself, and only those that a plan follows."""
    figures = PlannedFigures(per_hour=planned[0], size_factor=planned[1])
    after = figures.followed(BELIEF, rates=follows[0], sizes=follows[1])
    assert (after.per_hour, after.size_factor) == found


def test_a_class_with_other_figures_keeps_the_proportions_of_its_phases() -> None:
    """And all that is stated besides."""
    stated = a_class(sizes=(1.0, 3.0), arrivals_per_hour=2.0, weight=5.0)
    found = PlannedFigures(per_hour=7.0, size_factor=2.0).of(stated)
    assert [phase.size_gpu_hours for phase in found.phases] == [2.0, 6.0]
    assert (found.arrivals_per_hour, found.weight) == (7.0, 5.0)
    assert PlannedFigures(per_hour=7.0).of(stated).phases is stated.phases


@given(lists(floats(0.1, 9.0), min_size=1, max_size=4), floats(0.0, 30.0), floats(0.0, 0.9))
def test_the_rest_of_a_job_fits_its_phase(sizes: list[float], done: float, spread: float) -> None:
    """What is left ends in no earlier phase; a job of the resulting size has as much left."""
    stated = a_class(sizes=sizes)
    rest = remaining_work_of(stated, scale=1.5, done=done, spread=spread)
    assert rest.left > 0.0
    assert rest.scale * stated.size_gpu_hours == pytest.approx(done + rest.left)
    assert 0 <= rest.phase < len(sizes)
    after = sum(sizes[rest.phase + 1 :]) * rest.scale
    before = sum(sizes[rest.phase :]) * rest.scale
    assert after <= rest.left * (1 + 1e-9)
    assert rest.left <= before * (1 + 1e-9)


def test_the_phase_is_told_at_its_borders() -> None:
    """With nothing left a job is in its last phase, with all left in its first."""
    stated = a_class(sizes=(1.0, 2.0, 3.0))
    assert [phase_at(stated, left, 6.0)[0] for left in (0.0, 2.9, 3.0, 3.1, 5.0, 5.1, 6.0)] == [
        2,
        2,
        2,
        1,
        1,
        0,
        0,
    ]
    assert phase_at(stated, 6.0, 12.0) == (2, 2.0)
    assert phase_at(a_class(sizes=(4.0,)), 1.0, 2.0) == (0, 0.5)


def test_the_work_until_a_phase_is_what_comes_before_it() -> None:
    """After the last phase it is all work."""
    stated = a_class(sizes=(1.0, 2.0, 3.0))
    job = replace(a_job("a"), remaining_gpu_hours=12.0, scale=2.0)
    assert [work_until(stated, job, phase) for phase in (1, 2, 3, 4)] == [2.0, 6.0, 12.0, 12.0]


@pytest.mark.parametrize(
    ("changes", "differ"),
    [
        ({}, False),
        ({"arrivals_per_hour": 2.19}, False),
        ({"arrivals_per_hour": 2.21}, True),
        ({"arrivals_per_hour": 1.79}, True),
        ({"sizes": (4.39,)}, False),
        ({"sizes": (4.41,)}, True),
        ({"curve": Table(gpus=(1, 2, 4), speeds=(1.0, 1.8, 3.29))}, False),
        ({"curve": Table(gpus=(1, 2, 4), speeds=(1.0, 1.8, 3.31))}, True),
        ({"curve": Table(gpus=(1, 2, 4), speeds=(1.0, 1.61, 3.0))}, True),
        ({"curve": Amdahl(parallel_fraction=0.1)}, True),
    ],
)
def test_a_change_is_worth_a_plan_above_a_tenth(changes: dict[str, Any], differ: bool) -> None:
    """Of the rate, the size, or the speed at any width."""
    assert classes_differ(a_class(**({"sizes": (4.0,), "arrivals_per_hour": 2.0} | changes)), CLASS) == differ


def test_a_sentence_has_both_figures_with_what_was_stated() -> None:
    """Its intervals, and the jobs behind each."""
    said = explain_belief(replace(BELIEF, arrivals=7, ended=5))
    assert said == (
        "Class c: 3 (1 to 5; stated 2) jobs/h from 7 jobs; "
        "8 (6 to 10; stated 4) GPU-hours a job from 5 that ended."
    )


def looked(names: str, *, at: float = 0.0, **known: Any) -> Beliefs:
    """Return beliefs that were estimated at an instant."""
    found = Beliefs(again_seconds=120.0, late_seconds=600.0)
    for name in names:
        found.refresh(replace(CLASS, name=name), [], [], now=at, **known)
    return found


def test_classes_wait_two_minutes_with_jobs_and_ten_without() -> None:
    """Those that waited longest come first, and at most sixteen at once."""
    found = looked("ab")
    assert [found.due("ab", "a", now=now) for now in (119.9, 120.0, 599.9)] == [[], ["a"], ["a"]]
    assert sorted(found.due("ab", "a", now=600.0)) == ["a", "b"]
    found.refresh(replace(CLASS, name="a"), [], [], now=60.0)
    assert found.due("ab", "ab", now=300.0) == ["b", "a"]
    assert found.due("abz", "ab", now=300.0) == ["z", "b", "a"]
    assert len(Beliefs().due([str(number) for number in range(40)], [], now=0.0)) == module.MOST_AT_ONCE == 16


def test_a_class_is_looked_at_again_once_enough_was_seen() -> None:
    """Half as many more jobs at once, any new job after a while, and an hour without any."""
    found = looked("a", events=10)
    found.known["a"] = replace(
        BELIEF, name="a", rate=replace(RATE, weight=4.0), size=replace(SIZE, weight=4.0)
    )

    def is_due(events: int, now: float) -> bool:
        return found.due("a", "a", events={"a": events}, now=now) == ["a"]

    enough = 10 + round(8 * (ENOUGH_MORE - 1.0))
    assert [is_due(enough - 1, 300.0), is_due(enough, 300.0)] == [False, True]
    assert [is_due(11, 599.0), is_due(11, 600.0)] == [False, True]
    assert [is_due(10, 3600.0), is_due(10, 3601.0)] == [False, True]
    assert found.due("b", "b", events={}, now=0.0) == ["b"]


def test_a_variant_has_the_spread_of_its_class() -> None:
    """Of a class that nobody knows, the usual one."""
    found = Beliefs(known={"c": BELIEF})
    assert [found.spread_of(name) for name in ("c", "c[2-8]", "d")] == [0.7, 0.7, SPREAD]


def test_a_class_whose_stated_size_changed_is_estimated_anew() -> None:
    """What was believed of another size says nothing."""
    found = looked("c")
    before = found.known["c"].size
    found.refresh(CLASS, [], [], now=5.0)
    assert found.known["c"].size is before
    found.refresh(a_class(sizes=(40.0,), arrivals_per_hour=2.0), [], [], now=6.0)
    assert found.known["c"].size.mean > 5 * before.mean
    assert found.estimates == 3
