"""The state of a packing against plain sets, after any sequence of jobs; and the nodes of a wide job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.testing import a_policy_node, some_slots
from policies.model import GpuSlot, Node, Width
from policies.placement.packing import ClusterPacking

STEPS = st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["a", "b"]), st.integers(1, 9)), max_size=30)


@given(steps=STEPS, kappa=st.integers(1, 4))
def test_free_gpus_are_those_of_plain_sets(steps: list[tuple[int, str, int]], kappa: int) -> None:
    """Each step removes a placed job, or adds a job if it fits, on the lowest free GPUs of each node."""
    nodes = [a_policy_node(f"{kind}{n}", gpus=4, gpu_type=kind) for kind in "ab" for n in range(3)]
    packing = ClusterPacking(nodes)
    free = {node.id: set(range(4)) for node in nodes}
    for number, kind, gpus in steps:
        job, width = str(number), Width(kind, gpus)
        if job in packing.slots:
            for slot in packing.remove(job):
                free[slot.node].add(slot.index)
        else:
            room = sum(len(left) for name, left in free.items() if name.startswith(kind))
            assert packing.add(job, width, kappa=kappa) is (gpus <= room)
            taken = packing.slots.get(job, ())
            assert len(taken) == (gpus if gpus <= room else 0)
            for name in {slot.node for slot in taken}:
                here = sorted(slot.index for slot in taken if slot.node == name)
                assert name.startswith(kind)
                assert here == sorted(free[name])[: len(here)]
                free[name] -= set(here)
            if taken:
                assert packing.slots_of(job) == taken
                assert not packing.keep("another", taken, width)
        for kind_of in "ab":
            left = {(name, at) for name, found in free.items() if name.startswith(kind_of) for at in found}
            assert {(slot.node, slot.index) for slot in packing.free_slots(kind_of)} == left
            assert packing.free_gpus(kind_of) == len(left)


PLACES = st.sampled_from([1, 2, 3])

RUNS = st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(1, 9), st.integers(1, 12)), max_size=8)


@given(
    runs=RUNS,
    gone=st.sets(st.integers(0, 40)),
    places=st.sampled_from([1, 1, 2]),
    kappa=st.integers(1, 4),
    racks=st.booleans(),
)
def test_equal_jobs_added_together_get_the_slots_of_jobs_added_one_by_one(
    runs: list[tuple[str, int, int]], gone: set[int], places: int, kappa: int, racks: bool
) -> None:
    """For any GPUs in use and any busy links before."""
    nodes = [
        replace(_shared_node(f"{kind}{n}", kind, places), tiers=(f"rack{n % 2}",) if racks else ())
        for kind in "ab"
        for n in range(5)
    ]
    together, one_by_one = ClusterPacking(nodes), ClusterPacking(nodes)
    for number, (kind, gpus, count) in enumerate(runs):
        jobs, width = [f"{number}-{one}" for one in range(count)], Width(kind, gpus)
        together.add_alike(jobs, width, kappa=kappa)
        for job in jobs:
            one_by_one.add(job, width, kappa=kappa)
        assert together.slots == one_by_one.slots
        assert all(together.free_gpus(one) == one_by_one.free_gpus(one) for one in "ab")
        for job in [name for at, name in enumerate(together.slots) if at in gone]:
            assert together.remove(job) == one_by_one.remove(job)


@given(steps=STEPS, places=PLACES, kappa=st.integers(1, 4), racks=st.booleans())
def test_a_job_has_one_place_per_gpu_and_a_gpu_no_more_jobs_than_places(
    steps: list[tuple[int, str, int]], places: int, kappa: int, racks: bool
) -> None:
    """For any sequence of jobs: no place is held twice, and a placed job gets its width on different GPUs."""
    nodes = [
        replace(_shared_node(f"{kind}{n}", kind, places), tiers=(f"rack{n % 2}",) if racks else ())
        for kind in "ab"
        for n in range(3)
    ]
    packing = ClusterPacking(nodes)
    on: dict[tuple[str, int], set[str]] = {(node.id, gpu): set() for node in nodes for gpu in range(4)}
    for number, kind, gpus in steps:
        job, width = str(number), Width(kind, gpus)
        if job in packing.slots:
            for slot in packing.remove(job):
                on[slot.node, slot.index % 4].remove(job)
        else:
            room = sum(name.startswith(kind) and len(jobs) < places for (name, _), jobs in on.items())
            assert packing.add(job, width, kappa=kappa) is (gpus <= room)
            for slot in packing.slots.get(job, ()):
                assert job not in on[slot.node, slot.index % 4]
                on[slot.node, slot.index % 4].add(job)
        held = [slot for slots in packing.slots.values() for slot in slots]
        assert len(set(held)) == len(held)
        assert all(len(jobs) <= places for jobs in on.values())
        assert not {slot for name in "ab" for slot in packing.free_slots(name)} & set(held)


def _shared_node(name: str, kind: str, places: int) -> Node:
    """Return a node of four GPUs with the given number of places on each."""
    node = a_policy_node(name, gpus=4 * places, gpu_type=kind)
    return replace(node, instance_type=replace(node.instance_type, places_per_gpu=places))


def test_a_second_job_gets_the_gpus_that_the_first_does_not_use() -> None:
    """Of four GPUs with two places each the third job shares two GPUs with the first."""
    packing = ClusterPacking([_shared_node("n", "gpu", 2)])
    for job in "abc":
        assert packing.add(job, Width("gpu", 2))
    gpus = {job: sorted(slot.index % 4 for slot in slots) for job, slots in packing.slots.items()}
    assert gpus == {"a": [0, 1], "b": [2, 3], "c": [0, 1]}
    assert packing.free_gpus("gpu") == 2
    assert not packing.keep("e", some_slots("n", 2, 6), Width("gpu", 2))
    assert not packing.add("d", Width("gpu", 3))


def test_a_wide_job_prefers_quiet_links_on_equally_many_nodes() -> None:
    """Three GPUs are free on a node with a busy link, and two on each of two nodes with quiet links."""
    packing = ClusterPacking([a_policy_node(name, gpus=4) for name in ("n1", "n2", "n3", "n4")])
    packing.hold("far", some_slots("n1", 0) + some_slots("n2", 0, 1, 2, 3))
    packing.hold("c", some_slots("n3", 0, 1))
    packing.hold("d", some_slots("n4", 0, 1))
    assert not packing.keep("e", (GpuSlot("n3", 2), GpuSlot("n3", 2)), Width("gpu", 2))
    assert not packing.keep("e", some_slots("n3", 2, 3), Width("other", 2))
    assert packing.keep("e", some_slots("n3", 2, 3), Width("gpu", 2))
    assert packing.remove("e") == some_slots("n3", 2, 3)
    assert packing.add("wide", Width("gpu", 4))
    assert {slot.node for slot in packing.slots["wide"]} == {"n3", "n4"}
    packing.remove("wide")
    assert packing.add("wider", Width("gpu", 6))
    assert "n1" in {slot.node for slot in packing.slots["wider"]}


def near(name: str, *tiers: str) -> Node:
    """Return a node of four GPUs in parts of the network, from the widest part to the narrowest."""
    return replace(a_policy_node(name, gpus=4), tiers=tiers)


def test_a_wide_job_takes_nodes_in_one_rack_before_nodes_in_several() -> None:
    """The order of the list is n1, n2; but n2 and n4 are in one rack, and n1 and n3 in one spine."""
    packing = ClusterPacking(
        [near("n1", "s1", "r1"), near("n2", "s2", "r2"), near("n3", "s1", "r3"), near("n4", "s2", "r2")]
    )

    packing.add("a", Width("gpu", 8))
    packing.add("b", Width("gpu", 8))

    assert {slot.node for slot in packing.slots_of("a")} == {"n2", "n4"}
    assert {slot.node for slot in packing.slots_of("b")} == {"n1", "n3"}


def test_fewer_nodes_come_before_nodes_of_one_rack() -> None:
    """Two GPUs are free on each of three nodes of a rack, four on each of two nodes far apart."""
    packing = ClusterPacking(
        [near("n1", "r1"), near("n2", "r1"), near("n3", "r1"), near("n4", "r2"), near("n5", "r3")]
    )
    for name in ("n1", "n2", "n3"):
        packing.hold(f"on-{name}", some_slots(name, 0, 1))

    packing.add("wide", Width("gpu", 6))

    assert len({slot.node for slot in packing.slots_of("wide")}) == 2


def test_the_rack_with_the_fewest_spare_gpus_is_taken() -> None:
    """The next wide job still finds the rack of three nodes whole."""
    packing = ClusterPacking(
        [near(f"a{n}", "r1") for n in range(3)] + [near(f"b{n}", "r2") for n in range(2)]
    )

    packing.add("wide", Width("gpu", 8))

    assert {slot.node for slot in packing.slots_of("wide")} == {"b0", "b1"}


TIERS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2)), min_size=2, max_size=6)


@given(tiers=TIERS, taken=st.lists(st.integers(0, 3), min_size=6, max_size=6), gpus=st.integers(2, 12))
def test_no_other_set_of_as_few_nodes_is_closer_in_the_network(
    tiers: list[tuple[int, int]], taken: list[int], gpus: int
) -> None:
    """Brute force tries all sets of nodes; no smaller set has room either."""
    nodes = [near(f"n{n}", f"s{s}", f"s{s}r{r}") for n, (s, r) in enumerate(tiers)]
    packing = ClusterPacking(nodes)
    free = {}
    for node, used in zip(nodes, taken, strict=False):
        free[node.id] = 4 - used
        if used:
            packing.hold(f"on-{node.id}", some_slots(node.id, *range(used)))
    above = {node.id: node.tiers for node in nodes}

    def depth(names: Sequence[str]) -> int:
        return sum(len(set(tier)) == 1 for tier in zip(*(above[name] for name in names), strict=True))

    fits = packing.add("wide", Width("gpu", gpus))
    assert fits is (sum(free.values()) >= gpus)
    if fits:
        chosen = sorted({slot.node for slot in packing.slots_of("wide")})
        sets = [s for s in combinations(free, len(chosen)) if sum(free[name] for name in s) >= gpus]
        fewer = [s for s in combinations(free, len(chosen) - 1) if sum(free[name] for name in s) >= gpus]
        assert not fewer
        assert depth(chosen) == max(map(depth, sets))


def test_a_job_keeps_only_free_gpus_of_its_type_and_count() -> None:
    """GPUs that are gone, do not exist, or are taken are not kept."""
    packing = ClusterPacking([a_policy_node("n", gpus=4), a_policy_node("m", gpus=4, gpu_type="m")])
    slots = some_slots("n", 0, 1)
    for kind in ("a", "m", "z"):
        assert not packing.keep("e", slots, Width(kind, 2))
    for gpus in (1, 3):
        assert not packing.keep("e", slots, Width("gpu", gpus))
    assert not packing.keep("e", some_slots("gone", 0, 1), Width("gpu", 2))
    assert not packing.keep("e", some_slots("n", 3, 4), Width("gpu", 2))
    assert packing.keep("e", slots, Width("gpu", 2))
    assert not packing.keep("f", some_slots("n", 1, 2), Width("gpu", 2))
    assert (packing.free_gpus("gpu"), packing.free_gpus("m"), packing.free_gpus("none")) == (2, 4, 0)


@pytest.mark.parametrize("places", [1, 2])
@pytest.mark.parametrize("kappa", [1, 2])
def test_only_a_job_on_several_nodes_uses_their_links(places: int, kappa: int) -> None:
    """Jobs of one GPU leave the link of a node quiet; a job of six GPUs uses two links until it leaves."""
    packing = ClusterPacking([_shared_node(name, "gpu", places) for name in ("n", "m")])
    senders = []
    for job, gpus in (("a", 1), ("b", 1), ("c", 6)):
        packing.add(job, Width("gpu", gpus), kappa=kappa)
        senders.append(sum(map(bool, packing._senders.values())))
    packing.remove("c")
    assert packing.keep("d", some_slots("n", 2, 3), Width("gpu", 2))
    assert [*senders, sum(map(bool, packing._senders.values()))] == [0, 0, 2, 0]
    assert packing.add("e", Width("gpu", 2), kappa=kappa)
    assert len({slot.node for slot in packing.slots_of("e")}) == 1


def test_a_node_in_use_comes_before_an_empty_one_that_would_be_fuller() -> None:
    """A job of four takes four of five free GPUs beside three in use, not a whole node of four."""
    packing = ClusterPacking([a_policy_node("empty", gpus=4), a_policy_node("used", gpus=8)])
    packing.hold("a", some_slots("used", 0, 1, 2))
    assert packing.add("b", Width("gpu", 4))
    assert packing.slots_of("b") == some_slots("used", 3, 4, 5, 6)
