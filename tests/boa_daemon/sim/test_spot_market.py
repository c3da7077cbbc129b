"""Plans for the spot market against runs in the simulator."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from benchmark_modules import benchmark_module

from boa_daemon.sim.spot_market import (
    advice,
    for_both_markets,
    interrupted,
    mean_price_fraction,
    with_spot,
)
from boa_daemon.sim.step_functions import price_path
from boa_daemon.sim.wiring import SimulationSettings, prepare, site_of
from boa_daemon.sim.world_settings import Boot, Checkpoints, Spot, WorldSettings
from policies.model import Budget
from policies.optimum.boa import solve

WORLDS = benchmark_module("spot_worlds")
SPOT, a_file, arrivals, BOOT_SECONDS = WORLDS.SPOT, WORLDS.a_file, WORLDS.arrivals, WORLDS.BOOT_SECONDS


@pytest.mark.parametrize(
    ("width", "world"),
    [
        pytest.param(*case, marks=[pytest.mark.exhaustive] if number > 1 else [], id=f"world-{number}")
        for number, case in enumerate(WORLDS.WORLDS)
    ],
)
def test_a_run_on_spot_matches_the_planned_jct_and_spend(width: int, world: WorldSettings) -> None:
    """200 jobs on spot alone agree within 5 %. All ten worlds take half a minute."""
    held = WORLDS.held_against_a_run(width, world)

    assert held.interruptions > 10
    assert held.hours == pytest.approx(held.planned_hours, rel=0.05)
    assert held.usd == pytest.approx(held.planned_usd, rel=0.05)


def test_the_mean_spot_price_matches_the_simulated_path() -> None:
    """The path never exceeds the on-demand price."""
    for fraction, volatility in ((0.3, 0.2), (0.8, 0.5)):
        spot = Spot(price_fraction=fraction, price_volatility=volatility, price_memory_hours=2.0)
        hours = 40_000
        path = price_path(spot, 1.0, "seed", start=0.0)
        mean = sum(path.at(3600.0 * hour) for hour in range(hours)) / hours

        assert mean_price_fraction(spot) == pytest.approx(mean, rel=0.02)


def test_a_plan_mixes_spot_and_on_demand_to_lower_mean_jct() -> None:
    """At one budget the plan with spot has a lower mean JCT than the plan without."""
    world = WorldSettings(
        spot=replace(SPOT, mean_interruption_hours=3.0, unannounced_fraction=0.5),
        checkpoints=Checkpoints(every_seconds=1200.0, cost_seconds=60.0),
    )
    file = with_spot(a_file(1, 2, 4), world)
    planned = interrupted(file.problem, file.instance_types, world, boot_seconds=180.0)
    kinds = {
        width.gpu_type
        for budget in (10.0, 20.0, 30.0)
        for plan in solve(planned, budget).classes[0].plans
        for width in plan.widths
    }

    assert solve(planned, 20.0).mean_jct_hours < solve(a_file(1, 2, 4).problem, 20.0).mean_jct_hours
    assert kinds == {"t4", "t4@spot"}


def test_each_node_is_rented_on_the_market_of_its_planned_type() -> None:
    """Prices and boot times of the spot types are taken from the world."""
    world = for_both_markets(
        WorldSettings(
            spot=replace(SPOT, unannounced_fraction=0.5),
            checkpoints=Checkpoints(cost_seconds=60.0),
            boots={"s1": Boot.constant(30.0)},
        )
    )
    file = with_spot(a_file(1, 2, 4), world)
    settings = SimulationSettings(
        trace=arrivals(20, seed=5),
        problem=file.problem,
        instance_types=file.instance_types,
        budget=Budget(amount=20.0),
        world=world,
    )
    run = prepare(settings)
    seen = set[tuple[str, str]]()
    run.finish(lambda d: seen.update((n.instance_type.name, n.market) for n in d.state.nodes.values()))

    assert seen <= {("s1", "on-demand"), ("s1@spot", "spot")}
    assert ("s1@spot", "spot") in seen
    assert site_of(settings).problem.price_of("t4@spot") == pytest.approx(0.4)
    assert world.boots["s1@spot"] == world.boots["s1"]


def test_the_advised_checkpoint_interval_depends_on_the_number_of_nodes() -> None:
    """Two nodes are lost twice as often; without losses no checkpoints are advised."""
    world = WorldSettings(
        spot=replace(SPOT, unannounced_fraction=1.0), checkpoints=Checkpoints(cost_seconds=10.0)
    )

    assert advice(world, 1).best_seconds == pytest.approx(math.sqrt(2 * 10.0 * 6 * 3600.0), rel=0.02)
    assert advice(world, 2).best_seconds == pytest.approx(math.sqrt(10.0 * 6 * 3600.0), rel=0.02)
    assert advice(replace(world, spot=SPOT), 1).best_seconds == math.inf


def test_without_a_spot_market_file_and_problem_stay_the_same() -> None:
    """The functions return the same objects."""
    file = a_file(1)

    assert with_spot(file, WorldSettings()) is file
    assert interrupted(file.problem, file.instance_types, WorldSettings(), boot_seconds=0.0) is file.problem


def test_a_gpu_type_that_a_file_names_on_spot_is_not_put_there_again() -> None:
    """Its price and speeds are those of the file."""
    file = a_file(1)
    once = with_spot(file, WorldSettings(spot=SPOT, on_demand=False))
    twice = with_spot(once, WorldSettings(spot=SPOT, on_demand=False))

    assert set(once.instance_types) == set(twice.instance_types) == {"t4@spot"}
    assert twice.problem == once.problem
    assert twice.instance_types["t4@spot"].name == "s1@spot"
