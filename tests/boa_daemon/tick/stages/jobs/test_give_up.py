"""Waiting jobs that must not start again are given up, by a recorded decision."""

from __future__ import annotations

from dataclasses import replace

import pytest

from boa_daemon.testing import Wishes, a_job, a_node, a_state, rules, some_slots
from boa_daemon.tick.decide.decision import Decision, decide
from boa_daemon.tick.facts.actions import GiveUpJob, StartJob
from boa_daemon.tick.facts.codec import decode, encode
from boa_daemon.tick.facts.retries import Failure, Retries
from boa_daemon.tick.facts.state import ClusterState, JobTerms
from policies.placement.first_fit import FirstFit

NOW = 1000.0
ONCE = Retries(most_failures=1)
FAILED = JobTerms(
    failed=(Failure(at=NOW, step=0, cause="error"),), failures=1, last_end="exit code 1", retries=ONCE
)


def decided(terms: JobTerms, *, runs: bool = False) -> Decision:
    """Return the decision on a job with these terms, and on job b, which runs after it."""
    held = {"a": some_slots("n1", 0)} if runs else {}
    state = a_state(*(a_job(name) for name in "ab"), nodes=[a_node()], held=held, now=NOW)
    follows = JobTerms(waits_for="a")
    jobs = {"a": replace(state.jobs["a"], terms=terms), "b": replace(state.jobs["b"], terms=follows)}
    return over(replace(state, jobs=jobs))


def over(state: ClusterState) -> Decision:
    """Return the decision of a policy that would give both jobs a GPU."""
    return decide(state, allocator=Wishes(widths={"a": 1, "b": 1}), placer=FirstFit(), rules=rules())


@pytest.mark.parametrize(
    ("terms", "code", "reason"),
    [
        (FAILED, "failed", "exit code 1"),
        (JobTerms(money_ends_at=NOW), "max-usd", "max_usd reached"),
        (JobTerms(money_ends_at=0.0, group="g-1"), "max-usd", "the max_usd of its group g-1 is spent"),
        (JobTerms(hours_end_at=NOW), "max-hours", "max_hours reached"),
        (
            JobTerms(waits_for="z", awaited_end="cancelled"),
            "after",
            "it was to run after z, which is cancelled",
        ),
    ],
)
def test_a_job_is_given_up_for_failures_limits_and_a_cancelled_predecessor(
    terms: JobTerms, code: str, reason: str
) -> None:
    """The job does not start, the order has a code and a reason, and the next tick follows in one second."""
    found = decided(terms)
    order, *rest = found.actions
    assert order == GiveUpJob(id="t1-give-up-a", job="a", code=code, reason=reason)  # type: ignore[arg-type]
    assert not any(isinstance(action, StartJob) for action in rest)
    assert found.plan.jobs.waiting["a"] == "given-up"
    assert f"It is given up: {reason}." in found.explain("a")
    assert found.wake_at == NOW + 1.0


def test_the_recorded_state_gives_the_same_decision_again() -> None:
    """The state is encoded and decoded, and the reasons of the jobs given up survive it too."""
    found = decided(FAILED)
    again = over(decode(encode(found.state)))
    assert (again.actions, again.plan) == (found.actions, found.plan)
    assert decode(encode(found.plan)).jobs.given_up == found.plan.jobs.given_up


@pytest.mark.parametrize(
    "terms",
    [
        replace(FAILED, retries=Retries(most_failures=2)),
        JobTerms(money_ends_at=NOW + 1.0),
        JobTerms(hours_end_at=NOW + 1.0),
        JobTerms(waits_for="z"),
    ],
)
def test_a_job_that_may_start_again_is_not_given_up(terms: JobTerms) -> None:
    """The job has failures, money or hours left, or waits for a job that has not ended."""
    assert not decided(terms).plan.jobs.given_up


def test_a_running_job_is_never_given_up() -> None:
    """A running job whose money is spent is not given up in the tick that stops it."""
    assert not decided(JobTerms(money_ends_at=NOW), runs=True).plan.jobs.given_up
