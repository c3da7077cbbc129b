"""A policy that sets the number of nodes gets that number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from drafts import a_draft, a_plan, asking, gpus

from boa_daemon.testing import a_job, a_node, a_state, an_instance_type, some_slots
from boa_daemon.tick.facts.plan import Plan
from boa_daemon.tick.facts.state import ClusterState, NodeState
from boa_daemon.tick.stages.nodes.keep_fleet import keep_fleet
from policies.answer import Allocation
from policies.model import JobId

FOUR = [a_node("n1"), a_node("n2"), a_node("n3"), a_node("n4", phase="requested")]


def fleet(state: ClusterState, wanted: Mapping[str, int], **slots: str) -> Plan:
    """Return the plan under a policy that sets the nodes, where jobs start on the nodes in `slots`."""
    plan = a_plan(slots={job: some_slots(node, 0) for job, node in slots.items()})
    return keep_fleet(state, a_draft(policy={"nodes": wanted}, plan=plan)).plan


def of(nodes: list[NodeState], *jobs: JobId) -> ClusterState:
    """Return a state with these nodes, and the jobs on the first node."""
    held = {job: some_slots("n1", at) for at, job in enumerate(jobs)}
    return a_state(*map(a_job, jobs), nodes=nodes, held=held)


def test_the_plan_stays_if_the_policy_sets_no_number_of_nodes() -> None:
    """The stage returns the same draft."""
    draft = a_draft()
    assert keep_fleet(of(FOUR), draft) is draft


def test_the_youngest_idle_nodes_beyond_the_count_are_released() -> None:
    """Coming nodes count; a busy node and a node on which a job starts stay."""
    for wanted, releases in ((5, ()), (4, ()), (3, ("n3",)), (2, ("n3", "n2")), (0, ("n3", "n2"))):
        assert fleet(of(FOUR, "a"), {"gpu-x4": wanted}).releases == releases
    assert fleet(of(FOUR), {"gpu-x4": 1}, b="n3").releases == ("n2", "n1")
    assert fleet(of(FOUR), {}).releases == ("n3", "n2", "n1")


def test_missing_nodes_are_rented_for_each_type() -> None:
    """Present and coming nodes count towards the number of their type."""
    other = a_node("o1", kind=an_instance_type(gpu_type="other"))
    wanted = {"gpu-x4": 6, "other-x4": 2, "third-x4": 1}
    found = fleet(of([*FOUR, other]), wanted)
    assert found.launches == {"gpu-x4": 2, "other-x4": 1, "third-x4": 1}
    assert found.releases == ()
    assert fleet(of(FOUR), {"gpu-x4": 4, "third-x4": 0}).launches == {}


def test_an_ending_node_does_not_count_and_is_released_when_idle() -> None:
    """Node n2 ends: it is replaced, and its end does not spare n3."""
    nodes = [FOUR[0], replace(FOUR[1], ends_by=500.0), FOUR[2]]
    assert fleet(of(nodes), {"gpu-x4": 2}).releases == ("n2",)
    assert fleet(of(nodes), {"gpu-x4": 3}).launches == {"gpu-x4": 1}
    assert fleet(of(nodes), {"gpu-x4": 1}).releases == ("n3", "n2")
    assert fleet(of(nodes), {"gpu-x4": 0}).releases == ("n3", "n2", "n1")


def test_a_job_that_does_not_fit_in_a_fixed_fleet_waits_for_the_full_fleet() -> None:
    """Its wait reason is `fleet-full`."""
    state = a_state(a_job("a"), nodes=[a_node()])
    allocation = Allocation(widths=gpus(a=8), nodes={"gpu-x4": 1})
    found = keep_fleet(state, asking(state, gpus(a=8), allocation=allocation))
    assert found.plan.jobs.waiting == {"a": "fleet-full"}
