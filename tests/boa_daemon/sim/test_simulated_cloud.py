"""The simulated cloud: boots, bills, spot interruptions and faults."""

from __future__ import annotations

import pytest
from worlds import a_simulated_cloud, run_until

from boa_daemon.clock import VirtualClock
from boa_daemon.sim.event_queue import EventQueue
from boa_daemon.sim.simulated_cloud import SimulatedCloud
from boa_daemon.sim.world_settings import Boot, Faults, Spot, Stock, WorldSettings
from boa_daemon.testing import an_instance_type, some_slots
from boa_daemon.tick.facts.actions import LaunchNodes, TerminateNode
from boa_daemon.tick.facts.ports import Accepted, Launched, Refused

LAUNCH = LaunchNodes(id="t1-launch", instance_type=an_instance_type(), reason="needed")


def a_cloud(
    world: WorldSettings | None = None,
) -> tuple[VirtualClock, EventQueue, SimulatedCloud, list[str]]:
    """Return a cloud that boots in 100 s, and a list that gets an entry for each requested tick."""
    clock, events, ready = VirtualClock(), EventQueue(), list[str]()
    cloud = a_simulated_cloud(
        clock, events, world=world, boot_seconds=100.0, wants_tick=lambda: ready.append("ready")
    )
    return clock, events, cloud, ready


def stop(node: str) -> TerminateNode:
    """Return the order to terminate a node."""
    return TerminateNode(id=f"stop-{node}", node=node, reason="idle")


def test_a_node_is_requested_then_ready_after_its_boot() -> None:
    """It is ready and idle at 100 s, which asks for a tick."""
    clock, events, cloud, ready = a_cloud()
    assert cloud.launch(LAUNCH) == Launched(nodes=("n1",))
    assert [(node.phase, node.launched_by) for node in cloud.nodes()] == [("requested", "t1-launch")]

    clock.advance_to(100.0)
    events.happen(100.0)

    assert [(node.phase, node.idle_since) for node in cloud.nodes()] == [("ready", 100.0)]
    assert ready == ["ready"]


def test_gpus_are_held_by_one_job_at_a_time_on_ready_nodes_only() -> None:
    """A request for GPUs is granted completely or not at all, and a node in use cannot be terminated."""
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
    """It is idle from 100 s, busy, and idle again from 150 s."""
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
    """250 s of four GPUs cost 4 USD per hour; 100 s of them are the boot."""
    clock, events, cloud, _ = a_cloud()
    cloud.launch(LAUNCH)
    clock.advance_to(250.0)
    events.happen(250.0)

    assert cloud.terminate([stop("n1")]) == {"n1": Accepted()}

    assert (cloud.meter.rented_gpu_seconds, cloud.meter.booting_gpu_seconds) == (1000.0, 400.0)
    assert cloud.meter.micro_dollars == round(4e6 * 250 / 3600)


def test_an_ended_node_is_listed_once_and_may_be_ended_again() -> None:
    """The last listing carries its end, on which the bill rests."""
    clock, _, cloud, _ = a_cloud()
    cloud.launch(LAUNCH)
    clock.advance_to(10.0)
    cloud.close()

    assert [(node.phase, node.ended_at) for node in cloud.nodes()] == [("terminated", 10.0)]
    assert cloud.nodes() == []
    assert cloud.terminate([stop("n1")]) == {"n1": Accepted()}


def test_a_node_that_ended_while_booting_never_gets_ready() -> None:
    """Its boot event has no effect."""
    clock, events, cloud, ready = a_cloud()
    cloud.launch(LAUNCH)
    cloud.terminate([stop("n1")])
    clock.advance_to(100.0)
    events.happen(100.0)

    assert ready == []


SPOT = WorldSettings(spot=Spot(mean_interruption_hours=1.0), on_demand=False)


def spot_launch(cloud: SimulatedCloud, count: int = 1) -> LaunchNodes:
    """Return an order for nodes of the first offer."""
    return LaunchNodes(
        id="t1-launch",
        instance_type=an_instance_type(),
        reason="needed",
        count=count,
        offer=cloud.offers()[0],
    )


def test_a_spot_node_ends_two_minutes_after_its_notice_and_its_job_is_lost() -> None:
    """The notice asks for a tick."""
    clock, events, cloud, ticks = a_cloud(SPOT)
    lost: list[str] = []

    def lose(job: str) -> None:
        lost.append(job)
        cloud.free(some_slots("n1", 0))

    cloud.loses = lose
    cloud.launch(spot_launch(cloud))
    run_until(clock, events, 100.0)
    cloud.hold("a", some_slots("n1", 0))
    ticks.clear()
    while not ticks:
        run_until(clock, events, events.next_at or 0.0)
    (node,) = cloud.nodes()
    assert node.ends_by == clock.now() + 120.0

    run_until(clock, events, clock.now() + 120.0)
    assert lost == ["a"]
    assert [(node.phase, node.ended_at) for node in cloud.nodes()] == [("terminated", clock.now())]
    assert cloud.meter.interruptions == 1


def test_an_unannounced_interruption_ends_a_spot_node_without_a_notice() -> None:
    """AWS gives the notice on a best-effort basis."""
    spot = Spot(mean_interruption_hours=1.0, unannounced_fraction=1.0)
    clock, events, cloud, _ = a_cloud(WorldSettings(spot=spot))
    cloud.launch(spot_launch(cloud))
    run_until(clock, events, 1e6)

    (node,) = cloud.nodes()
    assert (node.phase, node.ends_by) == ("terminated", None)


def test_when_spot_stock_falls_the_youngest_nodes_are_taken_back() -> None:
    """Of four nodes one is taken back when the stock falls to three."""
    path = Stock(path=((0.0, 4), (1000.0, 3)))
    spot = Spot(mean_interruption_hours=1e9, stock=path)
    clock, events, cloud, _ = a_cloud(WorldSettings(spot=spot))
    cloud.launch(spot_launch(cloud, 4))
    run_until(clock, events, 1000.0)

    assert [node.id for node in cloud.nodes() if node.ends_by == 1120.0] == ["n4"]


def test_the_bill_of_a_spot_node_is_the_integral_of_its_price() -> None:
    """It pays 0.2 of 4 USD for 600 s and 0.5 of it after that."""
    spot = Spot(prices=((0.0, 0.2), (600.0, 0.5)), mean_interruption_hours=1e9)
    clock, events, cloud, _ = a_cloud(WorldSettings(spot=spot))
    cloud.launch(spot_launch(cloud))
    assert cloud.nodes()[0].usd_per_hour == pytest.approx(0.8)
    run_until(clock, events, 1800.0)
    assert cloud.nodes()[0].prices == ((0.0, pytest.approx(0.8)), (600.0, pytest.approx(2.0)))
    cloud.close()

    assert cloud.meter.micro_dollars == round(1e6 * (0.8 * 600 + 2.0 * 1200) / 3600)


def test_a_node_that_fails_to_boot_is_ended_by_the_cloud_and_billed() -> None:
    """It ends at the instant at which it should have been ready."""
    clock, events, cloud, ticks = a_cloud(WorldSettings(faults=Faults(boot_failure_fraction=0.999999)))
    cloud.launch(LAUNCH)
    run_until(clock, events, 100.0)

    assert [node.phase for node in cloud.nodes()] == ["terminated"]
    assert (cloud.meter.node_failures, ticks) == (1, ["ready"])
    assert cloud.meter.micro_dollars == round(4e6 * 100 / 3600)


def test_a_job_is_as_fast_as_its_slowest_node_and_boot_times_vary() -> None:
    """Speeds and boot times are drawn for each node."""
    world = WorldSettings(
        faults=Faults(slow_node_fraction=0.5, slow_speed=0.25),
        boots={"": Boot(median_seconds=180.0, p99_seconds=900.0)},
    )
    clock, events, cloud, ready = a_cloud(world)
    for _ in range(20):
        cloud.launch(LAUNCH)
    speeds = [cloud.slowest(some_slots(node.id, 0)) for node in cloud.nodes()]
    run_until(clock, events, 180.0)

    assert set(speeds) == {0.25, 1.0}
    assert cloud.slowest([*some_slots("n1", 0), *some_slots(f"n{1 + speeds.index(0.25)}", 0)]) == 0.25
    assert 4 <= len(ready) <= 16
    run_until(clock, events, 3600.0)
    assert len(ready) == 20


def test_a_spot_order_without_a_spot_market_is_a_bad_request() -> None:
    """The world has on-demand nodes only."""
    _, _, spot_cloud, _ = a_cloud(SPOT)
    _, _, cloud, _ = a_cloud(WorldSettings(zones=("a",)))

    outcome = cloud.launch(spot_launch(spot_cloud))
    assert isinstance(outcome, Refused)
    assert outcome.kind == "bad-request"
