"""The site's limit on nodes holds, and no job overtakes the first job without room."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from drafts import PRICES, a_draft, a_plan, asking, gpus

from boa_daemon.testing import a_job, a_node, a_state, an_instance_type, rules, some_slots
from boa_daemon.tick.facts.draft import Changes, Draft
from boa_daemon.tick.facts.placeable_nodes import PlaceableNodes
from boa_daemon.tick.facts.state import ClusterState, NodeState
from boa_daemon.tick.stages.nodes.keep_node_limit import keep_node_limit
from boa_daemon.tick.stages.nodes.rent import rent
from boa_daemon.tick.stages.places.place import place
from policies.answer import Allocation
from policies.model import GpuSlot, Width
from policies.placement.first_fit import FirstFit


def there(*nodes: NodeState, now: float = 0.0, **held: tuple[GpuSlot, ...]) -> ClusterState:
    """Return jobs a to d; the jobs in `held` run."""
    return a_state(*map(a_job, "abcd"), nodes=nodes, held=held, now=now)


def limited(state: ClusterState, most: int | None, wishes: Mapping[str, Width], **changes: Any) -> Draft:
    """Return the draft after placing and renting for these wishes, under a limit on nodes."""
    draft = asking(state, wishes, rules=rules(max_nodes=most), **changes)
    return keep_node_limit(state, rent(state, place(state, draft)))


@pytest.mark.parametrize(("most", "launches"), [(None, 3), (4, 3), (3, 3), (2, 2), (1, 1), (0, 0)])
def test_launches_stop_at_the_node_limit(most: int | None, launches: int) -> None:
    """Three jobs of four GPUs need three nodes; below that the last ones wait for the limit."""
    found = limited(there(), most, gpus(a=4, b=4, c=4))
    assert sum(found.plan.launches.values()) == launches
    assert found.is_at_node_limit == (launches < 3)
    codes = ["nodes-to-come"] * launches + ["node-limit"] * (3 - launches)
    assert list(found.plan.jobs.waiting.values()) == codes


def test_present_and_coming_nodes_count_against_the_limit() -> None:
    """With one node here and one coming, a limit of three leaves one launch."""
    state = there(a_node("n1"), a_node("n2", phase="requested"), d=some_slots("n1", 0, 1, 2, 3))
    assert limited(state, 3, gpus(a=4, b=4, c=4)).plan.launches == {"gpu-x4": 1}
    assert limited(state, 2, gpus(a=4, b=4, c=4)).plan.launches == {}


def test_no_job_overtakes_the_first_job_without_room() -> None:
    """Job a needs two whole nodes; job c could start but waits, and the node is claimed for a."""
    state = there(a_node("n1"), d=some_slots("n1", 0))
    found = limited(state, 2, gpus(a=8, c=1))
    assert (found.plan.jobs.slots, found.plan.launches) == ({}, {})
    assert found.plan.jobs.waiting == {"a": "node-limit", "c": "node-limit"}
    assert found.claimed == {"n1"}


def test_idle_nodes_of_another_type_are_not_claimed_for_the_first_waiting_job() -> None:
    """Only n1 is claimed for job a."""
    other = a_node("n2", kind=an_instance_type(gpu_type="other"))
    assert limited(there(a_node("n1"), other, d=some_slots("n1", 0)), 2, gpus(a=8)).claimed == {"n1"}


def test_jobs_before_the_first_job_without_room_start_and_jobs_behind_it_shrink() -> None:
    """Job a has no room: b starts before it, and d gives two GPUs back."""
    state = there(a_node("n1"), d=some_slots("n1", 0, 1, 2))
    found = limited(state, 2, gpus(b=1, a=8, c=1, d=1))
    assert {job: len(slots) for job, slots in found.plan.jobs.slots.items()} == {"b": 1, "d": 1}
    assert found.plan.jobs.waiting == {"a": "node-limit", "c": "node-limit"}
    assert found.changes.wishes == gpus(b=1, a=8, c=1, d=1)


@pytest.mark.parametrize(("wide", "starts"), [(8, False), (9, True)])
def test_a_job_too_wide_for_the_node_limit_delays_no_other_job(wide: int, starts: bool) -> None:
    """Two nodes have eight GPUs: a job of nine lets job c start, a job of eight does not."""
    state = there(a_node("n1"), d=some_slots("n1", 0))
    assert ("c" in limited(state, 2, gpus(a=wide, c=1)).plan.jobs.slots) == starts


def test_a_running_job_that_cannot_grow_delays_no_other_job() -> None:
    """Job d wants eight GPUs; c starts beside it."""
    state = there(a_node("n1"), d=some_slots("n1", 0))
    assert set(limited(state, 1, gpus(d=8, c=1)).plan.jobs.slots) == {"c"}


def test_new_nodes_for_one_job_are_ordered_together() -> None:
    """Job a takes both nodes that the limit leaves, as one order."""
    found = limited(there(), 2, gpus(a=8, b=4))
    assert (found.plan.launches, found.plan.gangs) == ({"gpu-x4": 2}, {"gpu-x4": (2,)})


def test_lent_gpus_are_returned_before_a_job_has_to_wait() -> None:
    """Job d holds four GPUs and is planned on one, so job a fits on the same node."""
    state = there(a_node("n1"), d=some_slots("n1", 0, 1, 2, 3))
    wishes = gpus(a=3)
    room = PlaceableNodes(state, leaving={"a", "d"}, stopped=frozenset(), placer=FirstFit())
    allocation = Allocation(widths={**wishes, **gpus(d=4)}, node_prices=PRICES)
    found = limited(state, 1, wishes, room=room, lent=gpus(d=1), allocation=allocation)
    assert {job: len(slots) for job, slots in found.plan.jobs.slots.items()} == {"a": 3, "d": 1}
    assert (found.plan.launches, found.plan.jobs.waiting, found.is_at_node_limit) == ({}, {}, False)
    assert found.allocation.widths == gpus(a=3, d=1)
    assert found.lent == {}


def test_a_job_that_already_shrinks_is_not_shrunk_further() -> None:
    """Job d gets the width of its wish, and job a waits."""
    state = there(a_node("n1"), d=some_slots("n1", 0, 1, 2, 3))
    found = limited(state, 1, gpus(d=2, a=4), lent=gpus(d=1))
    assert {job: len(slots) for job, slots in found.plan.jobs.slots.items()} == {"d": 2}
    assert found.plan.jobs.waiting == {"a": "node-limit"}


def test_launches_without_wishes_are_cut_to_the_limit_in_their_order() -> None:
    """One node is here; the first type's launches come before those of the other type."""
    state = there(a_node("n1"))
    for most, launches in ((6, {"gpu-x4": 3, "o": 2}), (5, {"gpu-x4": 3, "o": 1}), (4, {"gpu-x4": 3})):
        for policy in ({"nodes": {"gpu-x4": 4, "o": 2}}, {}):
            draft = a_draft(
                site=rules(max_nodes=most),
                policy=policy,
                plan=a_plan(launches={"gpu-x4": 3, "o": 2}),
                changes=Changes(),
            )
            assert keep_node_limit(state, draft).plan.launches == launches
