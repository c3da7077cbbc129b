"""Few jobs get the GPUs that the index would give them."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.testing import a_policy_node, some_slots
from policies.model import Width
from policies.placement.few_jobs import is_plain, slots_for
from policies.placement.packing import ClusterPacking

HOLDERS = st.lists(
    st.lists(st.sampled_from([None, None, "a", "b", "c", "d", "e"]), min_size=1, max_size=8), max_size=8
)
"""The jobs on the GPUs of some nodes of one to eight GPUs; some jobs span nodes."""


@given(holders=HOLDERS, new=st.lists(st.sampled_from([1, 4, 8]), max_size=4), gpus=st.integers(1, 24))
def test_one_job_gets_the_gpus_that_the_packing_gives_it(
    holders: list[list[str | None]], new: list[int], gpus: int
) -> None:
    """This holds with nodes of several sizes and types, busy links, and new nodes after the others."""
    sizes = [*map(len, holders), *new]
    nodes = [
        a_policy_node(f"n{number}", gpus=size, gpu_type="other" if number % 5 == 4 else "gpu")
        for number, size in enumerate(sizes)
    ]
    packing = ClusterPacking(nodes)
    packing.occupy(holders, ())
    packing.add("new", Width("gpu", gpus))

    assert slots_for(Width("gpu", gpus), nodes, holders) == packing.slots.get("new")


def test_the_fullest_node_in_use_is_taken_and_then_one_with_a_busy_link() -> None:
    """Of n1, n2 and n3 with one free GPU, n2 and n3 hold a job that spans both; n0 is empty."""
    nodes = [a_policy_node(f"n{number}", gpus=2) for number in range(4)]
    holders = [[None, None], ["a", None], ["b", None], [None, "b"]]
    assert slots_for(Width("gpu", 1), nodes, holders) == some_slots("n2", 1)
    assert slots_for(Width("gpu", 2), nodes, holders) == some_slots("n0", 0, 1)
    assert slots_for(Width("gpu", 6), nodes, holders) is None


def test_nodes_with_shared_gpus_or_a_place_in_the_network_are_not_plain() -> None:
    """Only exclusive GPUs on nodes without tiers are."""
    node = a_policy_node("n", gpus=4)
    shared = replace(node, instance_type=replace(node.instance_type, places_per_gpu=2))
    assert is_plain([node, node])
    assert not is_plain([node, shared])
    assert not is_plain([replace(node, tiers=("rack",)), node])
