"""`aws/instances/sweep.py`: a stopped instance without a daemon is found, ended or taken over, and billed."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import boto3
from aws_rigs import AwsRig, a_launch, ends

from boa_daemon.backends.aws.cloud import AwsCloud
from boa_daemon.backends.aws.instances.receipt import end_everything
from boa_daemon.backends.aws.instances.sweep import Sweeper
from boa_daemon.tick.facts.ports import Accepted, Launched
from boa_daemon.tick.money.ledger import bill

PRICE, DISK = 1.006, 200 * 0.08 / 730.0


def a_stopped_one(rig: AwsRig) -> str:
    """Return the name of a stopped instance whose daemon has died."""
    outcome = rig.cloud.launch(a_launch(rig.offer()))
    assert isinstance(outcome, Launched)
    rig.pass_time(100.0)
    rig.cloud.nodes()
    [order] = ends(*outcome.nodes)
    assert rig.cloud.terminate([replace(order, stops=True)])[order.node] == Accepted()
    rig.pass_time(120.0)
    assert [node.phase for node in rig.cloud.nodes()] == ["stopped", "terminated"]
    return order.node


def gone(rig: AwsRig) -> bool:
    """Return whether no instance lives and no disk is left."""
    volumes = rig.fake.backend("us-east-1").volumes.values()
    return rig.fake.live() == [] and not [each for each in volumes if each.status == "available"]


def sweeper(rig: AwsRig) -> Sweeper:
    """Return the sweeper that `boa gc` and `boa down --all` use."""
    return Sweeper(rig.settings, rig.another().calls, rig.clock)


def test_gc_ends_a_stopped_instance_only_after_its_lease_is_over(rig: AwsRig) -> None:
    name = a_stopped_one(rig)
    for _ in range(4):
        rig.pass_time(3600.0)
        rig.cloud.nodes()
        rig.cloud.renew([f"{name}~2"])
    assert [each.leak for each in sweeper(rig).find()] == [""]
    rig.pass_time(60.0 * rig.settings.lease_minutes + 200.0)
    leaks = [each for each in sweeper(rig).find() if each.leak]
    assert [each.id for each in leaks] == [name]
    receipt = end_everything(
        sweeper(rig), "us-east-1", clock=rig.clock, sleep=rig.pass_time, which=lambda each: bool(each.leak)
    )
    assert receipt.is_clean
    assert receipt.stopped_at is not None
    assert gone(rig)


def test_the_sweep_of_another_database_ends_it_after_its_lease(rig: AwsRig) -> None:
    """Before that, the other daemon neither lists nor ends the instance."""
    name = a_stopped_one(rig)
    other = AwsCloud(
        rig.settings,
        catalog=rig.cloud._catalog,
        clock=rig.clock,
        calls=rig.another().calls,
        ledger_id="other",
    )
    assert list(other.nodes()) == []
    assert other.sweep() == {}
    rig.pass_time(60.0 * rig.settings.lease_minutes + 200.0)
    other.nodes()
    assert list(other.sweep()) == [name]
    assert gone(rig)


def test_down_ends_a_stopped_instance_at_once_and_says_when_billing_stopped(rig: AwsRig) -> None:
    a_stopped_one(rig)
    receipt = end_everything(sweeper(rig), "us-east-1", clock=rig.clock, sleep=rig.pass_time)
    assert (receipt.is_clean, receipt.ended, receipt.left["instance"]) == (True, 1, 0)
    assert (receipt.of_warm_pool, receipt.row()["of_warm_pool"]) == (1, 1)
    assert receipt.stopped_at is not None
    assert gone(rig)


def test_a_recovered_database_takes_over_both_lives_of_an_instance(rig: AwsRig) -> None:
    """As in `boa recover`, a cloud without a ledger id lists every instance of the cluster."""
    name = a_stopped_one(rig)
    rig.pass_time(1800.0)
    listed = AwsCloud(rig.settings, catalog=rig.cloud._catalog, clock=rig.clock, calls=rig.another().calls)
    nodes = {node.id: node for node in listed.nodes()}
    assert {node: each.phase for node, each in nodes.items()} == {
        name: "terminated",
        f"{name}~2": "stopped",
    }
    ran, stopped = nodes[name], nodes[f"{name}~2"]
    assert ran.ended_at is not None
    hours = (ran.ended_at - ran.launched_at) / 3600.0
    assert abs(bill(ran, until=ran.ended_at) / 1e6 - hours * (PRICE + DISK + 0.005)) < 2e-6
    hours = (rig.clock.now() - stopped.launched_at) / 3600.0
    assert abs(bill(stopped, until=rig.clock.now()) / 1e6 - hours * DISK) < 2e-6

    daemon = AwsCloud(
        rig.settings, catalog=rig.cloud._catalog, clock=rig.clock, calls=rig.another().calls, ledger_id="new"
    )
    daemon.remember(nodes.values())
    assert {node.id: node.phase for node in daemon.nodes()}[f"{name}~2"] == "stopped"
    assert daemon.elsewhere() == ""
    again = daemon.launch(replace(a_launch(rig.offer(), name="t9"), starts=(f"{name}~2",)))
    assert isinstance(again, Launched)
    assert again.nodes == (f"{name}~3",)
    rig.pass_time(200.0)
    assert {node.id: node.phase for node in daemon.nodes()}[f"{name}~3"] == "ready"
    daemon.terminate(ends(f"{name}~3"))
    rig.pass_time(200.0)
    assert gone(rig)


def test_a_disk_that_was_just_made_is_no_leak_yet(rig: AwsRig) -> None:
    """It may be about to be attached; five minutes later it is a leak, and the sweep deletes it."""
    tags = [{"ResourceType": "volume", "Tags": [{"Key": "boa:cluster", "Value": "boa"}]}]
    ec2 = boto3.client("ec2", region_name="us-east-1")
    made = ec2.create_volume(AvailabilityZone="us-east-1a", Size=8, TagSpecifications=tags)["VolumeId"]
    volume = rig.fake.backend("us-east-1").volumes[made]
    volume.create_time = datetime.fromtimestamp(rig.clock.now(), UTC).replace(tzinfo=None)

    assert rig.cloud.sweep() == {}
    assert made in rig.fake.backend("us-east-1").volumes
    rig.pass_time(301.0)
    assert list(rig.cloud.sweep()) == [made]
    assert made not in rig.fake.backend("us-east-1").volumes
