"""The contract of clouds: the simulator, the cloud in a file, this machine, AWS in process, AWS over sockets.

Only the controller rents from the simulator's cloud. The daemon rents from the others as well (`Provider`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest
from aws_rigs import START, ManualClock, a_launch, a_rig, ends
from worlds import run_until

from boa_daemon.clock import VirtualClock
from boa_daemon.daemon.loop.assembly import CLOUDS
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.sim.capacity_pools import CapacityPools
from boa_daemon.sim.draws import Draws
from boa_daemon.sim.event_queue import EventQueue
from boa_daemon.sim.simulated_cloud import SimulatedCloud
from boa_daemon.sim.world_settings import WorldSettings
from boa_daemon.testing import an_instance_type
from boa_daemon.tick.facts.actions import LaunchNodes, TerminateNode
from boa_daemon.tick.facts.node_lives import next_life
from boa_daemon.tick.facts.ports import Accepted, Cloud, Launched, Provider, Refused
from boa_daemon.tick.money.ledger import bill

BOOT_SECONDS = 90.0


@dataclass(slots=True)
class Subject:
    """A cloud under test, and functions that advance its time and empty its stock."""

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
    """Return the simulator's cloud; it is out of stock half an hour after the start."""
    clock = VirtualClock(START)
    events = EventQueue()
    world = WorldSettings()
    cloud = SimulatedCloud(
        clock,
        events,
        shelves=CapacityPools(world, (an_instance_type(),), seed=0, start=START),
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
    """Return the listed nodes by id."""
    return {node.id: node for node in subject.cloud.nodes()}


def test_a_new_cloud_lists_no_nodes(subject: Subject) -> None:
    """The listing is empty before the first launch."""
    assert list(subject.cloud.nodes()) == []


def test_launched_nodes_are_requested_then_ready(subject: Subject) -> None:
    """Launched nodes carry the id of their action, and are idle once they have booted."""
    outcome = subject.cloud.launch(subject.launch(2, name="t7-launch-0"))

    assert isinstance(outcome, Launched)
    assert len(set(outcome.nodes)) == 2
    nodes = nodes_of(subject)
    assert [nodes[name].phase for name in outcome.nodes] == ["requested"] * 2
    assert {nodes[name].launched_by for name in outcome.nodes} == {"t7-launch-0"}
    subject.pass_time(BOOT_SECONDS + 1.0)
    assert [nodes_of(subject)[name].is_idle for name in outcome.nodes] == [True, True]


def test_ended_nodes_are_shown_with_their_end(subject: Subject) -> None:
    """An ended node is listed at least once as terminated, with the instant of its end."""
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
    """Ending a node that is already gone is accepted, and the listing keeps the first end."""
    outcome = subject.cloud.launch(subject.launch())
    assert isinstance(outcome, Launched)
    subject.cloud.nodes()
    subject.cloud.terminate(ends(*outcome.nodes))
    subject.pass_time(120.0)
    first = nodes_of(subject)[outcome.nodes[0]].ended_at
    assert first is not None

    assert subject.cloud.terminate(ends(*outcome.nodes)) == {outcome.nodes[0]: Accepted()}
    subject.pass_time(60.0)
    again = nodes_of(subject).get(outcome.nodes[0])  # A cloud need not list an ended node for ever.
    assert again is None or again.ended_at == first


@pytest.mark.first_set(1)
def test_without_stock_nothing_is_launched(subject: Subject) -> None:
    """A launch without stock is refused with the kind "no-capacity" and leaves no node."""
    subject.stock_out()

    outcome = subject.cloud.launch(subject.launch(3, is_gang=True))

    assert isinstance(outcome, Refused)
    assert outcome.kind == "no-capacity"
    assert [node for node in subject.cloud.nodes() if node.launched_by == subject.launch().id] == []


def test_every_order_to_end_has_an_answer(subject: Subject) -> None:
    """`terminate` returns one outcome per node."""
    outcome = subject.cloud.launch(subject.launch(2))
    assert isinstance(outcome, Launched)
    subject.cloud.nodes()
    orders: list[TerminateNode] = ends(*outcome.nodes)

    assert set(subject.cloud.terminate(orders)) == set(outcome.nodes)


@pytest.mark.parametrize("subject", PROVIDERS, indirect=True)
def test_a_new_cloud_serves_every_call_of_the_daemon(subject: Subject) -> None:
    """A new cloud has no leaks, ages that are unknown or not negative, and can be closed twice."""
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
def test_a_remembered_node_is_listed_once_and_not_swept(subject: Subject) -> None:
    """Nodes that were remembered are listed once, are no leaks, and go on running."""
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


@dataclass(frozen=True, slots=True)
class Stopped:
    """A node that was stopped: the id of its run, and the id of its life on disk."""

    run: str
    life: str


def stopped(subject: Subject, name: str = "t1-launch-0") -> Stopped:
    """Launch a node, stop it once it is ready, and return both of its lives."""
    outcome = subject.cloud.launch(subject.launch(name=name))
    assert isinstance(outcome, Launched)
    subject.pass_time(BOOT_SECONDS + 1.0)
    subject.cloud.nodes()
    [order] = ends(*outcome.nodes)
    assert subject.cloud.terminate([replace(order, stops=True)]) == {order.node: Accepted()}
    subject.pass_time(120.0)
    return Stopped(order.node, next_life(order.node))


STOPPING = ("simulated", "file", "process", "server")


@pytest.mark.parametrize("subject", STOPPING, indirect=True)
def test_a_stopped_node_costs_only_its_disk(subject: Subject) -> None:
    """The run ends with the stop, and a new life begins that costs only the disk."""
    names = stopped(subject)
    asked_at = subject.now() - 120.0
    nodes = nodes_of(subject)

    assert nodes[names.run].phase == "terminated"
    assert nodes[names.run].ended_at == pytest.approx(asked_at, abs=1.0)
    waiting = nodes[names.life]
    assert (waiting.phase, waiting.ended_at, waiting.gpus, waiting.launched_by) == ("stopped", None, (), "")
    assert waiting.launched_at == pytest.approx(asked_at, abs=1.0)
    assert [kind for kind, _ in waiting.extras] == ["disk"]
    assert 0.0 < waiting.usd_per_hour < 0.05
    assert bill(waiting, until=waiting.launched_at + 3600.0) == round(1e6 * waiting.usd_per_hour)


@pytest.mark.parametrize("subject", STOPPING, indirect=True)
def test_a_launch_starts_stopped_nodes_and_rents_the_rest(subject: Subject) -> None:
    """A launch of two nodes starts the stopped node, as a third life, and rents one more."""
    names = stopped(subject)
    subject.cloud.nodes()
    order = replace(subject.launch(2, name="t2-launch-0"), starts=(names.life,))
    outcome = subject.cloud.launch(order)

    assert isinstance(outcome, Launched)
    assert outcome.nodes[0] == next_life(names.life)
    assert len(set(outcome.nodes)) == 2
    started_at = subject.now()
    nodes = nodes_of(subject)
    assert nodes[names.life].ended_at == pytest.approx(started_at, abs=1.0)
    again = nodes[outcome.nodes[0]]
    assert (again.phase, again.launched_by) == ("requested", "t2-launch-0")
    assert again.launched_at == pytest.approx(started_at, abs=1.0)
    assert again.usd_per_hour > 0.5
    subject.pass_time(BOOT_SECONDS + 1.0)
    assert all(nodes_of(subject)[name].is_idle for name in outcome.nodes)
    assert {name for name, node in nodes_of(subject).items() if node.ended_at is None} == set(outcome.nodes)


@pytest.mark.parametrize("subject", STOPPING, indirect=True)
def test_a_stopped_node_can_be_ended(subject: Subject) -> None:
    """The ended node is gone and no longer billed."""
    names = stopped(subject)
    subject.cloud.nodes()
    assert subject.cloud.terminate(ends(names.life)) == {names.life: Accepted()}
    subject.pass_time(120.0)

    assert nodes_of(subject)[names.life].ended_at == pytest.approx(subject.now() - 120.0, abs=1.0)
    assert [node for node in subject.cloud.nodes() if node.ended_at is None] == []


@pytest.mark.parametrize("subject", ["this machine"], indirect=True)
def test_a_cloud_that_cannot_stop_nodes_ends_them(subject: Subject) -> None:
    """An order to stop gives the node back."""
    names = stopped(subject)

    assert [node.id for node in subject.cloud.nodes() if node.ended_at is None] == []
    assert names.run != names.life
