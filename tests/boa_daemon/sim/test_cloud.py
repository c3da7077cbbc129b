"""A cloud that boots and bills."""

from __future__ import annotations

from boa_daemon.actions import LaunchNodes, TerminateNode
from boa_daemon.clock import VirtualClock
from boa_daemon.ports import Accepted, Launched, Refused
from boa_daemon.sim.cloud import SimulatedCloud
from boa_daemon.sim.events import EventQueue
from boa_daemon.testing import an_instance_type, some_slots

LAUNCH = LaunchNodes(id="t1-launch", instance_type=an_instance_type(), reason="needed")


def a_cloud() -> tuple[VirtualClock, EventQueue, SimulatedCloud, list[str]]:
    """Return a cloud that boots in 100 s, and a list that fills when nodes are ready."""
    clock, events, ready = VirtualClock(), EventQueue(), list[str]()
    cloud = a_simulated_cloud(clock, events, boot_seconds=100.0, wants_tick=lambda: ready.append("ready"))
    return clock, events, cloud, ready


def stop(node: str) -> TerminateNode:
    """Return the order to terminate a node."""
    return TerminateNode(id=f"stop-{node}", node=node, reason="idle")


def test_a_node_is_requested_then_ready_after_its_boot() -> None:
    """Requested at 0, ready and idle at 100 s; the tick is told."""
    clock, events, cloud, ready = a_cloud()
    assert cloud.launch(LAUNCH) == Launched(nodes=("n1",))
    assert [(node.phase, node.launched_by) for node in cloud.nodes()] == [("requested", "t1-launch")]

    clock.advance_to(100.0)
    events.happen(100.0)

    assert [(node.phase, node.idle_since) for node in cloud.nodes()] == [("ready", 100.0)]
    assert ready == ["ready"]


def test_gpus_are_held_by_one_job_at_a_time_on_ready_nodes_only() -> None:
    """Before the boot nothing is held; afterwards a GPU is held once, and all or none of a request."""
    clock, events, cloud, _ = a_cloud()
    cloud.launch(LAUNCH)
    assert not cloud.hold("a", some_slots("n1", 0))
    clock.advance_to(100.0)
    events.happen(100.0)

    assert cloud.hold("a", some_slots("n1", 0, 1))
    assert not cloud.hold("b", some_slots("n1", 1, 2))
    assert cloud.nodes()[0].gpus == ("a", "a", None, None)
    assert cloud.terminate([stop("n1")]) == {"n1": Refused(reason="jobs run on n1")}


def test_a_node_is_idle_from_the_moment_its_last_job_left() -> None:
    """Idle since 100, busy, idle again since 150."""
    clock, events, cloud, _ = a_cloud()
    cloud.launch(LAUNCH)
    clock.advance_to(100.0)
    events.happen(100.0)
    cloud.hold("a", some_slots("n1", 0))
    assert cloud.nodes()[0].idle_since is None
    clock.advance_to(150.0)
    cloud.free(some_slots("n1", 0))
    assert cloud.nodes()[0].idle_since == 150.0


def test_the_meter_runs_from_launch_to_end_and_counts_the_boot() -> None:
    """250 s of four GPUs at 4 USD per hour, 100 s of them booting."""
    clock, events, cloud, _ = a_cloud()
    cloud.launch(LAUNCH)
    clock.advance_to(250.0)
    events.happen(250.0)

    assert cloud.terminate([stop("n1")]) == {"n1": Accepted()}

    assert (cloud.meter.rented_gpu_seconds, cloud.meter.booting_gpu_seconds) == (1000.0, 400.0)
    assert cloud.meter.micro_dollars == round(4e6 * 250 / 3600)


def test_an_ended_node_is_listed_once_and_may_be_ended_again() -> None:
    """The last listing carries the end, on which the bill rests."""
    clock, _, cloud, _ = a_cloud()
    cloud.launch(LAUNCH)
    clock.advance_to(10.0)
    cloud.close()

    assert [(node.phase, node.ended_at) for node in cloud.nodes()] == [("terminated", 10.0)]
    assert cloud.nodes() == []
    assert cloud.terminate([stop("n1")]) == {"n1": Accepted()}


def test_a_node_that_ended_while_booting_never_gets_ready() -> None:
    """Its boot event is void."""
    clock, events, cloud, ready = a_cloud()
    cloud.launch(LAUNCH)
    cloud.terminate([stop("n1")])
    clock.advance_to(100.0)
    events.happen(100.0)

    assert ready == []
