"""`aws/instances/topology.py`: places of nodes in EC2's network are asked for in batches and remembered."""

from __future__ import annotations

import pytest
from aws_rigs import AwsRig, a_launch

from boa_daemon.backends.aws.instances.descriptions import instances_of
from boa_daemon.backends.aws.instances.topology import AGAIN_SECONDS, REST_SECONDS, TRIES
from boa_daemon.tick.facts.ports import Launched

CALL = "ec2:DescribeInstanceTopology"
NEAR, FAR = ("nn-1", "nn-2", "nn-3"), ("nn-1", "nn-4", "nn-5")


def running(rig: AwsRig, count: int = 2) -> tuple[str, ...]:
    """Launch nodes, let them boot, and return their names."""
    outcome = rig.cloud.launch(a_launch(rig.offer("p4d.24xlarge"), count))
    assert isinstance(outcome, Launched)
    rig.pass_time(200.0)
    return outcome.nodes


def tiers(rig: AwsRig) -> dict[str, tuple[str, ...]]:
    """Return the known network place of each node."""
    return {node.id: node.tiers for node in rig.cloud.nodes()}


def asked(rig: AwsRig) -> int:
    """Return the number of calls for places."""
    return rig.cloud.calls.counts[CALL]


def test_places_are_asked_for_once_and_remembered(rig: AwsRig) -> None:
    """A restarted daemon takes them from its records."""
    one, other = running(rig)
    rig.fake.terms.network_nodes |= {one: NEAR, other: FAR}

    assert tiers(rig) == {one: NEAR, other: FAR}
    tiers(rig)
    assert asked(rig) == 1
    nodes = rig.cloud.nodes()
    rig.cloud = rig.another()
    rig.cloud.remember(nodes)
    assert tiers(rig) == {one: NEAR, other: FAR}
    assert asked(rig) == 0


def test_no_place_is_asked_for_a_single_node(rig: AwsRig) -> None:
    """A place matters only relative to another node."""
    running(rig, 1)
    tiers(rig)

    assert asked(rig) == 0


def test_nodes_without_an_answer_are_asked_for_a_limited_number_of_times(rig: AwsRig) -> None:
    """EC2 gives most types no place, and gives others theirs late."""
    names = running(rig)
    for _ in range(10):
        assert tiers(rig) == dict.fromkeys(names, ())
        rig.pass_time(AGAIN_SECONDS)

    assert asked(rig) == TRIES


def test_a_late_answer_is_found_at_the_next_question(rig: AwsRig) -> None:
    """The first question of a node may come too early for EC2."""
    names = running(rig)
    tiers(rig)
    rig.fake.terms.network_nodes |= dict.fromkeys(names, NEAR)
    rig.pass_time(AGAIN_SECONDS)

    assert tiers(rig) == dict.fromkeys(names, NEAR)


@pytest.mark.exhaustive
def test_a_call_asks_for_at_most_a_hundred_nodes(rig: AwsRig) -> None:
    """101 nodes take two calls."""
    names = running(rig, 101)
    rig.fake.terms.network_nodes |= dict.fromkeys(names, NEAR)

    assert set(tiers(rig).values()) == {NEAR}
    assert asked(rig) == 2


def test_nodes_are_listed_although_the_topology_call_is_denied(rig: AwsRig) -> None:
    """The denial is reported once, and the question is repeated after a pause."""
    names = running(rig)
    rig.fake.faults.plan("DescribeInstanceTopology", "error:UnauthorizedOperation", times=1)

    assert tiers(rig) == dict.fromkeys(names, ())
    tiers(rig)
    assert asked(rig) == 1
    assert sum("near each other" in said for said in rig.said) == 1
    rig.fake.terms.network_nodes |= dict.fromkeys(names, NEAR)
    rig.pass_time(REST_SECONDS)
    assert tiers(rig) == dict.fromkeys(names, NEAR)


def test_the_placement_group_is_the_place_of_a_node_without_an_answer(rig: AwsRig) -> None:
    """An answer from EC2 replaces it."""
    names = running(rig)
    listed = [
        {**each, "Placement": {"GroupName": "gang"}}
        for each in instances_of(rig.cloud.calls, rig.settings.cluster)
    ]
    nodes = {node.id: node for node in rig.cloud.nodes()}

    assert {node.tiers for node in rig.cloud.topology.placed(nodes, listed).values()} == {("gang",)}
    rig.fake.terms.network_nodes[names[0]] = NEAR
    rig.pass_time(AGAIN_SECONDS)
    placed = rig.cloud.topology.placed(nodes, listed)
    assert [placed[name].tiers for name in names] == [NEAR, ("gang",)]
    rig.cloud = rig.another()
    rig.cloud.remember(placed.values())
    rig.fake.terms.network_nodes[names[1]] = FAR
    assert tiers(rig) == {names[0]: NEAR, names[1]: FAR}
