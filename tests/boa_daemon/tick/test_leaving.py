"""Jobs leave nodes whose end is announced in time, and a job over several nodes stays in one zone."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.testing import Wishes, a_job, a_node, a_state, rules, some_slots
from boa_daemon.tick.decide.decision import decide
from boa_daemon.tick.decide.diff import diff
from boa_daemon.tick.facts.offers import Offer
from boa_daemon.tick.facts.plan import Plan
from boa_daemon.tick.facts.state import ClusterState, NodeState, Rules
from boa_daemon.tick.stages.places.find_changes import LEAVE_SECONDS
from policies.placement.first_fit import FirstFit
from policies.placement.lwf import LeastWorkloadFirst

ZONES = tuple(Offer(instance_type="gpu-x4", zone=zone, usd_per_hour=4.0) for zone in "ab")


def plan_of(state: ClusterState, wishes: Wishes, site: Rules | None = None) -> Plan:
    """Return the plan with first fit on nodes of four GPUs."""
    return decide(state, allocator=wishes, placer=FirstFit(), rules=site or rules()).plan


def in_zone(node: NodeState, zone: str) -> NodeState:
    """Return the node in this zone."""
    return replace(node, zone=zone)


def test_two_minutes_before_a_node_ends_its_job_stops_and_a_node_is_rented() -> None:
    """Both happen in the same tick."""
    dying = replace(a_node("n1"), ends_by=120.0)
    state = a_state(a_job("a"), nodes=[dying], held={"a": some_slots("n1", 0, 1, 2, 3)})
    plan = plan_of(state, Wishes(widths={"a": 4}))

    assert (plan.jobs.stops, plan.launches, plan.jobs.waiting) == (
        ("a",),
        {"gpu-x4": 1},
        {"a": "nodes-to-come"},
    )
    assert [type(action).__name__ for action in diff(state, plan)] == ["StopJob", "LaunchNodes"]


def test_a_job_on_an_ending_node_moves_to_a_free_node_in_the_same_tick() -> None:
    """It is stopped and started once, and nothing is rented."""
    nodes = [replace(a_node("n1"), ends_by=120.0), a_node("n2")]
    state = a_state(a_job("a"), nodes=nodes, held={"a": some_slots("n1", 0, 1)})
    plan = plan_of(state, Wishes(widths={"a": 2}))

    assert plan.jobs.slots == {"a": some_slots("n2", 0, 1)}
    assert (plan.jobs.stops, plan.launches) == ((), {})
    assert [type(action).__name__ for action in diff(state, plan)] == ["StopJob", "StartJob"]


def test_an_hour_before_a_node_ends_a_node_is_rented_and_the_job_works_on() -> None:
    """The plan wakes up two minutes before the end."""
    dying = replace(a_node("n1"), ends_by=3600.0)
    state = a_state(a_job("a"), nodes=[dying], held={"a": some_slots("n1", 0, 1, 2, 3)})
    plan = plan_of(state, Wishes(widths={"a": 4}))

    assert (plan.jobs.stops, plan.launches) == ((), {"gpu-x4": 1})
    assert plan.wake_at == 3600.0 - LEAVE_SECONDS


def test_no_job_starts_on_an_ending_node_and_an_idle_ending_node_is_released() -> None:
    """A node is rented for the waiting job."""
    state = a_state(a_job("a"), nodes=[replace(a_node("n1"), ends_by=120.0)])
    plan = plan_of(state, Wishes(widths={"a": 2}))

    assert (plan.jobs.slots, plan.launches, plan.releases) == ({}, {"gpu-x4": 1}, ("n1",))


def test_an_ending_node_still_counts_towards_the_node_limit() -> None:
    """With one node allowed, the replacement waits until the old node is gone."""
    dying = replace(a_node("n1"), ends_by=120.0)
    state = a_state(a_job("a"), nodes=[dying], held={"a": some_slots("n1", 0, 1, 2, 3)})
    plan = plan_of(state, Wishes(widths={"a": 4}), rules(max_nodes=1))

    assert (plan.jobs.stops, plan.launches, plan.jobs.waiting) == (("a",), {}, {"a": "node-limit"})


def test_a_fixed_fleet_replaces_an_ending_node() -> None:
    """One node is wanted and the present one ends, so one is rented."""
    state = a_state(nodes=[replace(a_node("n1"), ends_by=120.0)])
    plan = plan_of(state, Wishes(widths={}, nodes={"gpu-x4": 1}))

    assert (plan.launches, plan.releases) == ({"gpu-x4": 1}, ("n1",))


def test_a_job_over_several_nodes_is_placed_in_one_zone() -> None:
    """Eight GPUs go to the two free nodes in zone a; twelve GPUs need three new nodes together."""
    nodes = [in_zone(a_node("n1"), "b"), in_zone(a_node("n2"), "a"), in_zone(a_node("n3"), "a")]
    state = a_state(a_job("a"), nodes=nodes, offers=ZONES)
    eight = plan_of(state, Wishes(widths={"a": 8}))
    twelve = plan_of(state, Wishes(widths={"a": 12}))

    assert {slot.node for slot in eight.jobs.slots["a"]} == {"n2", "n3"}
    assert (twelve.jobs.slots, twelve.launches, twelve.gangs) == ({}, {"gpu-x4": 3}, {"gpu-x4": (3,)})


def test_the_coming_nodes_of_a_gang_are_not_rented_twice() -> None:
    """Three requested nodes in one zone suffice for a job of twelve GPUs."""
    nodes = [in_zone(a_node(f"n{n}", phase="requested"), "a") for n in range(3)]
    state = a_state(a_job("a"), nodes=nodes, offers=ZONES)

    assert plan_of(state, Wishes(widths={"a": 12})).launches == {}


def test_with_one_zone_a_job_uses_new_and_present_nodes_together() -> None:
    """One node is rented beside the free one."""
    state = a_state(a_job("a"), nodes=[a_node("n1")], now=1e6)

    assert plan_of(state, Wishes(widths={"a": 8})).launches == {"gpu-x4": 1}


def test_at_the_node_limit_idle_nodes_in_different_zones_are_released() -> None:
    """Two nodes are allowed: both are released so that two can be rented together."""
    nodes = [in_zone(a_node("n1"), "a"), in_zone(a_node("n2"), "b")]
    state = a_state(a_job("a"), nodes=nodes, offers=ZONES, now=1e6)
    plan = plan_of(state, Wishes(widths={"a": 8}), rules(max_nodes=2))

    assert set(plan.releases) == {"n1", "n2"}


@st.composite
def zoned(draw: st.DrawFn) -> tuple[ClusterState, Wishes]:
    """Return nodes in two zones, some of which end, and jobs of many widths."""
    nodes = [
        replace(
            a_node(f"n{n}", phase=draw(st.sampled_from(("ready", "ready", "requested")))),
            zone=draw(st.sampled_from("ab")),
            ends_by=draw(st.sampled_from((None, None, 50.0, 5000.0))),
        )
        for n in range(draw(st.integers(0, 6)))
    ]
    jobs = [a_job(f"j{n}", arrived_at=float(n)) for n in range(draw(st.integers(0, 5)))]
    free = [node for node in nodes if node.phase == "ready"]
    held = {
        job.id: some_slots(node.id, 0, 1)
        for job, node in zip(jobs, free, strict=False)
        if draw(st.booleans())
    }
    widths = {job.id: draw(st.integers(1, 12)) for job in jobs}
    return a_state(*jobs, nodes=nodes, held=held, offers=ZONES), Wishes(widths=widths)


@given(case=zoned(), placer=st.sampled_from((FirstFit(), LeastWorkloadFirst())))
def test_every_placement_is_in_one_zone_on_nodes_that_stay(
    case: tuple[ClusterState, Wishes], placer: FirstFit | LeastWorkloadFirst
) -> None:
    """A job with less than two minutes left on a node stops or moves."""
    state, wishes = case
    plan = decide(state, allocator=wishes, placer=placer, rules=rules()).plan

    for slots in plan.jobs.slots.values():
        nodes = [state.nodes[slot.node] for slot in slots]
        assert len({node.zone for node in nodes}) == 1
        assert all(node.ends_by is None for node in nodes)
    for name, job in state.jobs.items():
        if any(state.nodes[slot.node].ends_by == 50.0 for slot in job.slots):
            assert name in plan.jobs.stops or name in plan.jobs.slots
    assert not set(plan.jobs.stops) & set(plan.jobs.slots)
