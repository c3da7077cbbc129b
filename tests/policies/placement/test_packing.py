"""The books of a packing against plain sets, whatever comes and goes; and which nodes a wide job gets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.testing import a_policy_node, some_slots
from policies.model import GpuSlot, Width
from policies.placement.packing import Packing

STEPS = st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["a", "b"]), st.integers(1, 9)), max_size=30)


@given(steps=STEPS, kappa=st.integers(1, 4))
def test_books_are_those_of_plain_sets(steps: list[tuple[int, str, int]], kappa: int) -> None:
    """A job that is there leaves; else it comes if there is room, to the lowest GPUs of each node."""
    nodes = [a_policy_node(f"{kind}{n}", gpus=4, gpu_type=kind) for kind in "ab" for n in range(3)]
    packing = Packing(nodes)
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
                assert not packing.can_hold(taken, width)
        for kind_of in "ab":
            left = {(name, at) for name, found in free.items() if name.startswith(kind_of) for at in found}
            assert {(slot.node, slot.index) for slot in packing.free_slots(kind_of)} == left
            assert packing.free_gpus(kind_of) == len(left)


def test_a_wide_job_goes_where_nobody_sends_if_that_takes_no_more_nodes() -> None:
    """Three GPUs are free on a node whose link is used, two on each of two whose links are not."""
    packing = Packing([a_policy_node(name, gpus=4) for name in ("n1", "n2", "n3", "n4")])
    packing.hold("far", some_slots("n1", 0) + some_slots("n2", 0, 1, 2, 3))
    packing.hold("c", some_slots("n3", 0, 1))
    packing.hold("d", some_slots("n4", 0, 1))
    assert packing.can_hold(some_slots("n3", 2, 3), Width("gpu", 2))
    assert not packing.can_hold((GpuSlot("n3", 2), GpuSlot("n3", 2)), Width("gpu", 2))
    assert not packing.can_hold(some_slots("n3", 2, 3), Width("other", 2))
    assert packing.add("wide", Width("gpu", 4))
    assert {slot.node for slot in packing.slots["wide"]} == {"n3", "n4"}
    packing.remove("wide")
    assert packing.add("wider", Width("gpu", 6))
    assert "n1" in {slot.node for slot in packing.slots["wider"]}
