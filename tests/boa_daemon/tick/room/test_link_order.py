"""The order in which jobs send on a link that they share."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.testing import Wishes, a_job, a_node, a_state, rules, some_slots
from boa_daemon.tick.decide.decision import decide
from boa_daemon.tick.explain.explain import explain_job
from boa_daemon.tick.facts.codec import dumps, loads
from boa_daemon.tick.facts.plan import Plan
from boa_daemon.tick.facts.state import ClusterState, GatedJob, GatedLink, GateView
from boa_daemon.tick.room.link_order import link_order, rank
from policies.placement.lwf import LeastWorkloadFirst


def two_senders(left_a: float = 3.0, left_b: float = 1.0, weight_a: float = 1.0) -> ClusterState:
    """Return jobs a and b, three GPUs each, over three nodes of two: both use the link of n2."""
    return a_state(
        a_job("a", remaining_gpu_hours=left_a, weight=weight_a),
        a_job("b", remaining_gpu_hours=left_b),
        nodes=[a_node(name, gpus=2) for name in ("n1", "n2", "n3")],
        held={
            "a": some_slots("n1", 0, 1) + some_slots("n2", 0),
            "b": some_slots("n2", 1) + some_slots("n3", 0, 1),
        },
    )


def test_the_job_with_less_service_left_sends_first() -> None:
    """One hour of work left sends before three; links with one sender need no order."""
    assert link_order(two_senders(left_a=3.0, left_b=1.0), {}) == {"n2": ("b", "a")}


def test_the_remaining_service_is_divided_by_the_weight() -> None:
    """Three hours at weight four count as less than one hour."""
    assert link_order(two_senders(left_a=3.0, left_b=1.0, weight_a=4.0), {}) == {"n2": ("a", "b")}


def test_a_job_on_one_node_sends_nothing() -> None:
    """No link is shared if each job is on one node."""
    state = a_state(
        a_job("a"),
        a_job("b"),
        nodes=[a_node("n1")],
        held={"a": some_slots("n1", 0), "b": some_slots("n1", 1)},
    )
    assert link_order(state, {}) == {}


def test_jobs_that_move_in_this_tick_count_on_their_new_nodes() -> None:
    """Job b moves to n3 alone, so no link is shared."""
    state = two_senders()
    moved = {"b": some_slots("n3", 0, 1)}
    assert link_order(state, moved) == {}


@given(left=st.lists(st.floats(0.01, 100.0), min_size=2, max_size=6), weight=st.floats(0.1, 10.0))
def test_every_shared_link_lists_its_senders_by_rank(left: list[float], weight: float) -> None:
    """The rank is the remaining service over the weight."""
    jobs = [a_job(str(i), remaining_gpu_hours=hours, weight=weight) for i, hours in enumerate(left)]
    nodes = [a_node("x", gpus=len(jobs)), a_node("y", gpus=len(jobs))]
    held = {job.id: some_slots("x", i) + some_slots("y", i) for i, job in enumerate(jobs)}
    state = a_state(*jobs, nodes=nodes, held=held)

    by_rank = tuple(sorted((job.id for job in jobs), key=lambda name: rank(state.jobs[name].job)))
    assert link_order(state, {}) == {"x": by_rank, "y": by_rank}


def test_a_plan_has_a_link_order_only_if_the_settings_order_links() -> None:
    """Without `orders_links` and without a gate the order is empty."""
    state = two_senders()
    wishes = Wishes(widths={"a": 3, "b": 3})
    ordered = decide(state, allocator=wishes, placer=LeastWorkloadFirst(), rules=rules(orders_links=True))
    silent = decide(state, allocator=wishes, placer=LeastWorkloadFirst(), rules=rules())

    assert ordered.plan.link_order == {"n2": ("b", "a")}
    assert silent.plan.link_order == {}


def test_the_explanation_names_the_job_on_a_shared_link_and_the_order() -> None:
    """It has the node, the other job, and the remaining service of both."""
    state = two_senders()
    wishes = Wishes(widths={"a": 3, "b": 3})
    plan = decide(state, allocator=wishes, placer=LeastWorkloadFirst(), rules=rules(orders_links=True)).plan

    assert explain_job(state, plan, "b").endswith(
        "It is on 2 nodes because 3 GPUs are more than the 2 of one node. It shares the link of n2 with job "
        "a; it sends first, because less of it is left: 1 against 3 GPU-hours over weight."
    )
    assert "b sends first, because less of b is left" in explain_job(state, plan, "a")


def gated(state: ClusterState, *jobs: str, is_ordered: bool = True, why: str = "it pays") -> ClusterState:
    """Return the state with a gate that orders these jobs on n2."""
    seen = {job: GatedJob(ranked_by_hours=1.0 + n) for n, job in enumerate(jobs)}
    return replace(
        state, gate=GateView(links={"n2": GatedLink(jobs=jobs, is_ordered=is_ordered, why=why)}, jobs=seen)
    )


def plan_of(state: ClusterState) -> Plan:
    wishes = Wishes(widths={"a": 3, "b": 3})
    return decide(state, allocator=wishes, placer=LeastWorkloadFirst(), rules=rules()).plan


@pytest.mark.parametrize(
    ("seen_by", "order", "sentence"),
    [
        (None, {}, "neither sends first: no gate runs."),
        (("a", "b"), {"n2": ("a", "b")}, "it sends first, because less of it is left: 1 against 2 GPU-hours"),
        (("b", "a"), {"n2": ("b", "a")}, "b sends first, because less of b is left: 1 against 2 GPU-hours"),
        (("b",), {}, "neither sends first: a does not ask the gate."),
        ((), {}, "neither sends first: a and b do not ask the gate."),
    ],
)
def test_a_link_order_is_stated_only_for_jobs_that_ask_the_gate(
    seen_by: tuple[str, ...] | None, order: dict[str, tuple[str, ...]], sentence: str
) -> None:
    """The plan and the explanation have the gate's order."""
    state = two_senders() if seen_by is None else gated(two_senders(), *seen_by)
    plan = plan_of(state)
    assert plan.link_order == order
    assert sentence in explain_job(state, plan, "a")
    assert loads(dumps(state)) == state


def test_a_link_that_the_gate_does_not_order_has_no_order_in_the_plan() -> None:
    """The explanation quotes the gate's reason."""
    state = gated(two_senders(), "a", "b", is_ordered=False, why="the card is fast for these jobs")
    plan = plan_of(state)
    assert plan.link_order == {}
    assert "with job b; neither sends first: the card is fast for these jobs." in explain_job(
        state, plan, "a"
    )


def test_the_explanation_quotes_the_measured_waiting_time_and_the_gain_of_an_order() -> None:
    """A negative gain is a longer remaining time."""
    state = gated(two_senders(), "b", "a")
    assert state.gate is not None
    seen = GatedJob(ranked_by_hours=2.0, exposed_fraction=0.41, gain_fraction=-0.05)
    state = replace(state, gate=replace(state.gate, jobs={**state.gate.jobs, "a": seen}))
    assert (
        "It waits for messages 41% of its time; ordering its links should change its remaining time by "
        "+5.0%." in explain_job(state, plan_of(state), "a")
    )


def test_the_explanation_says_why_a_job_is_spread_over_nodes() -> None:
    """No one node had two free GPUs when the job was placed."""
    state = a_state(
        a_job("a"),
        nodes=[a_node("n1"), a_node("n2")],
        held={"a": some_slots("n1", 0) + some_slots("n2", 0)},
    )
    plan = decide(state, allocator=Wishes(widths={"a": 2}), placer=LeastWorkloadFirst(), rules=rules()).plan
    assert "no one node had 2 GPUs free when it was placed" in explain_job(state, replace(plan), "a")


def test_jobs_that_share_only_an_uplink_are_ordered_there() -> None:
    """Each job has one node in each of two racks, and no node has two jobs."""
    racks = {"w": ("r1",), "x": ("r2",), "y": ("r1",), "z": ("r2",)}
    nodes = [replace(a_node(name, gpus=2), tiers=tiers) for name, tiers in racks.items()]
    jobs = [a_job("a", remaining_gpu_hours=3.0), a_job("b", remaining_gpu_hours=1.0)]
    held = {"a": some_slots("w", 0) + some_slots("x", 0), "b": some_slots("y", 0) + some_slots("z", 0)}

    assert link_order(a_state(*jobs, nodes=nodes, held=held), {}) == {"r1": ("b", "a"), "r2": ("b", "a")}


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (("s", "r1"), ("s", "r1"), " All are under r1, tier 2 of 2 of the network."),
        (("s", "r1"), ("s", "r2"), " All are under s, tier 1 of 2 of the network."),
        (("s", "r1"), ("t", "r3"), " They share no part of the network below their zone."),
        (("s", "r1"), (), ""),
    ],
)
def test_the_explanation_names_the_lowest_switch_above_all_nodes_of_a_job(
    one: tuple[str, ...], other: tuple[str, ...], said: str
) -> None:
    """If the switches of one node are unknown, nothing is added."""
    nodes = [replace(a_node("x", gpus=2), tiers=one), replace(a_node("y", gpus=2), tiers=other)]
    state = a_state(a_job("a"), nodes=nodes, held={"a": some_slots("x", 0) + some_slots("y", 0)})
    plan = decide(state, allocator=Wishes(widths={"a": 2}), placer=LeastWorkloadFirst(), rules=rules()).plan

    assert explain_job(state, plan, "a").endswith(f"when it was placed.{said}")
