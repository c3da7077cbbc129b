"""What every cloud keeps: the simulator's, one in a file, this machine, AWS in process, AWS over sockets.

The simulator's is rented from by the controller alone; the others also by the daemon (`Provider`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from aws_rigs import START, ManualClock, a_launch, a_rig, ends
from worlds import run_until

from boa_daemon.clock import VirtualClock
from boa_daemon.daemon.assembly import CLOUDS
from boa_daemon.daemon.config import Settings
from boa_daemon.sim.cloud import SimulatedCloud
from boa_daemon.sim.draws import Draws
from boa_daemon.sim.events import EventQueue
from boa_daemon.sim.market import Shelves
from boa_daemon.sim.settings import WorldSettings
from boa_daemon.testing import an_instance_type
from boa_daemon.tick.actions import LaunchNodes, TerminateNode
from boa_daemon.tick.ports import Accepted, Cloud, Launched, Provider, Refused

BOOT_SECONDS = 90.0


@dataclass(slots=True)
class Subject:
    """A cloud under test, and how to let time pass in it."""

    cloud: Cloud
    now: Callable[[], float]
    pass_time: Callable[[float], None]
    launch: Callable[..., LaunchNodes]
    stock_out: Callable[[], None]


PROVIDERS = ("file", "this machine", "process", "server")


@pytest.fixture(params=["simulated", *PROVIDERS])
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Subject]:
    """Each cloud in turn."""
    if request.param == "simulated":
        yield _simulated()
        return
    if request.param in ("file", "this machine"):
        yield _here(request.param, tmp_path)
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


def _here(name: str, folder: Path) -> Subject:
    """Return a cloud that the daemon opens without an account; it has room for eight nodes."""
    clock = ManualClock(START)
    settings = Settings.model_validate({"cloud": {"boot_seconds": BOOT_SECONDS, "stock": 8}})
    cloud = CLOUDS["simulated" if name == "file" else "local"](settings, folder, clock, "")

    def pass_time(seconds: float) -> None:
        clock.instant += seconds

    def stock_out() -> None:
        taken = cloud.launch(a_launch(None, 8, name="t1-launch-all"))
        assert isinstance(taken, Launched)

    return Subject(
        cloud, clock.now, pass_time, lambda *given, **named: a_launch(None, *given, **named), stock_out
    )


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
    assert [node for node in subject.cloud.nodes() if node.launched_by == subject.launch().id] == []


def test_every_order_to_end_has_an_answer(subject: Subject) -> None:
    """One outcome per node, whatever they are."""
    outcome = subject.cloud.launch(subject.launch(2))
    assert isinstance(outcome, Launched)
    subject.cloud.nodes()
    orders: list[TerminateNode] = ends(*outcome.nodes)

    assert set(subject.cloud.terminate(orders)) == set(outcome.nodes)


@pytest.mark.parametrize("subject", PROVIDERS, indirect=True)
def test_the_daemon_may_look_after_it_at_any_time(subject: Subject) -> None:
    """A new cloud is warned of nothing, has no leaks, and says of each fact how old it is."""
    provider = provider_of(subject)
    provider.remember([])
    provider.listen(lambda: None)
    provider.refresh()
    assert provider.sweep() == {}
    assert all(age is None or age >= 0.0 for age in provider.ages().values())
    assert provider.boot_seconds is None or provider.boot_seconds > 0.0
    provider.close()
    provider.close()


@pytest.mark.parametrize("subject", PROVIDERS, indirect=True)
def test_what_is_known_is_no_leak_and_is_billed_once(subject: Subject) -> None:
    """A node that was remembered is listed once, and neither swept nor ended when the daemon stops."""
    provider = provider_of(subject)
    provider.launch(subject.launch(2))
    before = provider.nodes()
    assert len(before) == 2
    provider.remember(before)
    assert provider.sweep() == {}
    assert [node.id for node in provider.nodes()] == [node.id for node in before]
    assert all(node.ended_at is None for node in provider.nodes())


def provider_of(subject: Subject) -> Provider:
    """Return the cloud as the daemon sees it."""
    return cast(Provider, subject.cloud)
