"""The queue: which waiting jobs compete for GPUs, in the order in which they are served."""

from __future__ import annotations

from dataclasses import replace

from drafts import a_plan, gpus

from boa_daemon.testing import a_job, a_node, a_state, some_slots
from boa_daemon.tick.facts.state import Claim
from boa_daemon.tick.room.service_order import places_in_queue
from policies.model import Width


def test_jobs_wait_in_the_order_of_the_plan_and_then_by_arrival() -> None:
    """Running and starting jobs, and jobs that may not start, have no place."""
    jobs = [a_job(name, arrived_at=float(at)) for at, name in enumerate("abcdef")]
    state = a_state(*jobs, nodes=[a_node("n")], held={"a": some_slots("n", 0)})
    plan = a_plan(
        widths=gpus(a=1, b=1, c=1, d=1, e=1),
        slots={"b": some_slots("n", 1)},
        waiting={"c": "node-limit", "d": "node-limit", "e": "node-limit", "f": "resting"},
        order=("e", "a"),
    )
    assert places_in_queue(state, plan) == {"e": 1, "c": 2, "d": 3}
    lost = replace(state, claims={"d": Claim(width=Width("gpu", 1))})
    assert places_in_queue(lost, plan) == {"d": 1, "e": 2, "c": 3}
