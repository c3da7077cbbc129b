"""The plan's statement about the spot market beside simulated runs: mean JCT and spend in ten worlds.

    python benchmarks/spot_worlds.py

200 jobs at four an hour run on spot alone, at one width: 1, 2 or 4 GPUs on as many nodes. The worlds differ
in how often nodes are interrupted, with what notice, how often jobs save, and the cost of a save. The test of
`sim/spot_market.py` requires each world within 5 %.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from random import Random

from boa_daemon.inputs.problem_file import ProblemFile
from boa_daemon.sim.spot_market import interrupted, with_spot
from boa_daemon.sim.wiring import SimulationSettings, simulate
from boa_daemon.sim.world_settings import Checkpoints, Spot, WorldSettings
from boa_daemon.testing import a_trace
from boa_daemon.traces.reader import Trace
from policies.model import Budget, GpuType, InstanceType, JobClass, Phase, Problem
from policies.optimum.boa import solve
from policies.speedup import Table

MACHINE = InstanceType(name="s1", gpu_type="t4", gpus=1, usd_per_hour=1.0)
SPOT = Spot(price_fraction=0.4, price_volatility=0.0, mean_interruption_hours=6.0)
BOOT_SECONDS = 60.0
JOBS_PER_HOUR = 4.0


def a_file(*widths: int, hours: float = 4.0) -> ProblemFile:
    """Return a class of jobs of this many hours at the first width, 1.6 times as fast at twice that width."""
    speeds = tuple(float(widths[0]) * 1.6 ** math.log2(width / widths[0]) for width in widths)
    phase = Phase(size_gpu_hours=hours * widths[0], speedups={"t4": Table(gpus=widths, speeds=speeds)})
    return ProblemFile(
        path="classes.yaml",
        problem=Problem(
            classes=(
                JobClass(name="c", phases=(phase,), arrivals_per_hour=JOBS_PER_HOUR, rescale_hours=0.02),
            ),
            gpu_types=(GpuType(name="t4", usd_per_gpu_hour=1.0),),
        ),
        budget=None,
        instance_types={"t4": MACHINE},
    )


def arrivals(jobs: int, seed: int) -> Trace:
    """Return Poisson arrivals."""
    rng, at, found = Random(seed), 0.0, []
    for _ in range(jobs):
        at += rng.expovariate(JOBS_PER_HOUR / 3600.0)
        found.append(at)
    return a_trace(*found)


WORLDS = [
    (1, WorldSettings(spot=SPOT)),
    (2, WorldSettings(spot=replace(SPOT, unannounced_fraction=0.3), checkpoints=Checkpoints())),
    (1, WorldSettings(spot=replace(SPOT, mean_interruption_hours=2.0))),
    (2, WorldSettings(spot=replace(SPOT, mean_interruption_hours=3.0))),
    (
        1,
        WorldSettings(
            spot=replace(SPOT, unannounced_fraction=1.0),
            checkpoints=Checkpoints(every_seconds=1800.0, cost_seconds=60.0),
        ),
    ),
    (
        2,
        WorldSettings(
            spot=replace(SPOT, unannounced_fraction=1.0),
            checkpoints=Checkpoints(every_seconds=3600.0, cost_seconds=120.0),
        ),
    ),
    (4, WorldSettings(spot=replace(SPOT, mean_interruption_hours=12.0, unannounced_fraction=0.2))),
    (1, WorldSettings(spot=replace(SPOT, notice_seconds=600.0))),
    (1, WorldSettings(spot=replace(SPOT, notice_seconds=0.0), checkpoints=Checkpoints())),
    (
        2,
        WorldSettings(
            spot=replace(SPOT, mean_interruption_hours=1.5, unannounced_fraction=0.5),
            checkpoints=Checkpoints(every_seconds=300.0, cost_seconds=10.0),
        ),
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Stated and simulated figures: hours of a mean job, and total dollars."""

    planned_hours: float
    hours: float
    planned_usd: float
    usd: float
    interruptions: int


def held_against_a_run(width: int, world: WorldSettings, *, jobs: int = 200) -> Held:
    """Plan and simulate a world on spot alone."""
    world = replace(world, on_demand=False)
    file = with_spot(a_file(width), world)
    planned = interrupted(file.problem, file.instance_types, world, boot_seconds=BOOT_SECONDS)
    answer = solve(planned, 1e6)
    run = simulate(
        SimulationSettings(
            trace=arrivals(jobs, seed=width),
            problem=file.problem,
            instance_types=file.instance_types,
            budget=Budget(amount=1e6),
            policy="asked",
            world=world,
            boot_seconds=BOOT_SECONDS,
        )
    )
    boot = BOOT_SECONDS / 3600.0
    return Held(
        planned_hours=answer.mean_jct_hours + boot,
        hours=run.mean_jct_hours,
        planned_usd=jobs * (answer.mean_spend / JOBS_PER_HOUR + 0.4 * width * boot),
        usd=run.spent_usd,
        interruptions=run.interruptions,
    )


def main() -> None:
    """Print a row for each world."""
    print(
        "GPUs hours between  sudden  notice s  save every s  JCT plan, run, h     USD plan, run  taken back"
    )
    for width, world in WORLDS:
        spot, saves, one = world.spot, world.checkpoints, held_against_a_run(width, world)
        assert spot is not None
        every = "-" if saves is None else f"{saves.every_seconds:.0f}"
        print(
            f"{width:4d} {spot.mean_interruption_hours:14.1f} {spot.unannounced_fraction:7.1f}"
            f" {spot.notice_seconds:9.0f} {every:>13} {one.planned_hours:8.3f} {one.hours:7.3f}"
            f" {100.0 * (one.hours / one.planned_hours - 1.0):+5.1f} % {one.planned_usd:7.0f} {one.usd:7.0f}"
            f" {100.0 * (one.usd / one.planned_usd - 1.0):+5.1f} % {one.interruptions:7d}",
            flush=True,
        )


if __name__ == "__main__":
    main()
