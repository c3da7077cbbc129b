"""Stopped nodes in the simulated cloud: cost, benefit, and the stock that a start needs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from load_scenarios import SCENARIOS, settings_of
from worlds import a_simulated_cloud

from boa_daemon.clock import VirtualClock
from boa_daemon.sim.event_queue import EventQueue
from boa_daemon.sim.wiring import prepare
from boa_daemon.sim.world_settings import Stock, WorldSettings
from boa_daemon.testing import an_instance_type
from boa_daemon.tick.facts.actions import LaunchNodes, TerminateNode
from boa_daemon.tick.facts.ports import Accepted, Launched, Refused

LAUNCH = LaunchNodes(id="t1-launch", instance_type=an_instance_type(), reason="needed")


def test_a_warm_pool_makes_a_run_shorter_and_cheaper() -> None:
    """Starts of stopped nodes replace most boots."""
    plain = replace(settings_of(SCENARIOS[0], hours=2.0), boot_seconds=180.0)
    without, pooled = (prepare(replace(plain, warm_pool_nodes=nodes)).finish() for nodes in (0, 16))

    assert (without.nodes_started, without.node_hours_stopped) == (0, 0.0)
    assert pooled.nodes_started > 0.5 * pooled.nodes_launched
    assert pooled.mean_jct_hours < without.mean_jct_hours
    assert pooled.spent_usd < without.spent_usd
    assert pooled.gpu_hours_booting < 0.7 * without.gpu_hours_booting
    assert pooled.mean_jct_hours > pooled.lower_bound_mean_jct_hours


def test_the_charges_of_the_store_equal_the_bill_of_the_cloud() -> None:
    """The sums agree to the micro-dollar."""
    run = prepare(replace(settings_of(SCENARIOS[0], hours=1.0), warm_pool_nodes=8))
    run.finish()

    assert run.controller.ports.store.settled_micro_dollars() == run.world.cloud.meter.micro_dollars


def test_a_start_needs_stock_as_a_launch_does() -> None:
    """A stopped node gives its place up, so it cannot start after another node took the place."""
    clock, events = VirtualClock(), EventQueue()
    world = WorldSettings(stock={"": Stock(nodes=1)})
    cloud = a_simulated_cloud(clock, events, world=world, boot_seconds=100.0)
    assert cloud.launch(LAUNCH) == Launched(nodes=("n1",))
    order = TerminateNode(id="stop", node="n1", reason="idle", stops=True)
    assert cloud.terminate([order]) == {"n1": Accepted()}

    assert cloud.launch(replace(LAUNCH, id="t2-launch")) == Launched(nodes=("n2",))
    again = replace(LAUNCH, id="t3-launch", starts=("n1~2",))
    assert isinstance(cloud.launch(again), Refused)
    assert {node.id: node.phase for node in cloud.nodes() if node.ended_at is None} == {
        "n1~2": "stopped",
        "n2": "requested",
    }


@pytest.mark.parametrize("seconds", [0.0, 40.0])
def test_a_start_takes_its_own_time_and_at_most_a_boot(seconds: float) -> None:
    """The boot takes 30 s in this cloud."""
    clock, events = VirtualClock(), EventQueue()
    cloud = a_simulated_cloud(clock, events, boot_seconds=30.0)
    cloud.stopped.start_seconds = seconds
    cloud.launch(LAUNCH)
    cloud.terminate([TerminateNode(id="stop", node="n1", reason="idle", stops=True)])
    cloud.launch(replace(LAUNCH, id="t2-launch", starts=("n1~2",)))

    assert events.next_at == min(30.0, seconds)


def test_a_run_starts_stopped_nodes_in_the_time_of_its_settings() -> None:
    """Starts of 150 s boot for longer than starts of 1 s, and both for less than boots of 180 s."""
    plain = replace(settings_of(SCENARIOS[0], hours=2.0), boot_seconds=180.0, warm_pool_nodes=16)
    runs = [prepare(replace(plain, start_seconds=seconds)).finish() for seconds in (1.0, 150.0)]

    booted = [run.nodes_launched - run.nodes_started for run in runs]
    gpus = {kind.gpus for kind in plain.instance_types.values()}.pop()
    for run, boots, seconds in zip(runs, booted, (1.0, 150.0), strict=True):
        assert run.nodes_started > 0
        paid = gpus * (180.0 * boots + seconds * run.nodes_started) / 3600.0
        assert run.gpu_hours_booting == pytest.approx(paid)
