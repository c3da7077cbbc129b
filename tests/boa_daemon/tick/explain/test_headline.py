"""The first sentence of an explanation says what a job does, and why."""

from __future__ import annotations

from dataclasses import replace

import pytest
from drafts import a_plan, gpus

from boa_daemon.testing import a_job, a_node, a_state, some_slots
from boa_daemon.tick.decide.diff import diff
from boa_daemon.tick.explain.headline import headline
from boa_daemon.tick.facts.limits import Held
from boa_daemon.tick.facts.plan import Plan, PlannedJobs
from boa_daemon.tick.facts.state import Claim, ClusterState
from policies.model import Width


def state(*, holds: bool = True, ends_by: float | None = None) -> ClusterState:
    """Return job a on two GPUs of a node, or waiting, and the older job b, which waits."""
    node = replace(a_node("n1"), ends_by=ends_by)
    held = {"a": some_slots("n1", 0, 1)} if holds else {}
    return a_state(a_job("b"), a_job("a", arrived_at=1.0), nodes=[node], held=held, now=100.0)


@pytest.mark.parametrize(
    ("seen", "plan", "says"),
    [
        (state(), a_plan(widths=gpus(a=2)), "Job a runs on 2 x gpu, as planned."),
        (
            state(),
            a_plan().with_jobs(
                PlannedJobs(widths=gpus(a=2)).with_widths(gpus(a=2), lambda _: "the limit of 1 node")
            ),
            "Job a runs on 2 x gpu: the limit of 1 node.",
        ),
        (
            state(),
            a_plan(widths=gpus(a=4), waiting={"a": "nodes-to-come"}),
            "Job a runs on 2 x gpu, and is to have 4 x gpu: its nodes are booting or were just requested.",
        ),
        (
            state(ends_by=160.0),
            a_plan(widths=gpus(a=2), waiting={"a": "nodes-to-come"}, stops=("a",)),
            "Job a stops: the cloud takes its node n1 back in 60 s.",
        ),
        (
            state(),
            a_plan(stops=("a",), held=(Held(what="job a", code="max-usd"),)),
            "Job a stops: it has cost what its file allows, and is stopped.",
        ),
        (
            state(holds=False),
            a_plan(widths=gpus(a=2, b=4), waiting={"a": "node-limit", "b": "node-limit"}),
            "Job a has to wait for 2 x gpu, number 2 of 2 in the queue: "
            "the limit on nodes is reached; it starts in the order of service.",
        ),
        (
            state(holds=False),
            a_plan(widths=gpus(a=2), waiting={"a": "node-limit", "b": "resting"}, order=("a", "b")),
            "Job a has to wait for 2 x gpu, alone in the queue: "
            "the limit on nodes is reached; it starts in the order of service.",
        ),
        (
            state(holds=False),
            a_plan(waiting={"a": "after"}),
            "Job a has to wait: another job has to end first.",
        ),
        (
            state(holds=False),
            a_plan(widths=gpus(a=2), slots={"a": some_slots("n1", 0, 1)}),
            "Job a starts now on 2 x gpu.",
        ),
        (
            replace(
                state(),
                jobs={"a": replace(state().jobs["a"], is_stopping=True)},
                claims={"a": Claim(width=Width("gpu", 1), slots=some_slots("n1", 0))},
            ),
            a_plan(widths=gpus(a=1)),
            "Job a is stopping, and then goes on with 1 x gpu.",
        ),
    ],
)
def test_the_first_sentence_says_what_a_job_does_and_why(seen: ClusterState, plan: Plan, says: str) -> None:
    """An end of a job's nodes comes before what it waits for then."""
    assert headline(seen, plan, "a") == says


def test_an_order_to_stop_for_an_interruption_names_the_interruption() -> None:
    """It is not "its nodes are booting"."""
    plan = a_plan(widths=gpus(a=2), waiting={"a": "nodes-to-come"}, stops=("a",))
    (stop,) = diff(state(ends_by=160.0), plan)
    assert stop.reason == "the cloud takes its node n1 back in 60 s"
