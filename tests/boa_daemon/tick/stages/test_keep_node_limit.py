"""No more nodes than the site allows, and nobody overtakes the first that has no room."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from drafts import PRICES, a_draft, asking, gpus

from boa_daemon.testing import a_job, a_node, a_state, an_instance_type, rules, some_slots
from boa_daemon.tick.draft import Changes, Draft
from boa_daemon.tick.placeable_nodes import PlaceableNodes
from boa_daemon.tick.stages.keep_node_limit import keep_node_limit
from boa_daemon.tick.stages.place import place
from boa_daemon.tick.stages.rent import rent
from boa_daemon.tick.state import ClusterState, NodeState
from policies.answer import Allocation
from policies.model import GpuSlot, Width
from policies.placement.first_fit import FirstFit


def there(*nodes: NodeState, now: float = 0.0, **held: tuple[GpuSlot, ...]) -> ClusterState:
    """Return jobs a to d, some of which run."""
    return a_state(*map(a_job, "abcd"), nodes=nodes, held=held, now=now)


def limited(state: ClusterState, most: int | None, wishes: Mapping[str, Width], **changes: Any) -> Draft:
    """Return the draft with what is placed and rented for wishes, under a limit on nodes."""
    draft = asking(state, wishes, rules=rules(max_nodes=most), **changes)
    return keep_node_limit(state, rent(state, place(state, draft)))


@pytest.mark.parametrize(("most", "launches"), [(None, 3), (4, 3), (3, 3), (2, 2), (1, 1), (0, 0)])
def test_as_many_nodes_are_rented_as_the_limit_leaves(most: int | None, launches: int) -> None:
    """Three jobs of four GPUs want three; those without one wait for the limit, and the draft says so."""
    found = limited(there(), most, gpus(a=4, b=4, c=4))
    assert sum(found.plan.launches.values()) == launches
    assert found.is_at_node_limit == (launches < 3)
    assert set(found.plan.waiting.values()) == {"nodes-to-come" if launches == 3 else "node-limit"}


def test_nodes_here_and_to_come_count_against_the_limit() -> None:
    """One of each, both full or claimed: of three, one is left."""
    state = there(a_node("n1"), a_node("n2", phase="requested"), d=some_slots("n1", 0, 1, 2, 3))
    assert limited(state, 3, gpus(a=4, b=4, c=4)).plan.launches == {"gpu-x4": 1}
    assert limited(state, 2, gpus(a=4, b=4, c=4)).plan.launches == {}


def test_none_overtakes_the_first_without_room_and_its_nodes_are_kept_for_it() -> None:
    """a needs two whole nodes of the two allowed, and one GPU is taken: c could start, and waits."""
    state = there(a_node("n1"), d=some_slots("n1", 0))
    found = limited(state, 2, gpus(a=8, c=1))
    assert (found.plan.slots, found.plan.launches) == ({}, {})
    assert found.plan.waiting == {"a": "node-limit", "c": "node-limit"}
    assert found.claimed == {"n1"}


def test_idle_nodes_of_another_type_or_in_several_zones_are_not_kept_for_it() -> None:
    """The node may be in the wrong zone; of another type it is of no use."""
    other = a_node("n2", kind=an_instance_type(gpu_type="other"))
    assert limited(there(a_node("n1"), other, d=some_slots("n1", 0)), 2, gpus(a=8)).claimed == {"n1"}


def test_a_job_before_it_starts_and_one_that_shrinks_behind_it_makes_room() -> None:
    """b fits before a, which blocks; d gives two back although it comes last."""
    state = there(a_node("n1"), d=some_slots("n1", 0, 1, 2))
    found = limited(state, 2, gpus(b=1, a=8, c=1, d=1))
    assert {job: len(slots) for job, slots in found.plan.slots.items()} == {"b": 1, "d": 1}
    assert found.plan.waiting == {"a": "node-limit", "c": "node-limit"}
    assert found.changes.wishes == gpus(b=1, a=8, c=1, d=1)


@pytest.mark.parametrize(("wide", "starts"), [(8, False), (9, True)])
def test_a_job_that_the_limit_never_holds_keeps_nobody_waiting(wide: int, starts: bool) -> None:
    """Two nodes are eight GPUs, of which one is taken."""
    state = there(a_node("n1"), d=some_slots("n1", 0))
    assert ("c" in limited(state, 2, gpus(a=wide, c=1)).plan.slots) == starts


def test_a_running_job_that_cannot_grow_blocks_nobody() -> None:
    """d wants eight; c starts beside it."""
    state = there(a_node("n1"), d=some_slots("n1", 0))
    assert set(limited(state, 1, gpus(d=8, c=1)).plan.slots) == {"c"}


def test_new_nodes_that_a_job_spans_are_a_gang() -> None:
    """a of eight takes both of the two that are left, b nothing."""
    found = limited(there(), 2, gpus(a=8, b=4))
    assert (found.plan.launches, found.plan.gangs) == ({"gpu-x4": 2}, {"gpu-x4": (2,)})


def test_who_was_lent_gpus_goes_back_before_anybody_is_turned_down() -> None:
    """d holds four and is planned on one: a of three fits on the one node, and nobody waits."""
    state = there(a_node("n1"), d=some_slots("n1", 0, 1, 2, 3))
    wishes = gpus(a=3)
    room = PlaceableNodes(state, leaving={"a", "d"}, stopped=frozenset(), placer=FirstFit())
    allocation = Allocation(widths={**wishes, **gpus(d=4)}, node_prices=PRICES)
    found = limited(state, 1, wishes, room=room, lent=gpus(d=1), allocation=allocation)
    assert {job: len(slots) for job, slots in found.plan.slots.items()} == {"a": 3, "d": 1}
    assert (found.plan.launches, found.plan.waiting, found.is_at_node_limit) == ({}, {}, False)
    assert found.allocation.widths == gpus(a=3, d=1)
    assert found.lent == {}


def test_one_that_gives_back_anyway_is_not_asked_again() -> None:
    """Its wish is the planned width already; where that does not suffice, a waits."""
    state = there(a_node("n1"), d=some_slots("n1", 0, 1, 2, 3))
    found = limited(state, 1, gpus(d=2, a=4), lent=gpus(d=1))
    assert {job: len(slots) for job, slots in found.plan.slots.items()} == {"d": 2}
    assert found.plan.waiting == {"a": "node-limit"}


def test_a_fixed_fleet_is_cut_to_the_limit_type_by_type() -> None:
    """One node is here, three are allowed: the two first launches, none of the other type."""
    plan = a_draft().plan
    state = there(a_node("n1"))
    for most, launches in ((6, {"gpu-x4": 3, "o": 2}), (5, {"gpu-x4": 3, "o": 1}), (4, {"gpu-x4": 3})):
        for policy in ({"nodes": {"gpu-x4": 4, "o": 2}}, {}):
            draft = a_draft(
                site=rules(max_nodes=most),
                policy=policy,
                plan=type(plan)(widths={}, slots={}, launches={"gpu-x4": 3, "o": 2}),
                changes=Changes(),
            )
            assert keep_node_limit(state, draft).plan.launches == launches
