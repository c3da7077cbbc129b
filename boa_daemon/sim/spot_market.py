"""The spot market as options of a plan: each machine a second time, at the spot price, with interruptions.

`t4@spot` is the machine of `t4` on the spot market, as a GPU type of its own. Its price is the mean spot
price; its speed is what remains after the interruptions of the world (`policies.optimum.interruptions`). So a
plan mixes spot and on demand by class and phase, exactly. Varying stock and prices are not in the plan.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeVar

from boa_daemon.inputs.problem_file import ProblemFile
from boa_daemon.sim.world_settings import Spot, WorldSettings, of_type
from boa_daemon.tick.stages.places.find_changes import LEAVE_SECONDS
from boa_daemon.units import SECONDS_PER_HOUR
from policies.kinds import kind_of, machine_name_of
from policies.model import GpuType, InstanceType, JobClass, Phase, Problem
from policies.optimum.interruptions import (
    CheckpointSchedule,
    Interruptions,
    best_interval,
    hours_with_interruptions,
)
from policies.speedup import Table

_Value = TypeVar("_Value")
BOOT_SECONDS = 180.0
"""The boot time after an interruption if the world does not say."""
_LEAST_SPEED = 1e-9
"""A width is not offered if interruptions leave less speed than this."""


def mean_price_fraction(spot: Spot) -> float:
    """Return the mean spot price as a share of the on-demand price, which it never exceeds."""
    if spot.prices:
        return spot.mean_listed_fraction
    middle, sigma = math.log(spot.price_fraction), spot.price_volatility
    if sigma == 0.0:
        return min(1.0, spot.price_fraction)
    below = 0.5 * (1.0 + math.erf((-middle - sigma**2) / (sigma * math.sqrt(2.0))))
    at_most = 0.5 * (1.0 + math.erf(middle / (sigma * math.sqrt(2.0))))
    return math.exp(middle + 0.5 * sigma**2) * below + at_most


def for_both_markets(world: WorldSettings) -> WorldSettings:
    """Return the world with the boots and quotas of on-demand machines for spot machines too."""
    return replace(world, boots=_on_spot_too(world.boots), quotas=_on_spot_too(world.quotas))


def _on_spot_too(by_name: Mapping[str, _Value]) -> dict[str, _Value]:
    """Return values by instance type for machines on the spot market as well."""
    on_spot = {str(machine_name_of(name).on_spot): value for name, value in by_name.items() if name}
    return {**by_name, **on_spot}


def with_spot(file: ProblemFile, world: WorldSettings) -> ProblemFile:
    """Return the file with each machine added on the spot market, or on that market alone.

    A class is as fast there as on demand while nothing happens: see `interrupted`. A GPU type that the file
    names on spot is not added twice.
    """
    if world.spot is None:
        return file
    fraction = mean_price_fraction(world.spot)
    machines = dict(file.instance_types) if world.on_demand else {}
    for machine in file.instance_types.values():
        if machine.kind.is_spot:
            machines.setdefault(machine.gpu_type, machine)
            continue
        on_spot = machine_on_spot(machine)
        machines[on_spot.gpu_type] = replace(on_spot, usd_per_hour=machine.usd_per_hour * fraction)
    classes = tuple(class_on_both(job_class, machines) for job_class in file.problem.classes)
    prices = tuple(
        GpuType(name=kind, usd_per_gpu_hour=machine.usd_per_gpu_hour) for kind, machine in machines.items()
    )
    problem = replace(file.problem, classes=classes, gpu_types=prices)
    return replace(file, problem=problem, instance_types=MappingProxyType(machines))


def on_both_markets(file: ProblemFile, world: WorldSettings) -> ProblemFile:
    """Return the file with the options of the spot market, at the speeds that interruptions leave."""
    wide = with_spot(file, world)
    problem = interrupted(wide.problem, wide.instance_types, world, boot_seconds=BOOT_SECONDS)
    return replace(wide, problem=problem)


def machine_on_spot(machine: InstanceType) -> InstanceType:
    """Return a machine on the spot market, at its on-demand price: the most that it may cost there."""
    return replace(machine, name=str(machine.machine_name.on_spot), gpu_type=str(machine.kind.on_spot))


def class_on_both(job_class: JobClass, machines: Mapping[str, InstanceType]) -> JobClass:
    """Return the class with its on-demand speeds also on the spot market, for the given machines."""
    return replace(job_class, phases=tuple(_on_both(phase, machines) for phase in job_class.phases))


def _on_both(phase: Phase, machines: Mapping[str, InstanceType]) -> Phase:
    """Return a phase with its speed-ups on both markets, for the given machines."""
    on_spot = {
        str(kind_of(kind).on_spot): curve
        for kind, curve in phase.speedups.items()
        if not kind_of(kind).is_spot
    }
    speedups = {**phase.speedups, **on_spot}
    return replace(phase, speedups={kind: curve for kind, curve in speedups.items() if kind in machines})


def interrupted(
    problem: Problem, machines: Mapping[str, InstanceType], world: WorldSettings, *, boot_seconds: float
) -> Problem:
    """Return the problem with the speeds that interruptions leave on machines of the spot market.

    Without checkpoints in the world, nothing is saved within a phase. Without spot the same object is
    returned.
    """
    if world.spot is None or not any(machine.kind.is_spot for machine in machines.values()):
        return problem
    terms = {
        kind: terms_of(world, machine, boot_seconds=boot_seconds)
        for kind, machine in machines.items()
        if machine.kind.is_spot
    }
    return at_terms(problem, machines, terms, saves_of(world))


def at_terms(
    problem: Problem,
    machines: Mapping[str, InstanceType],
    terms: Mapping[str, Interruptions],
    saves: CheckpointSchedule,
) -> Problem:
    """Return the problem with the speeds that interruptions leave, by GPU type on the spot market."""

    def left(job_class: JobClass) -> JobClass:
        phases = (_interrupted(job_class, phase, machines, terms, saves) for phase in job_class.phases)
        return replace(job_class, phases=tuple(phases))

    return replace(problem, classes=tuple(map(left, problem.classes)))


def _interrupted(
    job_class: JobClass,
    phase: Phase,
    machines: Mapping[str, InstanceType],
    terms: Mapping[str, Interruptions],
    saves: CheckpointSchedule,
) -> Phase:
    """Return one phase with the speeds that interruptions leave."""
    speedups = dict(phase.speedups)
    for kind, curve in phase.speedups.items():
        if not kind_of(kind).is_spot:
            continue
        kept: dict[int, float] = {}
        for width in curve.whole_widths().tolist():
            hours = phase.size_gpu_hours / float(curve.speed_at(width))
            nodes = -(-width // machines[kind].gpus)
            mean = hours_with_interruptions(
                hours, nodes, terms[kind], saves, restart_hours=job_class.rescale_hours
            )
            if phase.size_gpu_hours / mean > _LEAST_SPEED:
                kept[width] = phase.size_gpu_hours / mean
        if kept:
            speedups[kind] = Table(gpus=tuple(kept), speeds=tuple(kept.values()))
        elif len(speedups) > 1:
            del speedups[kind]
    return replace(phase, speedups=speedups)


def terms_of(world: WorldSettings, machine: InstanceType, *, boot_seconds: float) -> Interruptions:
    """Return how nodes of a machine are interrupted in a world with a spot market."""
    spot = world.spot or Spot()
    boot = of_type(world.boots, str(machine.machine_name.on_demand), machine.kind.card)
    seconds = boot_seconds if boot is None else boot.mean_seconds
    return Interruptions(
        per_node_hour=1.0 / spot.mean_interruption_hours,
        notice_hours=spot.notice_seconds / SECONDS_PER_HOUR,
        unannounced_fraction=spot.unannounced_fraction,
        leave_hours=LEAVE_SECONDS / SECONDS_PER_HOUR,
        boot_hours=seconds / SECONDS_PER_HOUR,
    )


def saves_of(world: WorldSettings) -> CheckpointSchedule:
    """Return how often jobs save in a world; never if it does not say."""
    if world.checkpoints is None:
        return CheckpointSchedule()
    return CheckpointSchedule(
        every_hours=world.checkpoints.every_seconds / SECONDS_PER_HOUR,
        cost_hours=world.checkpoints.cost_seconds / SECONDS_PER_HOUR,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveAdvice:
    """How often jobs should save on so many nodes, in seconds of work; infinite if nothing is lost."""

    nodes: int
    best_seconds: float
    now_seconds: float | None


def advice(world: WorldSettings, nodes: int) -> SaveAdvice:
    """Return the interval between saves that loses the least on so many spot nodes."""
    spot, saves = world.spot or Spot(), saves_of(world)
    terms = terms_of(
        replace(world, spot=spot),
        InstanceType(name="", gpu_type="", gpus=1, usd_per_hour=1.0),
        boot_seconds=0.0,
    )
    announced, lost = terms.rates(nodes, cost_hours=saves.cost_hours)
    return SaveAdvice(
        nodes=nodes,
        best_seconds=SECONDS_PER_HOUR * best_interval(announced, lost, saves.cost_hours),
        now_seconds=None if world.checkpoints is None else world.checkpoints.every_seconds,
    )
