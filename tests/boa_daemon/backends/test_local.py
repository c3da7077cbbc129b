"""`backends/local.py`: the local cloud has a fixed number of places, and a file remembers them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from boa_daemon.backends.local import LocalCloud
from boa_daemon.testing import ManualClock, an_instance_type
from boa_daemon.tick.facts.actions import LaunchNodes, TerminateNode
from boa_daemon.tick.facts.ports import Accepted, Launched, Refused


def test_a_local_cloud_launches_at_most_its_places_and_remembers_nodes(tmp_path: Path) -> None:
    """Of three nodes two are launched; another process reads the remaining node from the file."""
    clock, file = ManualClock(0.0), tmp_path / "nodes.json"
    cloud = LocalCloud(clock, most_nodes=2, file=file)
    launched = cloud.launch(LaunchNodes(id="l", instance_type=an_instance_type(gpus=2), count=3, reason=""))
    assert isinstance(launched, Launched)
    assert (len(launched.nodes), launched.short is not None) == (2, True)
    first, second = launched.nodes
    assert [node.is_idle for node in cloud.nodes()] == [True, True]

    clock.instant = 7.0
    assert cloud.terminate([TerminateNode(id="t", node=second, reason="")]) == {second: Accepted()}
    assert [(node.id, node.ended_at) for node in cloud.nodes()] == [(first, None), (second, 7.0)]
    again = LocalCloud(clock, most_nodes=2, file=file)
    assert [node.id for node in again.nodes()] == [first]


def test_a_rehearsed_end_takes_the_node_two_minutes_later(tmp_path: Path) -> None:
    """The end also happens in another process that reads the file."""
    clock, file = ManualClock(0.0), tmp_path / "nodes.json"
    cloud = LocalCloud(clock, most_nodes=1, file=file)
    cloud.launch(LaunchNodes(id="l", instance_type=an_instance_type(), count=1, reason=""))
    assert cloud.rehearse_end("local-1") == 120.0
    again = LocalCloud(clock, most_nodes=1, file=file)
    assert [node.ends_by for node in again.nodes()] == [120.0]
    clock.instant = 150.0
    assert [(node.id, node.ended_at) for node in again.nodes()] == [("local-1", 120.0)]
    assert list(again.nodes()) == []
    assert again.rehearse_end("local-1") is None


def test_a_local_cloud_boots_nodes_and_refuses_a_gang_that_does_not_fit() -> None:
    """The same order twice launches its nodes once."""
    clock = ManualClock(0.0)
    cloud = LocalCloud(clock, most_nodes=2, boot_seconds=5.0)
    gang = LaunchNodes(id="g", instance_type=an_instance_type(), count=3, is_gang=True, reason="")
    assert isinstance(cloud.launch(gang), Refused)
    order = replace(gang, id="h", count=2)
    assert cloud.launch(order) == cloud.launch(order)
    assert [node.phase for node in cloud.nodes()] == ["requested"] * 2

    clock.instant = 5.0
    assert [node.phase for node in cloud.nodes()] == ["ready"] * 2
    assert cloud.offers() == ()
