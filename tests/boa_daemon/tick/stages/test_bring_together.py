"""A job that lies scattered moves to one node, where its messages cost more than the move."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from followers import Known

from boa_daemon.testing import a_job, a_node, a_state, rules, some_slots
from boa_daemon.tick.decision import Decision, decide
from boa_daemon.tick.draft import Draft
from boa_daemon.tick.stages.bring_together import _must_stay
from boa_daemon.tick.state import ClusterState, GatedJob, GateView, Plan
from policies.answer import Allocation
from policies.model import Job, NodeId, Width
from policies.placement.lwf import LeastWorkloadFirst


def sized(name: str, gpus: int) -> Job:
    return a_job(name, width=Width("gpu", gpus))


def scattered(*, third: int = 2, is_third_used: bool = True) -> ClusterState:
    """Job a has one GPU on n1 and one on n2; n3 has `third` GPUs free, and may have a job of its own."""
    jobs = [sized("a", 2), sized("x", 3), sized("y", 3)]
    held = {
        "a": some_slots("n1", 0) + some_slots("n2", 0),
        "x": some_slots("n1", 1, 2, 3),
        "y": some_slots("n2", 1, 2, 3),
    }
    if is_third_used:
        jobs.append(sized("z", 4 - third))
        held["z"] = some_slots("n3", *range(4 - third))
    return a_state(*jobs, nodes=[a_node(name, gpus=4) for name in ("n1", "n2", "n3")], held=held)


def decided(state: ClusterState, *, sends: float, hours: float = 1.0, loses: float = 0.1) -> Decision:
    widths = {job: entry.job.width.gpus for job, entry in state.jobs.items() if entry.job.width}
    prices = Known(widths=widths, left_hours=dict.fromkeys(widths, hours), sends=sends, loses=loses)
    return decide(state, allocator=prices, placer=LeastWorkloadFirst(), rules=rules())


def nodes_of(decision: Decision, job: str) -> set[NodeId]:
    return {slot.node for slot in decision.plan.slots.get(job, ())}


@pytest.mark.parametrize(("sends", "moves"), [(0.0, False), (0.19, False), (0.21, True)])
def test_it_moves_where_its_messages_cost_twice_the_move(sends: float, moves: bool) -> None:
    """An hour is left; the move loses a tenth of an hour, so messages must add more than a fifth."""
    assert nodes_of(decided(scattered(), sends=sends), "a") == ({"n3"} if moves else set())


def test_it_moves_only_where_all_of_it_fits_on_a_node_in_use() -> None:
    """One free GPU is too few, and an idle node would be kept for it."""
    assert nodes_of(decided(scattered(third=1), sends=5.0), "a") == set()
    assert nodes_of(decided(scattered(is_third_used=False), sends=5.0), "a") == set()


def test_what_the_gate_measured_counts_before_what_the_class_says() -> None:
    """Half of the time waiting for messages is one second of sending per second of computing."""
    state, seen = scattered(), GatedJob(ranked_by_hours=1.0, exposed_fraction=0.5)
    gated = replace(state, gate=GateView(links={}, jobs={"a": seen}))
    assert nodes_of(decided(gated, sends=0.0), "a") == {"n3"}
    hidden = replace(state, gate=GateView(links={}, jobs={"a": replace(seen, exposed_fraction=0.05)}))
    assert nodes_of(decided(hidden, sends=5.0), "a") == set()


def test_once_together_it_stays() -> None:
    """The decision after the move changes nothing."""
    state = scattered()
    moved = decided(state, sends=1.0).plan.slots["a"]
    after = a_state(
        *(entry.job for entry in state.jobs.values()),
        nodes=[a_node(name, gpus=4) for name in ("n1", "n2", "n3")],
        held={**{job: entry.slots for job, entry in state.jobs.items()}, "a": moved},
    )
    assert decided(after, sends=1.0).plan.slots == {}


@pytest.mark.parametrize(
    ("draft", "job"),
    [
        ({}, {"is_stopping": True}),
        ({"slots": {"a": ()}}, {}),
        ({"stops": ("a",)}, {}),
        ({"waiting": {"a": "budget"}}, {}),
        ({"widths": {"a": Width("gpu", 3)}}, {}),
        ({"widths": {}}, {}),
        ({"lent": {"a": Width("gpu", 1)}}, {}),
        ({"stay": frozenset({"a"})}, {}),
    ],
)
def test_a_job_for_which_something_else_is_planned_is_left_alone(
    draft: dict[str, Any], job: dict[str, Any]
) -> None:
    """Each reason alone keeps it where it is; without any it may move."""
    state = scattered()
    wanted = {"widths": {"a": Width("gpu", 2)}, "slots": {}}
    for changes, of_job, stays in (({}, {}, False), (draft, job, True)):
        facts = {**wanted, **changes}
        lent, stay = facts.pop("lent", {}), facts.pop("stay", frozenset())
        found = Draft(
            rules=rules(),
            allocator=Known(widths={}),
            placer=LeastWorkloadFirst(),
            allocation=Allocation(widths={}, stay=stay),
            plan=Plan(**facts),
            lent=lent,
        )
        assert _must_stay(found, "a", replace(state.jobs["a"], **of_job)) is stays
    assert _must_stay(found, "a", replace(state.jobs["a"], job=replace(state.jobs["a"].job, width=None)))
