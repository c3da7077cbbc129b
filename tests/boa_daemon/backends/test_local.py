"""The local cloud: places on this machine, gangs, boots, and what a file remembers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from boa_daemon.backends.local import LocalCloud
from boa_daemon.testing import ManualClock, an_instance_type
from boa_daemon.tick.actions import LaunchNodes, TerminateNode
from boa_daemon.tick.ports import Accepted, Launched, Refused


def test_places_are_taken_given_back_and_remembered(tmp_path: Path) -> None:
    """Two places for three nodes: two come. One is given back; another process knows what is left."""
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


def test_a_place_is_taken_back_as_announced(tmp_path: Path) -> None:
    """Two minutes after the word, also where the process that heard it has died meanwhile."""
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


def test_a_local_cloud_boots_and_takes_gangs_whole() -> None:
    """A gang of three does not fit in two places; the same order twice is one order."""
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
