"""First fit: the first node with room for the whole job, else as few nodes as possible."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.testing import a_policy_node, some_slots
from policies.model import GpuSlot, Width
from policies.placement.first_fit import FirstFit

NODES = st.lists(st.integers(1, 6), max_size=5).map(
    lambda sizes: [a_policy_node(f"n{n}", gpus=gpus) for n, gpus in enumerate(sizes)]
)
WIDTHS = st.lists(st.integers(1, 9), max_size=6).map(
    lambda widths: {f"j{n}": Width("gpu", gpus) for n, gpus in enumerate(widths)}
)


def test_a_job_takes_the_first_node_with_room_for_all_of_it() -> None:
    """A job of two skips a node with one free GPU."""
    nodes = [a_policy_node("n1", gpus=1), a_policy_node("n2"), a_policy_node("n3")]

    placement = FirstFit().place({"a": Width("gpu", 2)}, nodes=nodes, held={})

    assert placement.slots == {"a": some_slots("n2", 0, 1)}


def test_a_wide_job_takes_as_few_nodes_as_possible() -> None:
    """A job of six GPUs on nodes of 1, 4 and 4 takes the two large nodes."""
    nodes = [a_policy_node("n1", gpus=1), a_policy_node("n2"), a_policy_node("n3")]

    slots = FirstFit().place({"a": Width("gpu", 6)}, nodes=nodes, held={}).slots["a"]

    assert {slot.node for slot in slots} == {"n2", "n3"}


def test_a_job_that_holds_its_width_keeps_its_slots() -> None:
    """The job is not moved, even if an earlier job could use its slots."""
    held = {"b": some_slots("n1", 2, 3)}
    widths = {"a": Width("gpu", 4), "b": Width("gpu", 2)}

    placement = FirstFit().place(widths, nodes=[a_policy_node("n1"), a_policy_node("n2")], held=held)

    assert placement.slots == {"a": some_slots("n2", 0, 1, 2, 3), "b": some_slots("n1", 2, 3)}


def test_a_growing_job_prefers_the_node_that_it_is_on() -> None:
    """Growth in place comes before a move to an earlier node."""
    held = {"a": some_slots("n2", 0)}

    placement = FirstFit().place(
        {"a": Width("gpu", 2)}, nodes=[a_policy_node("n1"), a_policy_node("n2")], held=held
    )

    assert placement.slots["a"] == some_slots("n2", 0, 1)


def test_the_first_node_with_room_is_taken_before_a_roomier_one() -> None:
    """The first node has more room than the job needs."""
    nodes = [a_policy_node("n1"), a_policy_node("n2", gpus=8)]

    placement = FirstFit().place({"a": Width("gpu", 2)}, nodes=nodes, held={})

    assert placement.slots == {"a": some_slots("n1", 0, 1)}


def test_nodes_that_are_not_ready_or_of_another_type_get_no_job() -> None:
    """Only ready nodes of the job's GPU type count."""
    nodes = [a_policy_node("n1", is_ready=False), a_policy_node("n2", gpu_type="other")]

    assert FirstFit().place({"a": Width("gpu", 1)}, nodes=nodes, held={}).slots == {}


@given(nodes=NODES, widths=WIDTHS)
def test_no_slot_is_given_twice_and_every_width_is_met(nodes: list, widths: dict[str, Width]) -> None:
    """Placed jobs hold exactly their width, on slots that exist, each once."""
    slots = FirstFit().place(widths, nodes=nodes, held={}).slots
    exist = {GpuSlot(node.id, index) for node in nodes for index in range(node.instance_type.gpus)}
    taken = [slot for given_slots in slots.values() for slot in given_slots]

    assert all(len(slots[job]) == widths[job].gpus for job in slots)
    assert len(taken) == len(set(taken))
    assert set(taken) <= exist


@given(nodes=NODES, widths=WIDTHS)
def test_a_job_waits_only_when_too_few_gpus_are_free(nodes: list, widths: dict[str, Width]) -> None:
    """Fragmentation blocks no job: in order, each job is placed exactly if enough GPUs are left."""
    slots = FirstFit().place(widths, nodes=nodes, held={}).slots
    left = sum(node.instance_type.gpus for node in nodes)
    for job, width in widths.items():
        assert (job in slots) == (width.gpus <= left)
        left -= width.gpus if job in slots else 0


@given(nodes=NODES, widths=WIDTHS)
def test_placing_again_changes_nothing(nodes: list, widths: dict[str, Width]) -> None:
    """Placing with the previous slots as `held` gives the same slots."""
    slots = FirstFit().place(widths, nodes=nodes, held={}).slots

    assert FirstFit().place(widths, nodes=nodes, held=slots).slots == slots
