"""A job spread over nodes moves to one node if its messages cost more than the move."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from drafts import a_draft, a_plan
from followers import Known

from boa_daemon.testing import a_job, a_node, a_state, rules, some_slots
from boa_daemon.tick.decide.decision import Decision, decide
from boa_daemon.tick.facts.draft import Draft
from boa_daemon.tick.facts.state import ClusterState, GatedJob, GateView
from boa_daemon.tick.stages.nodes.bring_together import _must_stay, bring_together
from policies.answer import Allocation
from policies.model import GpuSlot, Job, JobId, NodeId, Width
from policies.placement.lwf import LeastWorkloadFirst


def sized(name: str, gpus: int) -> Job:
    return a_job(name, width=Width("gpu", gpus))


def scattered(*, third: int = 2, is_third_used: bool = True) -> ClusterState:
    """Return job a on n1 and n2, and n3 with `third` free GPUs, in use by job z if `is_third_used`."""
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
    return {slot.node for slot in decision.plan.jobs.slots.get(job, ())}


@pytest.mark.parametrize(("sends", "moves"), [(0.0, False), (0.19, False), (0.21, True)])
def test_a_job_moves_if_its_messages_cost_more_than_twice_the_move(sends: float, moves: bool) -> None:
    """One hour is left and the move loses 0.1 h, so messages must add more than 0.2 h."""
    assert nodes_of(decided(scattered(), sends=sends), "a") == ({"n3"} if moves else set())


def test_a_job_moves_only_to_a_node_in_use_that_has_room_for_all_its_gpus() -> None:
    """The job stays if n3 has one free GPU, and if n3 is idle."""
    assert nodes_of(decided(scattered(third=1), sends=5.0), "a") == set()
    assert nodes_of(decided(scattered(is_third_used=False), sends=5.0), "a") == set()


def test_the_waiting_time_that_the_gate_measured_replaces_the_estimate_of_the_class() -> None:
    """Job a moves if it waits half of its time for messages, and stays if it waits 5 % of its time."""
    state, seen = scattered(), GatedJob(ranked_by_hours=1.0, exposed_fraction=0.5)
    gated = replace(state, gate=GateView(links={}, jobs={"a": seen}))
    assert nodes_of(decided(gated, sends=0.0), "a") == {"n3"}
    hidden = replace(state, gate=GateView(links={}, jobs={"a": replace(seen, exposed_fraction=0.05)}))
    assert nodes_of(decided(hidden, sends=5.0), "a") == set()


def test_a_job_that_moved_to_one_node_stays_there() -> None:
    """The decision after the move changes nothing."""
    state = scattered()
    moved = decided(state, sends=1.0).plan.jobs.slots["a"]
    after = a_state(
        *(entry.job for entry in state.jobs.values()),
        nodes=[a_node(name, gpus=4) for name in ("n1", "n2", "n3")],
        held={**{job: entry.slots for job, entry in state.jobs.items()}, "a": moved},
    )
    assert decided(after, sends=1.0).plan.jobs.slots == {}


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
def test_a_job_stays_if_anything_else_is_planned_for_it(draft: dict[str, Any], job: dict[str, Any]) -> None:
    """Each reason alone keeps the job on its nodes; without any reason it may move."""
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
            plan=a_plan(**facts),
            lent=lent,
        )
        assert _must_stay(found, "a", replace(state.jobs["a"], **of_job)) is stays
    assert _must_stay(found, "a", replace(state.jobs["a"], job=replace(state.jobs["a"].job, width=None)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending(Known):
    """Node prices with message costs per job; they record the arguments of each question."""

    by_job: Mapping[JobId, float]
    asked: list[tuple[float | None, float, float]] = field(default_factory=list)

    @property
    def knows_messages(self) -> bool:
        """Return True: some class has message sizes."""
        return True

    def hours_sending(self, job: Job, *, share: float | None, gigabits: float, hours_left: float) -> float:
        """Return the job's fraction of the hours left, and record the arguments."""
        self.asked.append((share, gigabits, hours_left))
        return hours_left * self.by_job.get(job.id, 0.0)

    def hours_lost(self, job: Job, then: Width, *, hours_left: float, back_in_hours: float) -> float:
        """Return the fixed loss; assert that no job waits to come back."""
        assert back_in_hours == 0.0
        return self.loses


def brought(state: ClusterState, prices: Known | None, **changes: Any) -> Mapping[JobId, tuple[GpuSlot, ...]]:
    """Return the slots after the stage alone, in a plan where all jobs keep their widths."""
    widths = {job: entry.job.width for job, entry in state.jobs.items() if entry.job.width}
    plan = a_plan(widths=widths, **changes.pop("plan", {}))
    policy = {"node_prices": prices, **changes.pop("policy", {})}
    return bring_together(state, a_draft(widths, policy=policy, plan=plan, **changes)).plan.jobs.slots


def two_scattered() -> ClusterState:
    """Return two spread jobs, a and b, behind two jobs on one node; n4 has room for either."""
    jobs = [sized("narrow", 1), sized("near", 2), sized("a", 2), sized("b", 2), sized("z", 2)]
    held = {
        "narrow": some_slots("n0", 0),
        "near": some_slots("n0", 1, 2),
        "a": some_slots("n1", 0) + some_slots("n2", 0),
        "b": some_slots("n1", 1) + some_slots("n3", 1),
        "z": some_slots("n4", 0, 3),
    }
    return a_state(*jobs, nodes=[a_node(f"n{number}", gpus=4) for number in range(5)], held=held)


def test_only_the_spread_job_that_gains_most_moves() -> None:
    """Jobs on one node, a job that must stay and a claimed node do not keep the other job from moving."""
    state, all_of_it = two_scattered(), dict.fromkeys(("narrow", "near", "a", "b"), 0.5)
    for sends, who in (({"a": 1.0}, "a"), ({"b": 1.0}, "b"), ({"a": 2.0}, "a"), ({"b": 2.0}, "b")):
        found = brought(state, Sending(widths={}, loses=0.1, by_job={**all_of_it, **sends}))
        assert found == {who: some_slots("n4", 1, 2)}
    kept = frozenset({"a"})
    prices = Sending(widths={}, loses=0.1, by_job={"a": 9.0, "b": 1.0})
    assert set(brought(state, prices, policy={"stay": kept})) == {"b"}
    assert set(brought(state, prices, claimed=frozenset({"n2"}))) == {"b"}
    assert brought(state, prices, claimed=frozenset({"n1"})) == {}


def test_no_job_moves_without_node_prices_or_with_launches_or_in_a_fixed_fleet() -> None:
    """Without these three conditions job a moves."""
    state, prices = two_scattered(), Sending(widths={}, loses=0.1, by_job={"a": 9.0})
    assert set(brought(state, prices)) == {"a"}
    assert brought(state, None) == {}
    assert brought(state, prices, plan={"launches": {"gpu-x4": 1}}) == {}
    assert brought(state, prices, policy={"nodes": {"gpu-x4": 5}}) == {}


def test_a_measured_waiting_fraction_becomes_sending_time_per_computing_time() -> None:
    """Fractions above 95 % count as 95 %; without a measurement the slowest link's speed is passed on."""
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


def test_the_jobs_own_gpus_on_the_target_node_count_as_free() -> None:
    """Job a moves to n1, which has one GPU of a and one free GPU; n2 is full."""
    jobs = [sized("a", 2), sized("x", 2), sized("y", 3)]
    held = {
        "a": some_slots("n1", 0) + some_slots("n2", 0),
        "x": some_slots("n1", 1, 2),
        "y": some_slots("n2", 1, 2, 3),
    }
    state = a_state(*jobs, nodes=[a_node("n1"), a_node("n2")], held=held)
    prices = Sending(widths={}, loses=0.1, by_job={"a": 1.0})
    assert brought(state, prices) == {"a": some_slots("n1", 0, 3)}
