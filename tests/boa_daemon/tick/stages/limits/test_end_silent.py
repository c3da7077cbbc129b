"""Running jobs that make no step for too long are ended, by a recorded decision."""

from __future__ import annotations

from dataclasses import replace

from boa_daemon.testing import Wishes, a_job, a_node, a_state, rules, some_slots
from boa_daemon.tick.decide.decision import Decision, decide
from boa_daemon.tick.facts.actions import EndGeneration
from boa_daemon.tick.facts.retries import Silence
from boa_daemon.tick.facts.state import JobTerms
from policies.placement.first_fit import FirstFit

STALL = Silence(kind="no-step", since=100.0, limit_seconds=180.0)
FIRST = Silence(kind="no-report", since=0.0, limit_seconds=3600.0)


def decided(*silences: Silence, now: float, gpus: int = 1) -> Decision:
    """Return the decision on a silent job on one GPU, for which the policy plans `gpus`."""
    state = a_state(a_job("a"), nodes=[a_node()], held={"a": some_slots("n1", 0)}, now=now)
    job = replace(state.jobs["a"], terms=JobTerms(silences=silences), generation=3)
    state = replace(state, jobs={"a": job})
    widths = {"a": gpus} if gpus else {}
    return decide(state, allocator=Wishes(widths=widths), placer=FirstFit(), rules=rules())


def test_a_silent_job_is_ended_exactly_when_its_time_is_over() -> None:
    """One second earlier the plan wakes up for that instant."""
    before = decided(STALL, now=279.0)
    assert (before.actions, before.wake_at) == ((), 280.0)
    at = decided(STALL, now=280.0)
    assert at.actions == (
        EndGeneration(id="t1-end-a", job="a", generation=3, reason="made no step for 180 s"),
    )
    assert "It made no step for 180 s, and is ended." in at.explain("a")


def test_a_job_is_ended_only_after_its_stall_was_seen_often_enough() -> None:
    """A stall with looks left is checked again one second later."""
    found = decided(replace(STALL, looks_left=1), now=500.0)
    assert (found.actions, found.wake_at) == ((), 501.0)


def test_the_first_silence_whose_time_is_over_is_the_reason() -> None:
    """A job may be late with its first report and also make no step."""
    assert decided(FIRST, STALL, now=300.0).plan.jobs.ends == {"a": "made no step for 200 s"}
    assert decided(FIRST, STALL, now=3600.0).plan.jobs.ends == {
        "a": "reported no step within 1.00 h (first_report_hours)"
    }


def test_a_job_that_is_ended_neither_moves_nor_stops_in_the_same_tick() -> None:
    """This holds whatever width the policy planned for the job."""
    for gpus in (0, 4):
        found = decided(STALL, now=300.0, gpus=gpus)
        assert [type(action) for action in found.actions] == [EndGeneration]
        assert (dict(found.plan.jobs.slots), found.plan.jobs.stops) == ({}, ())


def test_a_silent_job_that_the_policy_does_not_know_is_ended_too() -> None:
    """Until its time is over the job keeps its GPU although another job waits."""
    state = a_state(
        a_job("a"), a_job("b"), nodes=[a_node(gpus=1)], held={"a": some_slots("n1", 0)}, now=279.0
    )
    seen = replace(state.jobs["a"], terms=JobTerms(silences=(STALL,)), generation=3)
    state = replace(state, jobs={"b": state.jobs["b"]}, unplanned={"a": seen})

    def decided_at(now: float) -> Decision:
        wishes = Wishes(widths={"b": 1})
        return decide(replace(state, now=now), allocator=wishes, placer=FirstFit(), rules=rules(max_nodes=1))

    assert (decided_at(279.0).actions, decided_at(279.0).wake_at) == ((), 280.0)
    assert decided_at(280.0).actions == (
        EndGeneration(id="t1-end-a", job="a", generation=3, reason="made no step for 180 s"),
    )
    assert "the last one lacks its class" in decided_at(280.0).explain("a")
