"""Allocate, then place: what is rented, what is kept, who waits for what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from drafts import asking, gpus
from followers import Known
from hypothesis import given

from boa_daemon.errors import BoaError
from boa_daemon.testing import Wishes, a_job, a_node, a_state, an_instance_type, rules, some_slots, states
from boa_daemon.tick.decision import decide
from boa_daemon.tick.offers import Cooldown, Offer
from boa_daemon.tick.placeable_nodes import PlaceableNodes
from boa_daemon.tick.stages.rent import rent
from boa_daemon.tick.state import ClusterState, NodeState, Plan, Rules
from policies.answer import Allocation, Placement
from policies.model import Job, Money, Width
from policies.placement.first_fit import FirstFit


def plan_of(state: ClusterState, wishes: Wishes, site: Rules | None = None) -> Plan:
    """Return the plan with first fit on four-GPU nodes."""
    return decide(state, allocator=wishes, placer=FirstFit(), rules=site or rules()).plan


def test_as_many_nodes_are_rented_as_the_widths_fill() -> None:
    """Widths of 4 and 2 on nodes of four GPUs take two nodes."""
    plan = plan_of(a_state(a_job("a"), a_job("b")), Wishes(widths={"a": 4, "b": 2}))

    assert plan.launches == {"gpu-x4": 2}
    assert plan.waiting == {"a": "nodes-to-come", "b": "nodes-to-come"}


def test_nodes_to_come_count_so_nothing_is_rented_twice() -> None:
    """Two nodes are booting for six GPUs: no more are asked for."""
    state = a_state(
        a_job("a"), a_job("b"), nodes=[a_node("n1", phase="requested"), a_node("n2", phase="requested")]
    )

    assert plan_of(state, Wishes(widths={"a": 4, "b": 2})).launches == {}


def test_free_gpus_and_booting_ones_are_used_together() -> None:
    """Six GPUs: two free here, four to come; nothing else is rented, and the idle node is kept for it."""
    state = a_state(
        a_job("a"),
        a_job("b"),
        nodes=[a_node("n1"), a_node("n2", phase="requested")],
        held={"b": some_slots("n1", 0, 1)},
        now=1e6,
    )
    plan = plan_of(state, Wishes(widths={"a": 6, "b": 2}))

    assert (plan.launches, plan.releases, plan.slots) == ({}, (), {})


def test_a_growing_job_keeps_its_gpus_until_the_new_ones_are_there() -> None:
    """From 4 to 8: one node is rented, nothing is stopped."""
    state = a_state(a_job("a"), nodes=[a_node("n1")], held={"a": some_slots("n1", 0, 1, 2, 3)})

    plan = plan_of(state, Wishes(widths={"a": 8}))

    assert plan.launches == {"gpu-x4": 1}
    assert plan.slots == {}
    assert plan.stops == ()


def test_a_shrinking_job_makes_room_for_an_older_one_in_the_same_tick() -> None:
    """b gives up two of four GPUs, and a, which waited, takes them."""
    state = a_state(a_job("a"), a_job("b"), nodes=[a_node("n1")], held={"b": some_slots("n1", 0, 1, 2, 3)})
    plan = plan_of(state, Wishes(widths={"a": 2, "b": 2}))

    assert {job: len(slots) for job, slots in plan.slots.items()} == {"a": 2, "b": 2}
    assert plan.launches == {}


def test_a_job_without_a_width_is_stopped_and_its_gpus_go_to_others() -> None:
    """Preemption: the plan drops b, and a starts where b was."""
    state = a_state(a_job("a"), a_job("b"), nodes=[a_node("n1")], held={"b": some_slots("n1", 0, 1, 2, 3)})
    plan = plan_of(state, Wishes(widths={"a": 4}, nodes={"gpu-x4": 1}))

    assert plan.stops == ("b",)
    assert set(plan.slots["a"]) == set(some_slots("n1", 0, 1, 2, 3))


def test_a_job_that_is_stopping_is_left_alone() -> None:
    """It still holds its GPUs; nobody else gets them, and it is not stopped again."""
    state = a_state(a_job("a"), a_job("b"), nodes=[a_node("n1")], held={"b": some_slots("n1", 0, 1, 2, 3)})
    stopping = type(state.jobs["b"])(
        job=state.jobs["b"].job, slots=state.jobs["b"].slots, generation=1, is_stopping=True
    )
    state = type(state)(now=0.0, tick=1, nodes=state.nodes, jobs={**state.jobs, "b": stopping})

    plan = plan_of(state, Wishes(widths={"a": 1}))

    assert (plan.stops, plan.slots) == ((), {})


def test_jobs_leave_a_node_that_is_going_away() -> None:
    """A node that is terminating is no place to be: its job moves to a ready one at the same width."""
    dying = a_node("n1", phase="terminating")
    state = a_state(a_job("a"), nodes=[dying, a_node("n2")], held={"a": some_slots("n1", 0, 1)})

    assert plan_of(state, Wishes(widths={"a": 2})).slots == {"a": some_slots("n2", 0, 1)}


def test_an_idle_node_is_released_when_its_hold_is_over() -> None:
    """Held 60 s: at 59 s the tick asks to be woken at 60, and at 60 s the node goes."""
    for now, releases, wake_at in ((59.0, (), 60.0), (60.0, ("n1",), None)):
        plan = plan_of(a_state(nodes=[a_node("n1", idle_since=0.0)], now=now), Wishes(widths={}))
        assert (plan.releases, plan.wake_at) == (releases, wake_at)


def test_zero_hold_means_zero() -> None:
    """An idle node goes at once."""
    state = a_state(nodes=[a_node("n1", idle_since=5.0)], now=5.0)

    assert plan_of(state, Wishes(widths={}), rules(idle_hold_seconds=0.0)).releases == ("n1",)


def test_a_type_that_is_out_of_stock_is_asked_for_later() -> None:
    """No launch before the instant that the refusal named, and a wake-up then."""
    state = a_state(a_job("a"), now=10.0, cooldowns={"gpu-x4": Cooldown(until=70.0)})

    plan = plan_of(state, Wishes(widths={"a": 4}))

    assert (plan.launches, plan.wake_at, plan.waiting) == ({}, 70.0, {"a": "out-of-stock"})


def test_a_gang_of_a_closed_size_is_not_asked_for_and_smaller_orders_are() -> None:
    """Orders of two nodes rest: the job of two waits, a job of one gets its node."""
    cooldowns = {"gpu-x4//on-demand/2": Cooldown(until=70.0)}
    state = a_state(a_job("a"), a_job("b", arrived_at=1.0), now=10.0, cooldowns=cooldowns)

    plan = plan_of(state, Wishes(widths={"a": 8, "b": 4}))

    assert (plan.launches, plan.gangs, plan.wake_at) == ({"gpu-x4": 1}, {}, 70.0)
    assert plan.waiting == {"a": "out-of-stock", "b": "nodes-to-come"}


def test_a_gang_beyond_the_quota_says_that_it_waits_for_that() -> None:
    """One node is left, two are needed together: nothing is asked for."""
    offers = (Offer(instance_type="gpu-x4", usd_per_hour=4.0, nodes_left=1),)
    plan = plan_of(a_state(a_job("a"), offers=offers), Wishes(widths={"a": 8}))

    assert (plan.launches, plan.waiting) == ({}, {"a": "quota"})


def test_a_fixed_fleet_is_held_whole_whatever_the_jobs() -> None:
    """Three nodes wanted, one here, one coming: one more; none is released though idle for ages."""
    state = a_state(nodes=[a_node("n1"), a_node("n2", phase="requested")], now=1e6)

    plan = plan_of(state, Wishes(widths={}, nodes={"gpu-x4": 3}))

    assert (plan.launches, plan.releases) == ({"gpu-x4": 1}, ())


def test_a_fixed_fleet_that_is_too_large_gives_its_youngest_idle_nodes_back() -> None:
    """One wanted of three; the busy one stays."""
    state = a_state(
        a_job("a"), nodes=[a_node("n1"), a_node("n2"), a_node("n3")], held={"a": some_slots("n1", 0)}
    )
    plan = plan_of(state, Wishes(widths={"a": 1}, nodes={"gpu-x4": 1}))

    assert plan.releases == ("n3", "n2")


def test_at_the_cap_nobody_overtakes_a_job_that_waits_for_room() -> None:
    """One node allowed, half of it free: the job of four waits, and so does the job of one behind it."""
    state = a_state(
        a_job("old"),
        a_job("wide"),
        a_job("small"),
        nodes=[a_node("n1")],
        held={"old": some_slots("n1", 0, 1)},
    )
    plan = plan_of(state, Wishes(widths={"old": 2, "wide": 4, "small": 1}), rules(max_nodes=1))

    assert plan.slots == {}
    assert plan.waiting == {"wide": "node-limit", "small": "node-limit"}
    assert plan.launches == {}


def test_at_the_cap_nothing_is_rented_or_released_for_a_job_that_does_not_fit_yet() -> None:
    """Three nodes allowed, one busy, one idle for ages: the job of twelve waits, no node comes or goes."""
    state = a_state(
        a_job("old"),
        a_job("wide"),
        nodes=[a_node("n1"), a_node("n2", idle_since=0.0)],
        held={"old": some_slots("n1", 0)},
        now=1e6,
    )
    plan = plan_of(state, Wishes(widths={"old": 1, "wide": 12}), rules(max_nodes=3))

    assert (plan.launches, plan.releases, plan.slots) == ({}, (), {})


def test_a_job_wider_than_the_cap_keeps_nobody_waiting() -> None:
    """Five GPUs on one node of four never fit: the job behind it starts."""
    state = a_state(a_job("wide"), a_job("small"), nodes=[a_node("n1")])

    plan = plan_of(state, Wishes(widths={"wide": 5, "small": 1}), rules(max_nodes=1))

    assert set(plan.slots) == {"small"}


def test_at_the_cap_idle_nodes_of_another_type_make_way_at_once() -> None:
    """The one allowed node is of a type that nobody needs: it is released without a hold."""
    kinds = {"gpu": an_instance_type(), "other": an_instance_type(gpu_type="other")}
    state = a_state(a_job("a"), nodes=[a_node("n1", kind=kinds["other"], idle_since=0.0)], now=1.0)

    plan = plan_of(state, Wishes(widths={"a": 4}), rules(instance_types=kinds, max_nodes=1))

    assert plan.releases == ("n1",)
    assert plan.wake_at == 2.0


@given(case=states())
def test_what_is_free_or_to_come_suffices_for_every_wish(case: tuple[ClusterState, Wishes]) -> None:
    """GPUs here, coming and asked for are at least the widths; less than one node of them is too much."""
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
def test_the_cap_is_never_exceeded(case: tuple[ClusterState, Wishes]) -> None:
    """Nodes held and asked for stay within the limit, or at what is held already."""
    state, wishes = case
    plan = plan_of(state, wishes, rules(max_nodes=3))

    assert len(state.nodes) + sum(plan.launches.values()) <= max(3, len(state.nodes))


def test_a_job_that_wants_few_nodes_waits_where_free_gpus_lie_on_more() -> None:
    """Two nodes with one GPU free each: a compact job of two waits; on one node it starts."""
    held = {"x": some_slots("n1", 0, 1, 2), "y": some_slots("n2", 0, 1, 2)}
    two = [a_node("n1"), a_node("n2")]
    widths = {"x": Width("gpu", 3), "y": Width("gpu", 3), "a": Width("gpu", 2)}

    def placed(nodes: list[NodeState], *, compact: frozenset[str]) -> set[str]:
        state = a_state(a_job("x"), a_job("y"), a_job("a"), nodes=nodes, held=held)
        allocation = Allocation(widths=widths, nodes={"gpu-x4": len(nodes)}, compact=compact)
        plan = decide(state, allocator=Fixed(allocation), placer=FirstFit(), rules=rules()).plan
        return set(plan.slots)

    assert placed(two, compact=frozenset()) == {"a"}
    assert placed(two, compact=frozenset({"a"})) == set()
    assert placed([*two, a_node("n3")], compact=frozenset({"a"})) == {"a"}


class Fixed:
    """An allocator that always says the same."""

    def __init__(self, allocation: Allocation) -> None:
        self.allocation = allocation

    def allocate(self, jobs: Sequence[Job], *, now: float, money: Money | None = None) -> Allocation:
        """Return what it always says."""
        return self.allocation


class Nowhere:
    """A placer that never finds room."""

    def place(self, widths: object, *, nodes: object, held: object) -> Placement:
        """Place nobody."""
        return Placement(slots={})


def test_a_placer_that_leaves_jobs_out_of_empty_nodes_is_found_out() -> None:
    """Rather than renting without end."""
    with pytest.raises(BoaError, match="the placer leaves jobs out of empty nodes: a"):
        decide(a_state(a_job("a")), allocator=Wishes(widths={"a": 2}), placer=Nowhere(), rules=rules())  # type: ignore[arg-type]


class Counting(FirstFit):
    """First fit that counts how often it is asked."""

    times = 0

    def place(self, *args: Any, **words: Any) -> Placement:
        """Return its answer."""
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
def test_a_placer_is_asked_once_where_what_is_free_is_surely_too_little(
    wishes: dict[str, Width], zones: tuple[str, ...], launches: int, times: int
) -> None:
    """With new nodes at once; over zones it is asked first, which says what each of them lacks."""
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
def test_what_a_job_waits_for_is_nodes_unless_a_job_ends_so_soon_that_none_is_rented(
    phase: Any, hours: float, reason: str
) -> None:
    """b on n1 ends within a boot, or does not; a node that boots for a is what a waits for."""
    nodes = [a_node("n1"), *([a_node("n2", phase="requested")] if phase == "requested" else [])]
    state = a_state(a_job("a"), a_job("b"), nodes=nodes, held={"b": some_slots("n1", 0, 1, 2, 3)})
    prices = Known(widths={}, left_hours={"b": hours})
    found = rent(state, asking(state, gpus(a=4), policy={"node_prices": prices}))
    assert found.plan.waiting == {"a": reason}
