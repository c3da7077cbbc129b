"""A running job that reached the cost or run time of its file is stopped, by a recorded decision."""

from __future__ import annotations

from dataclasses import replace

from drafts import a_draft

from boa_daemon.testing import Wishes, a_job, a_node, a_state, rules, some_slots
from boa_daemon.tick.decide.decision import Decision, decide
from boa_daemon.tick.facts.actions import StopJob
from boa_daemon.tick.facts.state import ClusterState, JobTerms
from boa_daemon.tick.stages.limits.keep_job_limits import keep_job_limits
from policies.placement.first_fit import FirstFit


def running(ends_at: float | None, *, now: float = 0.0, is_stopping: bool = False) -> ClusterState:
    """Return job a on a node of four GPUs, and b and c that wait."""
    state = a_state(
        *(a_job(name) for name in "abc"), nodes=[a_node()], held={"a": some_slots("n1", 0, 1)}, now=now
    )
    job = replace(state.jobs["a"], terms=JobTerms(money_ends_at=ends_at), is_stopping=is_stopping)
    return replace(state, jobs={**state.jobs, "a": job})


def decided(state: ClusterState, **widths: int) -> Decision:
    """Return the decision of a policy with these widths."""
    return decide(state, allocator=Wishes(widths=widths), placer=FirstFit(), rules=rules())


def test_a_job_is_stopped_exactly_when_its_money_ends() -> None:
    """One second earlier the plan wakes up for that instant; the stop gives the limit as its reason."""
    before = decided(running(10.0, now=9.0), a=2, b=1)
    assert before.plan.jobs.stops == ()
    assert before.wake_at == 10.0
    at = decided(running(10.0, now=10.0), a=2, b=1)
    (stop,) = (action for action in at.actions if isinstance(action, StopJob))
    assert (stop.job, "it has cost what its file allows" in stop.reason) == ("a", True)
    assert set(at.plan.jobs.slots) == {"b"}
    assert "it has cost what its file allows" in at.explain("a")
    assert decided(running(10.0, now=11.0), a=2, b=1).plan.jobs.stops == ("a",)


def test_a_job_that_reached_its_limit_stops_once_and_does_not_change_its_width() -> None:
    """The policy planned another width for the job."""
    found = decided(running(0.0), a=4, b=1)
    assert found.plan.jobs.stops == ("a",)
    assert "a" not in found.plan.jobs.slots
    assert [type(action) for action in found.actions].count(StopJob) == 1


def test_a_stopping_job_is_not_stopped_again() -> None:
    """The plan has no second order for a stopping job."""
    assert decided(running(0.0, is_stopping=True), a=2).plan.jobs.stops == ()


def test_a_job_without_a_limit_is_not_stopped() -> None:
    """The plan has no note about it either."""
    found = decided(running(None), a=2)
    assert (found.plan.held, found.plan.jobs.stops) == ((), ())


def test_the_earlier_of_the_limits_on_hours_and_money_is_the_reason() -> None:
    """The note's code is `max-hours` or `max-usd`; money wins at the same instant."""
    for hours, why, at in ((9.0, "max-hours", 9.0), (10.0, "max-usd", 10.0), (11.0, "max-usd", 10.0)):
        state = running(10.0, now=at)
        job = state.jobs["a"]
        job = replace(job, terms=replace(job.terms, hours_end_at=hours))
        found = decided(replace(state, jobs={**state.jobs, "a": job}), a=2)
        assert (found.plan.jobs.stops, [held.code for held in found.plan.held]) == (("a",), [why])


def test_waiting_and_stopping_jobs_do_not_shield_later_jobs_from_their_limit() -> None:
    """Jobs a (waiting) and b (stopping) come before c, which is stopped."""
    held = {"b": some_slots("n1", 0), "c": some_slots("n1", 1)}
    state = a_state(*(a_job(name) for name in "abc"), nodes=[a_node("n1")], held=held, now=100.0)
    over = JobTerms(hours_end_at=100.0)
    jobs = {name: replace(job, terms=over, is_stopping=name == "b") for name, job in state.jobs.items()}
    assert keep_job_limits(replace(state, jobs=jobs), a_draft()).plan.jobs.stops == ("c",)
