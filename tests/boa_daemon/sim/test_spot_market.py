"""The spot market in the plan, against the simulator's."""

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
def test_a_run_takes_what_the_plan_says(width: int, world: WorldSettings) -> None:
    """Mean JCT and spend of 200 jobs on spot alone, within 5 %. All ten worlds take half a minute."""
    held = WORLDS.held_against_a_run(width, world)

    assert held.interruptions > 10
    assert held.hours == pytest.approx(held.planned_hours, rel=0.05)
    assert held.usd == pytest.approx(held.planned_usd, rel=0.05)


def test_the_mean_price_is_that_of_the_market() -> None:
    """Against the simulator's own path, which wanders and never exceeds on demand."""
    for fraction, volatility in ((0.3, 0.2), (0.8, 0.5)):
        spot = Spot(price_fraction=fraction, price_volatility=volatility, price_memory_hours=2.0)
        hours = 40_000
        path = price_path(spot, 1.0, "seed", start=0.0)
        mean = sum(path.at(3600.0 * hour) for hour in range(hours)) / hours

        assert mean_price_fraction(spot) == pytest.approx(mean, rel=0.02)


def test_a_plan_mixes_both_markets_where_that_waits_least() -> None:
    """Cheap and slow beside dear and fast: with spot the same money waits less."""
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


def test_the_plan_says_which_market_a_node_is_rented_on() -> None:
    """A plan on both: every launch is on the market of its machine, and the site plans with losses."""
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


def test_saves_are_advised_by_nodes() -> None:
    """Twice the nodes are lost twice as often: about 1.4 times as many saves; none where nothing is lost."""
    world = WorldSettings(
        spot=replace(SPOT, unannounced_fraction=1.0), checkpoints=Checkpoints(cost_seconds=10.0)
    )

    assert advice(world, 1).best_seconds == pytest.approx(math.sqrt(2 * 10.0 * 6 * 3600.0), rel=0.02)
    assert advice(world, 2).best_seconds == pytest.approx(math.sqrt(10.0 * 6 * 3600.0), rel=0.02)
    assert advice(replace(world, spot=SPOT), 1).best_seconds == math.inf


def test_without_a_spot_market_nothing_changes() -> None:
    """The very same file and problem."""
    file = a_file(1)

    assert with_spot(file, WorldSettings()) is file
    assert interrupted(file.problem, file.instance_types, WorldSettings(), boot_seconds=0.0) is file.problem
