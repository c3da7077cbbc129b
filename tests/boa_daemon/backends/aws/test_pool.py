"""Stops and starts on EC2 that fail, are lost, or were another's: nothing is forgotten or billed twice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from aws_rigs import CATALOG, START, AwsRig, a_launch, a_rig, ends

from boa_daemon.backends.aws.cloud import AwsCloud
from boa_daemon.backends.aws.doctor import Doctor
from boa_daemon.tick.ports import Accepted, Launched, Unknown
from boa_daemon.tick.state import NodeState

ZONE = ("g5.xlarge", "us-east-1a", "on-demand")


@pytest.fixture
def rig() -> Iterator[AwsRig]:
    """AWS in process."""
    with a_rig("process") as made:
        yield made


def ready(rig: AwsRig, order: str = "t1-launch-0") -> str:
    """Launch a node and return its name once it is ready."""
    outcome = rig.cloud.launch(a_launch(rig.offer(), name=order))
    assert isinstance(outcome, Launched)
    rig.pass_time(100.0)
    rig.cloud.nodes()
    return outcome.nodes[0]


def stop(rig: AwsRig, name: str, cloud: AwsCloud | None = None) -> object:
    """Order a stop and return what is said."""
    [order] = ends(name)
    return (cloud or rig.cloud).terminate([replace(order, stops=True)])[name]


def phases(cloud: AwsCloud) -> dict[str, str]:
    """Return the phase of each life in the listing."""
    return {node.id: node.phase for node in cloud.nodes()}


def a_stopped_one(rig: AwsRig) -> tuple[str, str]:
    """Return the two lives of an instance that is stopped."""
    name = ready(rig)
    assert stop(rig, name) == Accepted()
    rig.pass_time(120.0)
    assert phases(rig.cloud) == {name: "terminated", f"{name}~2": "stopped"}
    return name, f"{name}~2"


def started(rig: AwsRig, name: str, *, order: str = "t2-launch-0", count: int = 1) -> object:
    """Launch with a stopped node to start first."""
    return rig.cloud.launch(replace(a_launch(rig.offer(), count, name=order), starts=(name,)))


def test_a_stop_that_was_cut_off_is_finished(rig: AwsRig) -> None:
    """The tag was written and the process died: the next one stops the node, which no job gets meanwhile."""
    name = ready(rig)
    rig.fake.faults.plan("StopInstances", "error:InternalError", times=1)
    assert isinstance(stop(rig, name), Unknown)
    assert phases(rig.cloud) == {name: "terminating"}

    later = rig.another()
    assert phases(later) == {name: "terminating"}
    rig.pass_time(120.0)
    assert phases(later)[f"{name}~2"] == "stopped"


def test_what_ec2_does_not_stop_is_ended(rig: AwsRig) -> None:
    """At once where it refuses; and after five minutes where it never does."""
    name = ready(rig)
    rig.fake.faults.plan("StopInstances", "error:IncorrectInstanceState", times=1)
    assert stop(rig, name) == Accepted()
    rig.pass_time(120.0)
    assert phases(rig.cloud) == {name: "terminated"}

    name = ready(rig, "t2-launch-0")
    rig.fake.faults.plan("StopInstances", "error:InternalError", times=100)
    assert isinstance(stop(rig, name), Unknown)
    for _ in range(9):
        rig.pass_time(60.0)
        found = phases(rig.cloud)
    assert found[name] == "terminated"
    assert any("still runs: it is ended" in said for said in rig.said)


@pytest.mark.parametrize("is_remembered", [True, False])
def test_a_restart_bills_every_life_as_it_was(rig: AwsRig, is_remembered: bool) -> None:
    """Whether the new process knows the run from its books, or only what EC2 and the tags say."""
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


def test_a_restart_right_after_a_start_bills_the_stop_by_its_tag(rig: AwsRig) -> None:
    """EC2 forgets when it was stopped; the tag does not."""
    name, waiting = a_stopped_one(rig)
    started(rig, waiting)
    found: dict[str, NodeState] = {node.id: node for node in rig.another().nodes()}

    stopped = found[waiting]
    assert (stopped.launched_at, stopped.ended_at) == (START + 100.0, START + 220.0)
    assert stopped.usd_per_hour < 0.03
    assert found[f"{name}~3"].phase == "requested"


def test_where_a_start_has_no_room_a_new_node_is_rented(rig: AwsRig) -> None:
    """In the same order; the stopped one stays what it was, and is started another time."""
    name, waiting = a_stopped_one(rig)
    rig.fake.faults.plan("StartInstances", "error:InsufficientInstanceCapacity", times=1)
    outcome = started(rig, waiting)

    assert isinstance(outcome, Launched)
    assert not outcome.nodes[0].startswith(name)
    assert phases(rig.cloud)[waiting] == "stopped"
    assert [node.launched_by for node in rig.cloud.nodes() if node.id == waiting] == [""]
    assert started(rig, waiting, order="t3-launch-0") == Launched(nodes=(f"{name}~3",))


def test_a_start_without_an_answer_counts_until_it_is_seen(rig: AwsRig) -> None:
    """It was carried out: nothing else is rented for it, and the listing shows it with its order."""
    name, waiting = a_stopped_one(rig)
    rig.fake.faults.plan("StartInstances", "lost", times=1)
    outcome = started(rig, waiting)

    assert isinstance(outcome, Unknown)
    [node] = [node for node in rig.cloud.nodes() if node.ended_at is None]
    assert (node.id, node.launched_by) == (f"{name}~3", "t2-launch-0")


def test_the_same_order_starts_nothing_twice(rig: AwsRig) -> None:
    """Nor does it rent what was started already anew."""
    name, waiting = a_stopped_one(rig)

    assert started(rig, waiting) == started(rig, waiting) == Launched(nodes=(f"{name}~3",))
    assert len(rig.fake.live()) == 1


def test_what_a_stranger_starts_is_a_life_of_its_own(rig: AwsRig) -> None:
    """It costs, so it is listed and billed from its start on; and it can be given back."""
    name, waiting = a_stopped_one(rig)
    client = rig.cloud.calls._client("ec2:StartInstances", "")
    client.start_instances(InstanceIds=[name])
    rig.pass_time(100.0)

    found = {node.id: node for node in rig.cloud.nodes()}
    assert found[waiting].ended_at == START + 220.0
    assert (found[f"{name}~3"].phase, found[f"{name}~3"].launched_at) == ("ready", START + 220.0)
    assert rig.cloud.terminate(ends(f"{name}~3")) == {f"{name}~3": Accepted()}


def test_what_is_stopped_is_renewed_and_takes_no_quota(rig: AwsRig) -> None:
    """It is no leak while a daemon wants it, and one once its lease is over."""
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


def test_a_spot_node_is_ended_whatever_is_ordered(rig: AwsRig) -> None:
    """EC2 would refuse to stop it; it is not even asked."""
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


def test_the_doctor_says_what_is_stopped(rig: AwsRig) -> None:
    """And what its disks cost; more than there is room for is worth a warning."""
    a_stopped_one(rig)
    for room, status in ((1, "ok"), (0, "warning")):
        _, check = Doctor(rig.another(warm_pool_nodes=room), CATALOG, rig.clock)._pool()
        assert (check.status, check.said) == (status, f"1 of {room} stopped, 0.0219 USD/hour for their disks")
