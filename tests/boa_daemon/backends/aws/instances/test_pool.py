"""`aws/instances/pool.py`: no failed or lost stop or start leaves an instance forgotten or billed twice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from aws_rigs import CATALOG, START, AwsRig, a_launch, a_rig, ends

from boa_daemon.backends.aws.cloud import AwsCloud
from boa_daemon.backends.aws.doctor.account import Doctor
from boa_daemon.tick.facts.ports import Accepted, Launched, Unknown
from boa_daemon.tick.facts.state import NodeState

ZONE = ("g5.xlarge", "us-east-1a", "on-demand")


@pytest.fixture
def rig() -> Iterator[AwsRig]:
    """AWS in process."""
    with a_rig("process") as made:
        yield made


def ready(rig: AwsRig, order: str = "t1-launch-0") -> str:
    """Launch a node, wait until it is ready, and return its name."""
    outcome = rig.cloud.launch(a_launch(rig.offer(), name=order))
    assert isinstance(outcome, Launched)
    rig.pass_time(100.0)
    rig.cloud.nodes()
    return outcome.nodes[0]


def stop(rig: AwsRig, name: str, cloud: AwsCloud | None = None) -> object:
    """Order a stop and return its outcome."""
    [order] = ends(name)
    return (cloud or rig.cloud).terminate([replace(order, stops=True)])[name]


def phases(cloud: AwsCloud) -> dict[str, str]:
    """Return the phase of each life in the listing."""
    return {node.id: node.phase for node in cloud.nodes()}


def a_stopped_one(rig: AwsRig) -> tuple[str, str]:
    """Return the names of the two lives of a stopped instance."""
    name = ready(rig)
    assert stop(rig, name) == Accepted()
    rig.pass_time(120.0)
    assert phases(rig.cloud) == {name: "terminated", f"{name}~2": "stopped"}
    return name, f"{name}~2"


def started(rig: AwsRig, name: str, *, order: str = "t2-launch-0", count: int = 1) -> object:
    """Launch nodes, with a stopped node to start first."""
    return rig.cloud.launch(replace(a_launch(rig.offer(), count, name=order), starts=(name,)))


def test_a_stop_without_an_answer_is_repeated_by_the_next_process(rig: AwsRig) -> None:
    """The node is terminating meanwhile, so no job gets it."""
    name = ready(rig)
    rig.fake.faults.plan("StopInstances", "error:InternalError", times=1)
    assert isinstance(stop(rig, name), Unknown)
    assert phases(rig.cloud) == {name: "terminating"}

    later = rig.another()
    assert phases(later) == {name: "terminating"}
    rig.pass_time(120.0)
    assert phases(later)[f"{name}~2"] == "stopped"


def test_a_node_that_ec2_does_not_stop_is_terminated(rig: AwsRig) -> None:
    """A refused stop terminates the node at once, a stop that has no effect after five minutes."""
    name = ready(rig)
    rig.fake.faults.plan("StopInstances", "error:IncorrectInstanceState", times=1)
    assert stop(rig, name) == Accepted()
    assert rig.fake.faults.counts["TerminateInstances"] == 1
    rig.pass_time(120.0)
    assert phases(rig.cloud) == {name: "terminated"}

    name = ready(rig, "t2-launch-0")
    rig.fake.faults.plan("StopInstances", "error:InternalError", times=100)
    assert isinstance(stop(rig, name), Unknown)
    ordered = []
    for _ in range(9):
        rig.pass_time(60.0)
        found = phases(rig.cloud)
        ordered.append(rig.fake.faults.counts["TerminateInstances"] - 1)
    assert ordered[3:5] == [0, 1]
    assert found[name] == "terminated"
    assert any("still runs: it is ended" in said for said in rig.said)


@pytest.mark.parametrize("is_remembered", [True, False])
def test_a_restarted_daemon_bills_the_run_and_the_stop_alike(rig: AwsRig, is_remembered: bool) -> None:
    """The bill does not depend on whether the daemon remembers the node or reads it from EC2 and tags."""
    name = ready(rig)
    before = list(rig.cloud.nodes())
    stop(rig, name)
    rig.pass_time(200.0)
    later = rig.another()
    if is_remembered:
        later.remember(before)
    found = {node.id: node for node in later.nodes()}

    assert (found[name].launched_at, found[name].ended_at) == (START, START + 100.0)
    assert found[name].usd_per_hour > 1.0
    assert (found[f"{name}~2"].phase, found[f"{name}~2"].launched_at) == ("stopped", START + 100.0)


def test_after_a_start_the_bill_of_the_stop_comes_from_the_tag(rig: AwsRig) -> None:
    """EC2 forgets the instant of the stop; the tag holds it."""
    name, waiting = a_stopped_one(rig)
    started(rig, waiting)
    found: dict[str, NodeState] = {node.id: node for node in rig.another().nodes()}

    stopped = found[waiting]
    assert (stopped.launched_at, stopped.ended_at) == (START + 100.0, START + 220.0)
    assert stopped.usd_per_hour < 0.03
    assert found[f"{name}~3"].phase == "requested"


def test_a_start_without_capacity_rents_a_new_node(rig: AwsRig) -> None:
    """The stopped node stays stopped, and a later order can start it."""
    name, waiting = a_stopped_one(rig)
    rig.fake.faults.plan("StartInstances", "error:InsufficientInstanceCapacity", times=1)
    outcome = started(rig, waiting)

    assert isinstance(outcome, Launched)
    assert not outcome.nodes[0].startswith(name)
    assert phases(rig.cloud)[waiting] == "stopped"
    assert [node.launched_by for node in rig.cloud.nodes() if node.id == waiting] == [""]
    assert started(rig, waiting, order="t3-launch-0") == Launched(nodes=(f"{name}~3",))


def test_a_start_whose_answer_was_lost_is_found_in_the_listing(rig: AwsRig) -> None:
    """No other node is rented, and the listing shows the order of the started node."""
    name, waiting = a_stopped_one(rig)
    rig.fake.faults.plan("StartInstances", "lost", times=1)
    outcome = started(rig, waiting)

    assert isinstance(outcome, Unknown)
    [node] = [node for node in rig.cloud.nodes() if node.ended_at is None]
    assert (node.id, node.launched_by) == (f"{name}~3", "t2-launch-0")


def test_the_same_order_starts_a_stopped_node_once(rig: AwsRig) -> None:
    """Its repetition rents no new node either."""
    name, waiting = a_stopped_one(rig)

    assert started(rig, waiting) == started(rig, waiting) == Launched(nodes=(f"{name}~3",))
    assert len(rig.fake.live()) == 1


def test_an_instance_that_another_person_starts_is_a_new_life(rig: AwsRig) -> None:
    """The listing bills it from its start, and BOA can end it."""
    name, waiting = a_stopped_one(rig)
    client = rig.cloud.calls._client("ec2:StartInstances", "")
    client.start_instances(InstanceIds=[name])
    rig.pass_time(100.0)

    found = {node.id: node for node in rig.cloud.nodes()}
    assert found[waiting].ended_at == START + 220.0
    assert (found[f"{name}~3"].phase, found[f"{name}~3"].launched_at) == ("ready", START + 220.0)
    assert rig.cloud.terminate(ends(f"{name}~3")) == {f"{name}~3": Accepted()}


def test_a_stopped_node_takes_no_quota_and_needs_a_lease(rig: AwsRig) -> None:
    """The sweep ends it only after its lease is over."""
    _, waiting = a_stopped_one(rig)
    assert rig.cloud._vcpus_in_use() == {}
    rig.pass_time(3600.0)
    rig.cloud.nodes()
    rig.cloud.renew([waiting])
    rig.pass_time(3600.0)
    rig.cloud.nodes()
    assert rig.cloud.sweep() == {}

    rig.cloud.renew([])
    rig.pass_time(7200.0)
    later = rig.another()
    later.nodes()
    assert len(later.sweep()) == 1
    assert rig.fake.live() == []


def test_a_stop_of_a_spot_node_terminates_it(rig: AwsRig) -> None:
    """EC2 refuses to stop one-time spot instances, so BOA does not try."""
    rig.fake.terms.spot_paths["g5.xlarge", "us-east-1a"] = [(START - 500.0, 0.4)]
    cloud = rig.another(market="spot")
    offer = next(o for o in cloud.offers() if (o.market, o.zone) == ("spot", "us-east-1a"))
    outcome = cloud.launch(a_launch(offer))
    assert isinstance(outcome, Launched)
    rig.pass_time(100.0)
    cloud.nodes()
    assert stop(rig, outcome.nodes[0], cloud) == Accepted()
    rig.pass_time(120.0)

    assert list(phases(cloud).values()) == ["terminated"]
    assert rig.fake.forbidden == []


def test_the_doctor_says_how_many_nodes_are_stopped_and_their_cost(rig: AwsRig) -> None:
    """More stopped nodes than the warm pool has room for give a warning."""
    a_stopped_one(rig)
    for room, status in ((1, "ok"), (0, "warning")):
        _, check = Doctor(rig.another(warm_pool_nodes=room), CATALOG, rig.clock)._pool()
        assert (check.status, check.said) == (status, f"1 of {room} stopped, $0.022/hour for their disks")
