"""A policy that says how many nodes to hold gets as many, and no others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from drafts import a_draft, a_plan, asking, gpus

from boa_daemon.testing import a_job, a_node, a_state, an_instance_type, some_slots
from boa_daemon.tick.stages.keep_fleet import keep_fleet
from boa_daemon.tick.state import ClusterState, NodeState, Plan
from policies.answer import Allocation
from policies.model import JobId

FOUR = [a_node("n1"), a_node("n2"), a_node("n3"), a_node("n4", phase="requested")]


def fleet(state: ClusterState, wanted: Mapping[str, int], **slots: str) -> Plan:
    """Return the plan of a policy that wants nodes, where jobs are to start on some."""
    plan = a_plan(slots={job: some_slots(node, 0) for job, node in slots.items()})
    return keep_fleet(state, a_draft(policy={"nodes": wanted}, plan=plan)).plan


def of(nodes: list[NodeState], *jobs: JobId) -> ClusterState:
    """Return a state with nodes, and jobs on the first of them."""
    held = {job: some_slots("n1", at) for at, job in enumerate(jobs)}
    return a_state(*map(a_job, jobs), nodes=nodes, held=held)


def test_without_a_count_nothing_changes() -> None:
    """The policy leaves nodes to the other stages."""
    draft = a_draft()
    assert keep_fleet(of(FOUR), draft) is draft


def test_the_youngest_idle_nodes_beyond_the_count_go_and_none_that_is_used() -> None:
    """Four count, the one to come too; the busy one, and one on which a job is to start, stay."""
    for wanted, releases in ((5, ()), (4, ()), (3, ("n3",)), (2, ("n3", "n2")), (0, ("n3", "n2"))):
        assert fleet(of(FOUR, "a"), {"gpu-x4": wanted}).releases == releases
    assert fleet(of(FOUR), {"gpu-x4": 1}, b="n3").releases == ("n2", "n1")
    assert fleet(of(FOUR), {}).releases == ("n3", "n2", "n1")


def test_what_is_missing_is_rented_type_by_type() -> None:
    """Four are here or to come; of the other type one of two."""
    other = a_node("o1", kind=an_instance_type(gpu_type="other"))
    wanted = {"gpu-x4": 6, "other-x4": 2, "third-x4": 1}
    found = fleet(of([*FOUR, other]), wanted)
    assert found.launches == {"gpu-x4": 2, "other-x4": 1, "third-x4": 1}
    assert found.releases == ()
    assert fleet(of(FOUR), {"gpu-x4": 4, "third-x4": 0}).launches == {}


def test_a_node_that_ends_is_replaced_and_goes_back_once_it_is_idle_without_a_place_of_its_own() -> None:
    """n2 ends: it does not count, and its end takes no surplus from n3."""
    nodes = [FOUR[0], replace(FOUR[1], ends_by=500.0), FOUR[2]]
    assert fleet(of(nodes), {"gpu-x4": 2}).releases == ("n2",)
    assert fleet(of(nodes), {"gpu-x4": 3}).launches == {"gpu-x4": 1}
    assert fleet(of(nodes), {"gpu-x4": 1}).releases == ("n3", "n2")
    assert fleet(of(nodes), {"gpu-x4": 0}).releases == ("n3", "n2", "n1")


def test_whoever_has_no_gpus_waits_for_those_of_others() -> None:
    """The fleet is as large as it gets."""
    state = a_state(a_job("a"), nodes=[a_node()])
    allocation = Allocation(widths=gpus(a=8), nodes={"gpu-x4": 1})
    found = keep_fleet(state, asking(state, gpus(a=8), allocation=allocation))
    assert found.plan.waiting == {"a": "fleet-full"}
