"""A job that lies scattered moves to one node, where its messages cost more than the move."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from drafts import a_draft, a_plan
from followers import Known

from boa_daemon.testing import a_job, a_node, a_state, rules, some_slots
from boa_daemon.tick.decision import Decision, decide
from boa_daemon.tick.draft import Draft
from boa_daemon.tick.stages.bring_together import _must_stay, bring_together
from boa_daemon.tick.state import ClusterState, GatedJob, GateView, Plan
from policies.answer import Allocation
from policies.model import GpuSlot, Job, JobId, NodeId, Width
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending(Known):
    """Node prices under which each job sends what is told of it; the questions are noted."""

    by_job: Mapping[JobId, float]
    asked: list[tuple[float | None, float, float]] = field(default_factory=list)

    @property
    def knows_messages(self) -> bool:
        """Some class says what it sends."""
        return True

    def hours_sending(self, job: Job, *, share: float | None, gigabits: float, hours_left: float) -> float:
        """Return what was told, of what is left."""
        self.asked.append((share, gigabits, hours_left))
        return hours_left * self.by_job.get(job.id, 0.0)

    def hours_lost(self, job: Job, then: Width, *, hours_left: float, back_in_hours: float) -> float:
        """Return what was told; nobody waits to come back."""
        assert back_in_hours == 0.0
        return self.loses


def brought(state: ClusterState, prices: Known | None, **changes: Any) -> Mapping[JobId, tuple[GpuSlot, ...]]:
    """Return the slots of a plan in which all jobs are to have what they hold, after the stage alone."""
    widths = {job: entry.job.width for job, entry in state.jobs.items() if entry.job.width}
    plan = a_plan(widths=widths, **changes.pop("plan", {}))
    policy = {"node_prices": prices, **changes.pop("policy", {})}
    return bring_together(state, a_draft(widths, policy=policy, plan=plan, **changes)).plan.slots


def two_scattered() -> ClusterState:
    """Before two scattered jobs, a and b, a narrow one and one on one node; n4 has room for either."""
    jobs = [sized("narrow", 1), sized("near", 2), sized("a", 2), sized("b", 2), sized("z", 2)]
    held = {
        "narrow": some_slots("n0", 0),
        "near": some_slots("n0", 1, 2),
        "a": some_slots("n1", 0) + some_slots("n2", 0),
        "b": some_slots("n1", 1) + some_slots("n3", 1),
        "z": some_slots("n4", 0, 3),
    }
    return a_state(*jobs, nodes=[a_node(f"n{number}", gpus=4) for number in range(5)], held=held)


def test_of_several_the_one_that_gains_most_moves_and_only_that_one() -> None:
    """Jobs that stand before them and need not move keep nobody from it; neither does one that stays."""
    state, all_of_it = two_scattered(), dict.fromkeys(("narrow", "near", "a", "b"), 0.5)
    for sends, who in (({"a": 1.0}, "a"), ({"b": 1.0}, "b"), ({"a": 2.0}, "a"), ({"b": 2.0}, "b")):
        found = brought(state, Sending(widths={}, loses=0.1, by_job={**all_of_it, **sends}))
        assert found == {who: some_slots("n4", 1, 2)}
    kept = frozenset({"a"})
    prices = Sending(widths={}, loses=0.1, by_job={"a": 9.0, "b": 1.0})
    assert set(brought(state, prices, policy={"stay": kept})) == {"b"}
    assert set(brought(state, prices, claimed=frozenset({"n2"}))) == {"b"}
    assert brought(state, prices, claimed=frozenset({"n1"})) == {}


def test_nothing_moves_where_nodes_are_to_come_or_nobody_knows_prices() -> None:
    """Launches bring nodes that it may rather go to."""
    state, prices = two_scattered(), Sending(widths={}, loses=0.1, by_job={"a": 9.0})
    assert set(brought(state, prices)) == {"a"}
    assert brought(state, None) == {}
    assert brought(state, prices, plan={"launches": {"gpu-x4": 1}}) == {}
    assert brought(state, prices, policy={"nodes": {"gpu-x4": 5}}) == {}


def test_what_is_measured_is_seconds_of_sending_per_second_of_computing() -> None:
    """Nearly all of the time counts as 95 %; unmeasured, the class is asked at the slowest link's speed."""
    state = scattered()
    slow = replace(state.nodes["n2"].instance_type, link_gigabits_per_second=5.0)
    state = replace(state, nodes={**state.nodes, "n2": replace(state.nodes["n2"], instance_type=slow)})
    for exposed, share in ((0.5, 1.0), (0.75, 3.0), (0.99, 0.99 / 0.05), (None, None)):
        prices = Sending(widths={}, loses=0.1, by_job={"a": 1.0})
        seen = GatedJob(ranked_by_hours=1.0, exposed_fraction=exposed)
        brought(replace(state, gate=GateView(links={}, jobs={"a": seen})), prices)
        assert prices.asked[0] == (None if share is None else pytest.approx(share), 5.0, 1.0)
    unseen = Sending(widths={}, loses=0.1, by_job={"a": 1.0})
    brought(state, unseen)
    assert unseen.asked[:2] == [(None, 1.0, 1.0), (None, 5.0, 1.0)]


def test_its_own_gpus_on_the_node_count_as_free_and_no_others_do() -> None:
    """n1 has one GPU of a and one free beside two of x; n2 is full of y but for a's."""
    jobs = [sized("a", 2), sized("x", 2), sized("y", 3)]
    held = {
        "a": some_slots("n1", 0) + some_slots("n2", 0),
        "x": some_slots("n1", 1, 2),
        "y": some_slots("n2", 1, 2, 3),
    }
    state = a_state(*jobs, nodes=[a_node("n1"), a_node("n2")], held=held)
    prices = Sending(widths={}, loses=0.1, by_job={"a": 1.0})
    assert brought(state, prices) == {"a": some_slots("n1", 0, 3)}
