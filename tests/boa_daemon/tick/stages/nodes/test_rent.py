"""Nodes are rented for jobs that the present nodes cannot take, and waiting jobs get a reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from drafts import asking, gpus
from followers import Known
from hypothesis import given

from boa_daemon.errors import BoaError
from boa_daemon.testing import Wishes, a_job, a_node, a_state, an_instance_type, rules, some_slots, states
from boa_daemon.tick.decide.decision import decide
from boa_daemon.tick.facts.offers import Cooldown, Offer
from boa_daemon.tick.facts.placeable_nodes import PlaceableNodes
from boa_daemon.tick.facts.plan import Plan
from boa_daemon.tick.facts.state import ClusterState, NodeState, Rules
from boa_daemon.tick.stages.nodes.rent import rent
from policies.answer import Allocation, Placement
from policies.model import Job, Money, Width
from policies.placement.first_fit import FirstFit


def plan_of(state: ClusterState, wishes: Wishes, site: Rules | None = None) -> Plan:
    """Return the plan with first fit on nodes of four GPUs."""
    return decide(state, allocator=wishes, placer=FirstFit(), rules=site or rules()).plan


class _Always(NamedTuple):
    """An allocator with one answer."""

    answer: Allocation

    def allocate(self, jobs: Sequence[Job], *, now: float, money: Money | None = None) -> Allocation:
        return self.answer


def test_as_many_nodes_are_rented_as_the_widths_need() -> None:
    """Widths of 4 and 2 on nodes of four GPUs need two nodes."""
    plan = plan_of(a_state(a_job("a"), a_job("b")), Wishes(widths={"a": 4, "b": 2}))

    assert plan.launches == {"gpu-x4": 2}
    assert plan.jobs.waiting == {"a": "nodes-to-come", "b": "nodes-to-come"}


def test_booting_nodes_count_so_no_node_is_rented_twice() -> None:
    """Two nodes boot for six GPUs, so nothing is rented."""
    state = a_state(
        a_job("a"), a_job("b"), nodes=[a_node("n1", phase="requested"), a_node("n2", phase="requested")]
    )

    assert plan_of(state, Wishes(widths={"a": 4, "b": 2})).launches == {}


def test_free_and_booting_gpus_are_planned_together() -> None:
    """Six GPUs are needed, two are free and four boot: nothing is rented or released."""
    state = a_state(
        a_job("a"),
        a_job("b"),
        nodes=[a_node("n1"), a_node("n2", phase="requested")],
        held={"b": some_slots("n1", 0, 1)},
        now=1e6,
    )
    plan = plan_of(state, Wishes(widths={"a": 6, "b": 2}))

    assert (plan.launches, plan.releases, plan.jobs.slots) == ({}, (), {})


def test_a_growing_job_keeps_its_gpus_until_the_new_ones_are_there() -> None:
    """From four to eight GPUs, one node is rented and nothing is stopped."""
    state = a_state(a_job("a"), nodes=[a_node("n1")], held={"a": some_slots("n1", 0, 1, 2, 3)})

    plan = plan_of(state, Wishes(widths={"a": 8}))

    assert plan.launches == {"gpu-x4": 1}
    assert plan.jobs.slots == {}
    assert plan.jobs.stops == ()


def test_a_shrinking_job_makes_room_for_an_older_one_in_the_same_tick() -> None:
    """Job b gives up two of four GPUs, and the waiting job a takes them."""
    state = a_state(a_job("a"), a_job("b"), nodes=[a_node("n1")], held={"b": some_slots("n1", 0, 1, 2, 3)})
    plan = plan_of(state, Wishes(widths={"a": 2, "b": 2}))

    assert {job: len(slots) for job, slots in plan.jobs.slots.items()} == {"a": 2, "b": 2}
    assert plan.launches == {}


def test_a_job_without_a_width_is_stopped_and_its_gpus_go_to_others() -> None:
    """The policy drops job b, and a starts on b's GPUs."""
    state = a_state(a_job("a"), a_job("b"), nodes=[a_node("n1")], held={"b": some_slots("n1", 0, 1, 2, 3)})
    plan = plan_of(state, Wishes(widths={"a": 4}, nodes={"gpu-x4": 1}))

    assert plan.jobs.stops == ("b",)
    assert set(plan.jobs.slots["a"]) == set(some_slots("n1", 0, 1, 2, 3))


def test_a_stopping_job_keeps_its_gpus_and_is_not_stopped_again() -> None:
    """No other job gets its GPUs yet."""
    state = a_state(a_job("a"), a_job("b"), nodes=[a_node("n1")], held={"b": some_slots("n1", 0, 1, 2, 3)})
    stopping = type(state.jobs["b"])(
        job=state.jobs["b"].job, slots=state.jobs["b"].slots, generation=1, is_stopping=True
    )
    state = type(state)(now=0.0, tick=1, nodes=state.nodes, jobs={**state.jobs, "b": stopping})

    plan = plan_of(state, Wishes(widths={"a": 1}))

    assert (plan.jobs.stops, plan.jobs.slots) == ((), {})


def test_a_job_on_a_terminating_node_moves_to_a_ready_node() -> None:
    """It keeps its width."""
    dying = a_node("n1", phase="terminating")
    state = a_state(a_job("a"), nodes=[dying, a_node("n2")], held={"a": some_slots("n1", 0, 1)})

    assert plan_of(state, Wishes(widths={"a": 2})).jobs.slots == {"a": some_slots("n2", 0, 1)}


def test_an_idle_node_is_released_when_its_hold_is_over() -> None:
    """The hold is 60 s: at 59 s the plan wakes up for 60 s, and at 60 s the node is released."""
    for now, releases, wake_at in ((59.0, (), 60.0), (60.0, ("n1",), None)):
        plan = plan_of(a_state(nodes=[a_node("n1", idle_since=0.0)], now=now), Wishes(widths={}))
        assert (plan.releases, plan.wake_at) == (releases, wake_at)


def test_an_idle_node_is_released_at_once_if_the_hold_is_zero() -> None:
    """It became idle at this instant."""
    state = a_state(nodes=[a_node("n1", idle_since=5.0)], now=5.0)

    assert plan_of(state, Wishes(widths={}), rules(idle_hold_seconds=0.0)).releases == ("n1",)


def test_a_type_out_of_stock_is_not_requested_before_its_cooldown_ends() -> None:
    """The plan wakes up at that instant."""
    state = a_state(a_job("a"), now=10.0, cooldowns={"gpu-x4": Cooldown(until=70.0)})

    plan = plan_of(state, Wishes(widths={"a": 4}))

    assert (plan.launches, plan.wake_at, plan.jobs.waiting) == ({}, 70.0, {"a": "out-of-stock"})


def test_an_order_of_a_closed_size_is_dropped_and_a_smaller_order_is_made() -> None:
    """Orders of two nodes are closed: the job on two nodes waits, and a job on one gets its node."""
    cooldowns = {"gpu-x4//on-demand/2": Cooldown(until=70.0)}
    state = a_state(a_job("a"), a_job("b", arrived_at=1.0), now=10.0, cooldowns=cooldowns)

    plan = plan_of(state, Wishes(widths={"a": 8, "b": 4}))

    assert (plan.launches, plan.gangs, plan.wake_at) == ({"gpu-x4": 1}, {}, 70.0)
    assert plan.jobs.waiting == {"a": "out-of-stock", "b": "nodes-to-come"}


def test_a_job_that_needs_more_nodes_than_the_quota_waits_for_the_quota() -> None:
    """It needs two nodes together and one is left, so nothing is requested."""
    offers = (Offer(instance_type="gpu-x4", usd_per_hour=4.0, nodes_left=1),)
    plan = plan_of(a_state(a_job("a"), offers=offers), Wishes(widths={"a": 8}))

    assert (plan.launches, plan.jobs.waiting) == ({}, {"a": "quota"})


@pytest.mark.parametrize("limit", ["quota", "refusal"])
def test_jobs_that_share_nodes_get_as_many_as_there_are(limit: str) -> None:
    """Six, seven and seven GPUs share five nodes, and four come together: the first two jobs get theirs."""
    left = 4 if limit == "quota" else None
    state = a_state(
        *map(a_job, "abc"),
        now=100.0,
        offers=(Offer(instance_type="gpu-x4", usd_per_hour=4.0, nodes_left=left),),
        cooldowns={} if left else {"gpu-x4/*/*/5": Cooldown(until=300.0)},
    )
    plan = plan_of(state, Wishes(widths={"a": 6, "b": 7, "c": 7}))
    assert plan.launches == {"gpu-x4": 4}
    assert set(plan.jobs.waiting.values()) == {"nodes-to-come"}


def test_jobs_of_another_type_do_not_wait_for_those_that_share_nodes() -> None:
    """Two jobs share three nodes of which two are left; a third job is on other nodes."""
    other = an_instance_type(gpus=8, gpu_type="other")
    offers = (
        Offer(instance_type="gpu-x4", usd_per_hour=4.0, nodes_left=2),
        Offer(instance_type=other.name, usd_per_hour=8.0),
    )
    state = a_state(*map(a_job, "abc"), offers=offers)
    wanted = Allocation(widths={"a": Width("gpu", 6), "b": Width("gpu", 6), "c": Width("other", 8)})
    site = rules(instance_types={"gpu": an_instance_type(), "other": other})
    plan = decide(state, allocator=_Always(wanted), placer=FirstFit(), rules=site).plan
    assert plan.launches == {"gpu-x4": 2, other.name: 1}


def test_a_fixed_fleet_is_completed_and_kept_without_jobs() -> None:
    """Of three nodes one is here and one is coming: one is rented, and none is released."""
    state = a_state(nodes=[a_node("n1"), a_node("n2", phase="requested")], now=1e6)

    plan = plan_of(state, Wishes(widths={}, nodes={"gpu-x4": 3}))

    assert (plan.launches, plan.releases) == ({"gpu-x4": 1}, ())


def test_a_fixed_fleet_that_is_too_large_gives_its_youngest_idle_nodes_back() -> None:
    """One of three nodes is wanted, and the busy one stays."""
    state = a_state(
        a_job("a"), nodes=[a_node("n1"), a_node("n2"), a_node("n3")], held={"a": some_slots("n1", 0)}
    )
    plan = plan_of(state, Wishes(widths={"a": 1}, nodes={"gpu-x4": 1}))

    assert plan.releases == ("n3", "n2")


def test_at_the_node_limit_no_job_overtakes_a_job_that_waits_for_room() -> None:
    """Half of the one node is free: the job of four GPUs waits, and so does the job of one behind it."""
    state = a_state(
        a_job("old"),
        a_job("wide"),
        a_job("small"),
        nodes=[a_node("n1")],
        held={"old": some_slots("n1", 0, 1)},
    )
    plan = plan_of(state, Wishes(widths={"old": 2, "wide": 4, "small": 1}), rules(max_nodes=1))

    assert plan.jobs.slots == {}
    assert plan.jobs.waiting == {"wide": "node-limit", "small": "node-limit"}
    assert plan.launches == {}


def test_at_the_node_limit_no_node_comes_or_goes_for_a_job_that_does_not_fit_yet() -> None:
    """Of three allowed nodes one is busy and one idle; the job of twelve GPUs waits."""
    state = a_state(
        a_job("old"),
        a_job("wide"),
        nodes=[a_node("n1"), a_node("n2", idle_since=0.0)],
        held={"old": some_slots("n1", 0)},
        now=1e6,
    )
    plan = plan_of(state, Wishes(widths={"old": 1, "wide": 12}), rules(max_nodes=3))

    assert (plan.launches, plan.releases, plan.jobs.slots) == ({}, (), {})


def test_a_job_wider_than_the_node_limit_delays_no_other_job() -> None:
    """Five GPUs never fit on one node of four, so the next job starts."""
    state = a_state(a_job("wide"), a_job("small"), nodes=[a_node("n1")])

    plan = plan_of(state, Wishes(widths={"wide": 5, "small": 1}), rules(max_nodes=1))

    assert set(plan.jobs.slots) == {"small"}


def test_at_the_node_limit_idle_nodes_of_another_type_are_released_at_once() -> None:
    """No job needs the type of the one allowed node."""
    kinds = {"gpu": an_instance_type(), "other": an_instance_type(gpu_type="other")}
    state = a_state(a_job("a"), nodes=[a_node("n1", kind=kinds["other"], idle_since=0.0)], now=1.0)

    plan = plan_of(state, Wishes(widths={"a": 4}), rules(instance_types=kinds, max_nodes=1))

    assert plan.releases == ("n1",)
    assert plan.wake_at == 2.0


@given(case=states())
def test_present_coming_and_requested_gpus_cover_all_widths(case: tuple[ClusterState, Wishes]) -> None:
    """One requested node less would not suffice."""
    state, wishes = case
    plan = plan_of(state, wishes)
    wanted = sum(wishes.widths.get(job, 0) for job in state.jobs)
    coming = 4 * (len(state.nodes) + sum(plan.launches.values()) - len(plan.releases))

    assert coming >= wanted
    if plan.launches:
        held_or_wanted = sum(
            max(wishes.widths.get(name, 0), len(job.slots)) for name, job in state.jobs.items()
        )
        assert coming - 4 < held_or_wanted


@given(case=states())
def test_the_node_limit_is_never_exceeded_by_launches(case: tuple[ClusterState, Wishes]) -> None:
    """Present and requested nodes stay within the limit, or within what is here already."""
    state, wishes = case
    plan = plan_of(state, wishes, rules(max_nodes=3))

    assert len(state.nodes) + sum(plan.launches.values()) <= max(3, len(state.nodes))


def test_a_compact_job_waits_if_its_gpus_are_free_only_on_several_nodes() -> None:
    """A job of two GPUs waits beside two nodes with one free GPU each; an empty node starts it."""
    held = {"x": some_slots("n1", 0, 1, 2), "y": some_slots("n2", 0, 1, 2)}
    two = [a_node("n1"), a_node("n2")]
    widths = {"x": Width("gpu", 3), "y": Width("gpu", 3), "a": Width("gpu", 2)}

    def placed(nodes: list[NodeState], *, compact: frozenset[str]) -> set[str]:
        state = a_state(a_job("x"), a_job("y"), a_job("a"), nodes=nodes, held=held)
        allocation = Allocation(widths=widths, nodes={"gpu-x4": len(nodes)}, compact=compact)
        plan = decide(state, allocator=Fixed(allocation), placer=FirstFit(), rules=rules()).plan
        return set(plan.jobs.slots)

    assert placed(two, compact=frozenset()) == {"a"}
    assert placed(two, compact=frozenset({"a"})) == set()
    assert placed([*two, a_node("n3")], compact=frozenset({"a"})) == {"a"}


class Fixed:
    """An allocator that always gives the same answer."""

    def __init__(self, allocation: Allocation) -> None:
        self.allocation = allocation

    def allocate(self, jobs: Sequence[Job], *, now: float, money: Money | None = None) -> Allocation:
        """Return the fixed answer."""
        return self.allocation


class Nowhere:
    """A placer that never finds room."""

    def place(self, widths: object, *, nodes: object, held: object) -> Placement:
        """Place no job."""
        return Placement(slots={})


def test_a_placer_that_leaves_jobs_out_of_empty_nodes_is_an_error() -> None:
    """Otherwise nodes would be rented without end."""
    with pytest.raises(BoaError, match="the placer leaves jobs out of empty nodes: a"):
        decide(a_state(a_job("a")), allocator=Wishes(widths={"a": 2}), placer=Nowhere(), rules=rules())  # type: ignore[arg-type]


class Counting(FirstFit):
    """First fit that counts its calls."""

    times = 0

    def place(self, *args: Any, **words: Any) -> Placement:
        """Count the call and return the answer of first fit."""
        Counting.times += 1
        return super().place(*args, **words)


@pytest.mark.parametrize(
    ("wishes", "zones", "launches", "times"),
    [
        (gpus(a=4, b=2), ("",), 2, 1),
        (gpus(a=1), ("",), 1, 1),
        ({"a": Width("gpu", 4), "b": Width("new", 2)}, ("",), 2, 1),
        (gpus(a=2, b=1), ("x", "y"), 1, 2),
    ],
)
def test_the_placer_is_called_once_if_the_free_gpus_cannot_suffice(
    wishes: dict[str, Width], zones: tuple[str, ...], launches: int, times: int
) -> None:
    """It is called with the new nodes at once; over several zones it is called twice."""
    kinds = {name: an_instance_type(gpu_type=name) for name in ("gpu", "new")}
    nodes = [replace(a_node(f"n{zone}", gpus=1), zone=zone) for zone in zones[1:]]
    offers = tuple(Offer(instance_type="gpu-x4", zone=zone, usd_per_hour=4.0) for zone in zones if zone)
    state = a_state(*(a_job(name) for name in "ab"), nodes=nodes, offers=offers)
    room = PlaceableNodes(state, leaving=set(), stopped=frozenset(), placer=(placer := Counting()))
    site = rules(instance_types=kinds)
    draft = replace(asking(state, wishes, site=site), room=room, placer=placer)
    Counting.times = 0
    assert sum(rent(state, draft).plan.launches.values()) == launches
    assert Counting.times == times


@pytest.mark.parametrize(
    ("phase", "hours", "reason"),
    [
        ("ready", 0.01, "gpus-to-fall-free"),
        ("ready", 9.0, "nodes-to-come"),
        ("requested", 0.01, "nodes-to-come"),
    ],
)
def test_a_job_waits_for_free_gpus_if_another_job_ends_before_a_new_node_would_boot(
    phase: Any, hours: float, reason: str
) -> None:
    """In all other cases it waits for coming nodes."""
    nodes = [a_node("n1"), *([a_node("n2", phase="requested")] if phase == "requested" else [])]
    state = a_state(a_job("a"), a_job("b"), nodes=nodes, held={"b": some_slots("n1", 0, 1, 2, 3)})
    prices = Known(widths={}, left_hours={"b": hours})
    found = rent(state, asking(state, gpus(a=4), policy={"node_prices": prices}))
    assert found.plan.jobs.waiting == {"a": reason}


@pytest.mark.parametrize(
    ("widths", "launches"),
    [
        ({"wide": 7, "a": 1}, 1),
        ({"a": 1, "wide": 7}, 1),
        ({"wide": 6, "a": 1, "b": 1}, 1),
        ({"wide": 11, "a": 1}, 1),
        ({"wide": 6, "other": 6, "a": 4}, 1),
        ({"wide": 7}, 0),
    ],
    ids=str,
)
def test_a_job_of_one_node_does_not_starve_beside_one_that_is_refused_together(
    widths: dict[str, int], launches: int
) -> None:
    """Two nodes together are refused: narrow jobs get a node of their own, wide ones wait for stock."""
    refused = {"gpu-x4/*/*/2": Cooldown(until=300.0)}
    state = a_state(*map(a_job, widths), now=100.0, cooldowns=refused)
    plan = plan_of(state, Wishes(widths=widths))

    assert plan.launches == ({"gpu-x4": launches} if launches else {})
    assert plan.gangs == {}
    assert {job for job, why in plan.jobs.waiting.items() if why == "out-of-stock"} == {
        job for job, gpus in widths.items() if gpus > 4
    }
    assert all(plan.jobs.waiting[job] == "nodes-to-come" for job, gpus in widths.items() if gpus <= 4)
    assert plan.wake_at == 300.0


def test_a_job_that_spans_a_free_node_and_a_new_one_is_no_order_of_two() -> None:
    """It needs one new node, which is not refused."""
    state = a_state(a_job("a"), nodes=[a_node("n1")], cooldowns={"gpu-x4/*/*/2": Cooldown(until=300.0)})

    assert plan_of(state, Wishes(widths={"a": 8})).launches == {"gpu-x4": 1}
