"""The table of a plan's jobs: rows beside each other's reasons, and columns that change together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from drafts import a_plan, gpus
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.testing import some_slots
from boa_daemon.tick.facts.plan import Plan, PlannedJobs, lent_reason
from boa_daemon.tick.facts.retries import GivenUp
from boa_daemon.tick.facts.state import DateNote
from policies.answer import Allocation
from policies.model import GpuSlot, JobId, Width

GONE = GivenUp(code="failed", reason="it failed 4 times")
DATE = DateNote(at=60.0, kept=0.9, usd=1.0)
FULL = PlannedJobs(
    widths=gpus(a=2, b=1),
    reasons={"a": "worth it", "z": "the cap"},
    slots={"a": some_slots("n1", 0, 1)},
    stops=("c",),
    waiting={"b": "node-limit", "z": "budget"},
    intended=gpus(a=4, b=1),
    dates={"b": DATE},
    unpaid=gpus(z=8),
    given_up={"d": GONE},
    ends={"e": "hangs"},
)


def test_a_row_says_all_that_is_planned_for_a_job() -> None:
    """Its width beside the reason, and what happens to it; what is not planned is None."""
    row = FULL["a"]
    assert (row.width, row.reason, row.slots) == (Width("gpu", 2), "worth it", some_slots("n1", 0, 1))
    assert (row.stops, row.waits_for, row.date, row.unpaid, row.given_up, row.end) == (False, *[None] * 5)
    assert (FULL["b"].waits_for, FULL["b"].date, FULL["b"].reason) == ("node-limit", DATE, None)
    assert (FULL["c"].stops, FULL["d"].given_up, FULL["e"].end) == (True, GONE, "hangs")
    assert (FULL["z"].width, FULL["z"].unpaid, FULL["z"].reason) == (None, Width("gpu", 8), "the cap")
    nobody = FULL["nobody"]
    assert (nobody.width, nobody.reason, nobody.slots, nobody.stops, nobody.waits_for) == (
        None,
        None,
        None,
        False,
        None,
    )


@pytest.mark.parametrize(
    ("holds", "intended", "head_start", "own"),
    [
        (Width("gpu", 2), Width("gpu", 4), True, False),
        (Width("gpu", 2), Width("other", 1), True, False),
        (Width("gpu", 2), Width("gpu", 2), True, False),
        (Width("gpu", 2), Width("gpu", 1), False, True),
    ],
)
def test_an_intended_width_is_a_head_start_or_what_lent_gpus_are_beyond(
    holds: Width, intended: Width, *, head_start: bool, own: bool
) -> None:
    """Lent are only GPUs beyond a narrower planned width of the same type."""
    row = PlannedJobs(widths={"a": holds}, intended={"a": intended})["a"]
    assert (row.head_start, row.own_width) == (intended if head_start else None, intended if own else None)
    assert FULL["nobody"].head_start is FULL["nobody"].own_width is None


def test_a_reason_is_marked_as_changed_once_a_stage_has_changed_the_width() -> None:
    """The policy's own reasons are not: the price of money is the reason of most widths."""
    asked = PlannedJobs().answered(Allocation(widths=gpus(a=2, b=2), reasons={"a": "worth it", "b": "too"}))
    assert (asked["a"].reason, asked["a"].changed_reason) == ("worth it", None)
    cut = asked.with_widths({"a": Width("gpu", 1), "b": None}, lambda job: f"the cap holds {job}")
    assert (cut["a"].width, cut["a"].changed_reason) == (Width("gpu", 1), "the cap holds a")
    assert (cut["b"].width, cut["b"].reason) == (None, "the cap holds b")
    assert cut.answered(Allocation(widths=gpus(a=2)))["a"].reason is None


def test_a_job_that_starts_neither_waits_nor_stops() -> None:
    """Others keep what they had."""
    found = FULL.starting({"b": some_slots("n2", 0), "c": some_slots("n2", 1)})
    assert list(found.slots) == ["a", "b", "c"]
    assert (found.waiting, found.stops) == ({"z": "budget"}, ())
    assert found.start_nodes == {"n1", "n2"}
    assert FULL.start_nodes == {"n1"}


def test_a_job_that_is_held_back_keeps_what_it_holds() -> None:
    """It starts nowhere, and what it would have started with is not said of it; a lender is left alone."""
    found = FULL.held_back({"a", "b"})
    assert (found.slots, found.intended, found.stops, found.widths) == (
        {},
        gpus(b=1),
        FULL.stops,
        FULL.widths,
    )
    assert FULL.held_back({"b", "c"}) == FULL


def test_a_job_that_stops_starts_nowhere_and_lends_nothing() -> None:
    """Each job is told once, in the order in which it was chosen."""
    found = FULL.stopping(["b", "c", "a"])
    assert (found.stops, found.slots, found.intended) == (("c", "b", "a"), {}, {})
    assert (found.waiting, found.widths) == (FULL.waiting, FULL.widths)


def test_a_job_that_loses_lent_gpus_has_its_planned_width_and_its_reason_again() -> None:
    """Held back or stopped, it does not speak of free GPUs; one that starts narrow keeps its width."""
    slots = {"a": some_slots("n1", 0, 1, 2, 3), "b": some_slots("n2", 0)}
    why = {"a": lent_reason("there are free GPUs", Width("gpu", 2), "its own reason"), "b": "narrow"}
    widths = {"a": Width("gpu", 4), "b": Width("gpu", 1)}
    intended = {"a": Width("gpu", 2), "b": Width("gpu", 2)}
    jobs = PlannedJobs(
        widths=widths, reasons=why, slots=slots, intended=intended, own_reasons={"a": "its own reason"}
    )
    for after in (jobs.held_back(["a", "b"]), jobs.stopping(["a", "b"])):
        assert (after["a"].width, after["a"].reason) == (Width("gpu", 2), "its own reason")
        assert (after["b"].width, after["b"].reason) == (Width("gpu", 1), "narrow")


def test_a_hung_generation_is_ended_and_not_asked_to_stop() -> None:
    """Its slots go, too; a job that was to stop is ended instead."""
    found = FULL.ending({"a": "makes no step", "c": "makes no step"})
    assert (found.ends, found.stops, found.slots) == ({"a": "makes no step", "c": "makes no step"}, (), {})
    assert found.intended == gpus(b=1)


def test_waits_are_added_or_set_anew() -> None:
    """The order of those that waited stays: launches name the first ones."""
    found = FULL.waiting_for({"y": "quota", "b": "cap-day"})
    assert list(found.waiting.items()) == [("b", "cap-day"), ("z", "budget"), ("y", "quota")]
    assert FULL.only_waiting({"y": "quota"}).waiting == {"y": "quota"}
    assert FULL.waiting_for({}) is FULL


def test_moves_replace_those_of_the_stage_before() -> None:
    """Placing again is not placing in addition."""
    found = FULL.moving({"b": some_slots("n2", 0)}, ("a",))
    assert (found.slots, found.stops, found.waiting) == ({"b": some_slots("n2", 0)}, ("a",), FULL.waiting)


def test_a_plan_with_the_same_jobs_is_the_same_object() -> None:
    """So a stage that changes nothing costs nothing."""
    plan = Plan()
    assert plan.with_jobs(plan.jobs) is plan
    assert plan.with_jobs(FULL).jobs is FULL
    assert a_plan(launches={"m": 1}).with_jobs(FULL).launches == {"m": 1}


NAMES = st.sampled_from("abcdef")
SLOTS: st.SearchStrategy[Mapping[JobId, tuple[GpuSlot, ...]]] = st.dictionaries(
    NAMES, st.just(some_slots("n1", 0)), max_size=3
)
STEPS: st.SearchStrategy[tuple[str, Any]] = st.one_of(
    st.tuples(st.just("starting"), SLOTS),
    st.tuples(st.just("held_back"), st.sets(NAMES, max_size=3)),
    st.tuples(st.just("stopping"), st.lists(NAMES, max_size=3)),
    st.tuples(st.just("ending"), st.dictionaries(NAMES, st.just("hangs"), max_size=2)),
)


@given(st.lists(STEPS, max_size=8))
def test_no_row_contradicts_itself(steps: list[tuple[str, Any]]) -> None:
    """Whatever the order of the methods: a job starts, or stops, or neither, and never waits as it starts."""
    jobs = FULL
    for name, argument in steps:
        jobs = getattr(jobs, name)(argument)
        assert not jobs.slots.keys() & set(jobs.stops)
        assert not jobs.slots.keys() & jobs.waiting.keys()
        assert not jobs.intended.keys() & set(jobs.stops)
        assert len(set(jobs.stops)) == len(jobs.stops)
        if name == "ending":
            assert jobs.ends == argument
            assert not jobs.ends.keys() & {*jobs.slots, *jobs.stops}
