"""What every cloud keeps, whichever it is: simulated, AWS in process, AWS over sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from aws_rigs import START, a_launch, a_rig, ends
from worlds import run_until

from boa_daemon.clock import VirtualClock
from boa_daemon.sim.cloud import SimulatedCloud
from boa_daemon.sim.draws import Draws
from boa_daemon.sim.events import EventQueue
from boa_daemon.sim.market import Shelves
from boa_daemon.sim.settings import WorldSettings
from boa_daemon.testing import an_instance_type
from boa_daemon.tick.actions import LaunchNodes, TerminateNode
from boa_daemon.tick.ports import Accepted, Cloud, Launched, Refused

BOOT_SECONDS = 90.0


@dataclass(slots=True)
class Subject:
    """A cloud under test, and how to let time pass in it."""

    cloud: Cloud
    now: Callable[[], float]
    pass_time: Callable[[float], None]
    launch: Callable[..., LaunchNodes]
    stock_out: Callable[[], None]


@pytest.fixture(params=["simulated", "process", "server"])
def subject(request: pytest.FixtureRequest) -> Iterator[Subject]:
    """Each cloud in turn."""
    if request.param == "simulated":
        yield _simulated()
        return
    with a_rig(request.param) as rig:
        offer = rig.offer()

        def stock_out() -> None:
            for zone in ("us-east-1a", "us-east-1b"):
                rig.fake.terms.stock["g5.xlarge", zone, "on-demand"] = 0

        yield Subject(
            rig.cloud,
            rig.clock.now,
            rig.pass_time,
            lambda *given, **named: a_launch(offer, *given, **named),
            stock_out,
        )


def _simulated() -> Subject:
    """Return the simulator's cloud; it is out of stock from half an hour on."""
    clock = VirtualClock(START)
    events = EventQueue()
    world = WorldSettings()
    cloud = SimulatedCloud(
        clock,
        events,
        shelves=Shelves(world, (an_instance_type(),), seed=0, start=START),
        draws=Draws(world, boot_seconds=BOOT_SECONDS, seed=0),
        wants_tick=lambda: None,
        outages=[(START + 1800.0, START + 3600.0)],
    )

    def pass_time(seconds: float) -> None:
        run_until(clock, events, clock.now() + seconds)

    def launch(count: int = 1, *, name: str = "t1-launch-0", is_gang: bool = False) -> LaunchNodes:
        return LaunchNodes(
            id=name, instance_type=an_instance_type(), count=count, is_gang=is_gang, reason="test"
        )

    return Subject(cloud, clock.now, pass_time, launch, lambda: pass_time(1800.0))


def nodes_of(subject: Subject) -> dict[str, Any]:
    """Return the listing by id."""
    return {node.id: node for node in subject.cloud.nodes()}


def test_begins_empty(subject: Subject) -> None:
    """Nothing is ours before anything was launched."""
    assert list(subject.cloud.nodes()) == []


def test_launched_nodes_are_requested_then_ready(subject: Subject) -> None:
    """They bear the id of their action, and are idle once they have booted."""
    outcome = subject.cloud.launch(subject.launch(2, name="t7-launch-0"))

    assert isinstance(outcome, Launched)
    assert len(set(outcome.nodes)) == 2
    nodes = nodes_of(subject)
    assert [nodes[name].phase for name in outcome.nodes] == ["requested"] * 2
    assert {nodes[name].launched_by for name in outcome.nodes} == {"t7-launch-0"}
    subject.pass_time(BOOT_SECONDS + 1.0)
    assert [nodes_of(subject)[name].is_idle for name in outcome.nodes] == [True, True]


def test_ended_nodes_are_shown_with_their_end(subject: Subject) -> None:
    """At least once, and the end is not before the launch."""
    outcome = subject.cloud.launch(subject.launch())
    assert isinstance(outcome, Launched)
    subject.pass_time(BOOT_SECONDS + 1.0)
    subject.cloud.nodes()
    asked_at = subject.now()
    said = subject.cloud.terminate(ends(*outcome.nodes))
    assert said == {outcome.nodes[0]: Accepted()}
    for _ in range(3):
        node = nodes_of(subject).get(outcome.nodes[0])
        if node is not None and node.ended_at is not None:
            assert node.ended_at == pytest.approx(asked_at, abs=1.0)
            assert node.phase == "terminated"
            return
        subject.pass_time(60.0)
    pytest.fail("the end was never shown")


def test_ending_twice_is_accepted(subject: Subject) -> None:
    """What is gone already is accepted, without a second end."""
    outcome = subject.cloud.launch(subject.launch())
    assert isinstance(outcome, Launched)
    subject.cloud.nodes()
    subject.cloud.terminate(ends(*outcome.nodes))
    subject.pass_time(120.0)
    subject.cloud.nodes()

    assert subject.cloud.terminate(ends(*outcome.nodes)) == {outcome.nodes[0]: Accepted()}


def test_without_stock_nothing_is_launched(subject: Subject) -> None:
    """A refusal is a value that says so, and changes nothing."""
    subject.stock_out()

    outcome = subject.cloud.launch(subject.launch(3, is_gang=True))

    assert isinstance(outcome, Refused)
    assert outcome.kind == "no-capacity"
    assert [node for node in subject.cloud.nodes() if node.ended_at is None] == []


def test_every_order_to_end_has_an_answer(subject: Subject) -> None:
    """One outcome per node, whatever they are."""
    outcome = subject.cloud.launch(subject.launch(2))
    assert isinstance(outcome, Launched)
    subject.cloud.nodes()
    orders: list[TerminateNode] = ends(*outcome.nodes)

    assert set(subject.cloud.terminate(orders)) == set(outcome.nodes)
