"""Shared by the simulating verbs: options of the trace and the world, and the settings made of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from boa_daemon.errors import InputError
from boa_daemon.inputs.problem_file import load_problem
from boa_daemon.sim.spot_market import for_both_markets, with_spot
from boa_daemon.sim.wiring import SimulationSettings, settings_for
from boa_daemon.sim.world_file import load_world, parse_boot
from boa_daemon.sim.world_settings import Spot, WorldSettings
from boa_daemon.traces.reader import check_classes, class_file_of, read_trace
from policies.model import Budget

TraceOption: TypeAlias = Annotated[
    Path, typer.Option(help="Trace of arrivals: job_id,arrived_at_seconds,class_name[,scale].")
]
WorldOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="World file: zones, stock, spot, faults, checkpoints, wrong beliefs."),
]
SpotOption: TypeAlias = Annotated[
    bool, typer.Option("--spot", help="Rent on a spot market first, then on demand.")
]
BootOption: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="DRAW", help="Boot times: aws, constant:180 or lognormal:180,900 (median, p99)."),
]
BootSecondsOption: TypeAlias = Annotated[
    float, typer.Option(min=0.0, help="Seconds from launch to ready, billed.")
]
IdleHoldOption: TypeAlias = Annotated[float, typer.Option(min=0.0, help="Seconds that an idle node is kept.")]

WarmPoolOption: TypeAlias = Annotated[
    int, typer.Option("--warm-pool", min=0, help="Idle nodes to keep stopped; each costs its disk.")
]
StartSecondsOption: TypeAlias = Annotated[
    float, typer.Option(min=0.0, help="Seconds from the start of a stopped node to ready.")
]


PlanSpotOption: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--plan-spot", help="Let the plan choose spot or on demand for each job; else spot comes first."
    ),
]


def settings_in_world(
    trace: Path,
    classes: Path | None,
    budget: Budget,
    *,
    world: Path | None,
    spot: bool,
    boot: str | None,
    plan_spot: bool = False,
) -> SimulationSettings:
    """Return simulation settings: the trace, the budget, and the world file with the flags' changes.

    Without `classes`, the class file beside the trace is read.

    Raises:
        InputError: when a file is not valid, or the trace has a class that the class file lacks.
    """
    file = load_problem(class_file_of(trace, classes), require_rates=False)
    arrivals = read_trace(trace)
    names = [job_class.name for job_class in file.problem.classes]
    check_classes(arrivals, names, trace)
    settings = settings_for(file, arrivals, budget)
    machines = tuple(settings.instance_types.values())
    around = WorldSettings() if world is None else load_world(world, machines, names)
    if spot and around.spot is None:
        around = replace(around, spot=Spot())
    if boot is not None:
        around = replace(around, boots=parse_boot(boot, machines))
    if plan_spot:
        if around.spot is None or budget.unit == "gpus":
            raise InputError(
                "--plan-spot needs a spot market and a budget in dollars",
                hint="Give --spot, or --world FILE with spot in it",
            )
        around = for_both_markets(around)
        settings = settings_for(with_spot(file, around), arrivals, budget)
    return replace(settings, world=around)
