"""Throttled requests and lost answers of the simulated cloud."""

from __future__ import annotations

from worlds import a_simulated_cloud

from boa_daemon.clock import VirtualClock
from boa_daemon.sim.cloud_api import CloudApi
from boa_daemon.sim.draws import Draws
from boa_daemon.sim.event_queue import EventQueue
from boa_daemon.sim.world_settings import Faults, WorldSettings
from boa_daemon.testing import an_instance_type
from boa_daemon.tick.facts.actions import LaunchNodes, TerminateNode
from boa_daemon.tick.facts.ports import Launched, Refused, Unknown


def an_api(faults: Faults) -> tuple[CloudApi, EventQueue]:
    """Return a cloud API with faults, and its event queue."""
    events = EventQueue()
    world = WorldSettings(faults=faults)
    cloud = a_simulated_cloud(VirtualClock(), events, world=world)
    return CloudApi(cloud, Draws(world, boot_seconds=0.0, seed=0)), events


def launch(number: int) -> LaunchNodes:
    """Return an order for one node."""
    return LaunchNodes(id=f"l{number}", instance_type=an_instance_type(), reason="test")


def test_about_half_of_the_launches_with_a_lost_answer_are_carried_out() -> None:
    """A repeated order returns the node that was launched."""
    api, events = an_api(Faults(lost_answer_fraction=0.999))
    outcomes = [api.launch(launch(number)) for number in range(200)]
    assert all(isinstance(outcome, Unknown) for outcome in outcomes)
    live = {node.launched_by: node.id for node in api.nodes()}
    assert 70 <= len(live) <= 130

    for name, node in live.items():
        assert api.launch(launch(int(name[1:]))) == Launched(nodes=(node,))
    assert len(api.nodes()) == len(live)
    assert events.next_at is not None


def test_a_throttled_request_changes_nothing() -> None:
    """A throttled launch may be repeated after 5 seconds."""
    api, _ = an_api(Faults(throttled_fraction=0.999))
    outcome = api.launch(launch(1))

    assert isinstance(outcome, Refused)
    assert (outcome.kind, outcome.retry_after_seconds, len(api.nodes())) == ("throttled", 5.0, 0)
    ended = api.terminate([TerminateNode(id="t", node="n1", reason="test")])
    assert isinstance(ended["n1"], Refused)


def test_some_terminations_with_a_lost_answer_are_carried_out() -> None:
    """Every node that still lives had a lost answer, and some nodes with a lost answer have ended."""
    api, _ = an_api(Faults(lost_answer_fraction=0.5))
    for number in range(100):
        api.launch(launch(number))
    before = [node.id for node in api.nodes()]
    outcomes = {
        name: outcome
        for node in before
        for name, outcome in api.terminate([TerminateNode(id=node, node=node, reason="test")]).items()
    }
    left = {node.id for node in api.nodes() if node.ended_at is None}

    lost = {name for name, outcome in outcomes.items() if isinstance(outcome, Unknown)}
    assert left < lost
