"""What is above nodes in EC2's network: asked for in batches, remembered, and never needed."""

from __future__ import annotations

import pytest
from aws_rigs import AwsRig, a_launch

from boa_daemon.backends.aws.descriptions import instances_of
from boa_daemon.backends.aws.topology import AGAIN_SECONDS, REST_SECONDS, TRIES
from boa_daemon.tick.ports import Launched

CALL = "ec2:DescribeInstanceTopology"
NEAR, FAR = ("nn-1", "nn-2", "nn-3"), ("nn-1", "nn-4", "nn-5")


def running(rig: AwsRig, count: int = 2) -> tuple[str, ...]:
    """Launch nodes and let them boot."""
    outcome = rig.cloud.launch(a_launch(rig.offer("p4d.24xlarge"), count))
    assert isinstance(outcome, Launched)
    rig.pass_time(200.0)
    return outcome.nodes


def tiers(rig: AwsRig) -> dict[str, tuple[str, ...]]:
    """Return what is known of each node's place."""
    return {node.id: node.tiers for node in rig.cloud.nodes()}


def asked(rig: AwsRig) -> int:
    """Return how often EC2 was asked for places."""
    return rig.cloud.calls.counts[CALL]


def test_places_are_asked_for_once_and_kept(rig: AwsRig) -> None:
    """The widest first, as EC2 says it; a daemon that starts anew has them from its books."""
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


def test_of_one_node_alone_no_place_matters(rig: AwsRig) -> None:
    """Nothing is asked until there is another."""
    running(rig, 1)
    tiers(rig)

    assert asked(rig) == 0


def test_types_without_an_answer_are_asked_for_a_few_times(rig: AwsRig) -> None:
    """Most types have none, and EC2's answers come true with time."""
    names = running(rig)
    for _ in range(10):
        assert tiers(rig) == dict.fromkeys(names, ())
        rig.pass_time(AGAIN_SECONDS)

    assert asked(rig) == TRIES


def test_an_answer_that_comes_late_counts(rig: AwsRig) -> None:
    """The second time it is there."""
    names = running(rig)
    tiers(rig)
    rig.fake.terms.network_nodes |= dict.fromkeys(names, NEAR)
    rig.pass_time(AGAIN_SECONDS)

    assert tiers(rig) == dict.fromkeys(names, NEAR)


@pytest.mark.exhaustive
def test_no_more_ids_than_ec2_takes(rig: AwsRig) -> None:
    """A hundred in a call."""
    names = running(rig, 101)
    rig.fake.terms.network_nodes |= dict.fromkeys(names, NEAR)

    assert set(tiers(rig).values()) == {NEAR}
    assert asked(rig) == 2


def test_where_the_call_is_denied_nodes_are_listed_all_the_same(rig: AwsRig) -> None:
    """It is said once, and asked again after an hour."""
    names = running(rig)
    rig.fake.faults.plan("DescribeInstanceTopology", "error:UnauthorizedOperation", times=1)

    assert tiers(rig) == dict.fromkeys(names, ())
    tiers(rig)
    assert asked(rig) == 1
    assert sum("near each other" in said for said in rig.said) == 1
    rig.fake.terms.network_nodes |= dict.fromkeys(names, NEAR)
    rig.pass_time(REST_SECONDS)
    assert tiers(rig) == dict.fromkeys(names, NEAR)


def test_a_placement_group_is_what_is_known_where_ec2_is_silent(rig: AwsRig) -> None:
    """The listing names it; a network node is nearer than that."""
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
