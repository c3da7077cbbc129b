"""Jobs of a list on spot and on demand: their hours with interruptions, on average and at the 95 % quantile.

The plan uses the mean hours (`policies.optimum.interruptions`) at each job's size. A date counts as kept only
if the hours that 95 % of runs do not exceed fit. These assume the 95 % quantile of interruptions; each costs
the wait for another node, the restart, and, without notice, the work since the last save.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from boa_daemon.inputs.problem_file import ProblemFile
from boa_daemon.sim.spot_market import interrupted, mean_price_fraction, saves_of, terms_of
from boa_daemon.sim.world_settings import Spot, WorldSettings
from boa_daemon.units import SECONDS_PER_HOUR, counted
from policies.kinds import kind_of
from policies.model import InstanceType, JobClass
from policies.optimum.calendar import Calendar, CalendarJob, InstanceOption, calendar_jobs
from policies.optimum.job_list import ListedJob

SURE = 0.95
"""Fraction of runs that keep within the hours used for dates."""
NORMAL_P95 = 1.6448536269514722
"""The 95 % quantile of the standard normal distribution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotList:
    """A list on both markets: its jobs, and each spot option's hours without interruptions."""

    jobs: tuple[CalendarJob, ...]
    calm_hours: Mapping[tuple[str, str, int], float]
    per_node_hour: float
    price_range: tuple[float, float]

    @classmethod
    def of(
        cls, wide: ProblemFile, jobs: Sequence[ListedJob], world: WorldSettings, *, boot_hours: float
    ) -> SpotList:
        """Return the jobs of a list; `wide` has each machine on both markets (`with_spot`)."""
        classes = {one.name: one for one in wide.problem.classes}
        found: dict[tuple[str, float], tuple[InstanceOption, ...]] = {}
        calm: dict[tuple[str, str, int], float] = {}
        for job in jobs:
            key = (job.class_name, job.scale)
            sized = _sized(classes[job.class_name], job.scale)
            if key not in found:
                found[key] = _options(wide, sized, world, boot_hours)
            for option in found[key]:
                if option.kind.is_spot:
                    calm[job.id, option.gpu_type, option.gpus] = _calm(sized, option, boot_hours)
        spot = world.spot or Spot()
        return cls(
            jobs=tuple(CalendarJob(job=job, options=found[job.class_name, job.scale]) for job in jobs),
            calm_hours=calm,
            per_node_hour=1.0 / spot.mean_interruption_hours,
            price_range=_price_range(spot),
        )


def _sized(job_class: JobClass, scale: float) -> JobClass:
    phases = tuple(replace(one, size_gpu_hours=one.size_gpu_hours * scale) for one in job_class.phases)
    return replace(job_class, phases=phases)


def _options(
    wide: ProblemFile, sized: JobClass, world: WorldSettings, boot_hours: float
) -> tuple[InstanceOption, ...]:
    """Return a job's options on both markets: mean hours, and for spot the 95 % hours used for dates."""
    machines = wide.instance_types
    problem = interrupted(
        replace(wide.problem, classes=(sized,)), machines, world, boot_seconds=boot_hours * SECONDS_PER_HOUR
    )
    alone = ListedJob(id=sized.name, class_name=sized.name)
    (job,) = calendar_jobs(problem, [alone], machines, boot_hours=boot_hours)
    return tuple(
        replace(option, sure_hours=_sure(sized, option, machines[option.gpu_type], world, boot_hours))
        if option.kind.is_spot
        else option
        for option in job.options
    )


def _calm(sized: JobClass, option: InstanceOption, boot_hours: float) -> float:
    """Return the hours of an option without interruptions."""
    works = (
        phase.size_gpu_hours / float(phase.speedups[option.gpu_type].speed_at(option.gpus))
        for phase in sized.phases
    )
    return boot_hours + sized.startup_hours + sum(works)


def _sure(
    sized: JobClass, option: InstanceOption, machine: InstanceType, world: WorldSettings, boot_hours: float
) -> float:
    """Return the hours that 95 % of runs of a spot option do not exceed."""
    terms = terms_of(world, machine, boot_seconds=boot_hours * SECONDS_PER_HOUR)
    saves = saves_of(world)
    hours = _calm(sized, option, boot_hours)
    if math.isfinite(saves.every_hours):
        hours *= 1.0 + saves.cost_hours / saves.every_hours
    _, lost = terms.rates(option.instances, cost_hours=saves.cost_hours)
    each = terms.boot_hours + sized.rescale_hours
    each += min(saves.every_hours + saves.cost_hours, hours) if lost > 0.0 else 0.0
    rate = terms.per_node_hour * option.instances
    total, count = hours, -1
    # Interruptions also occur in the hours that interruptions add.
    while (most := at_most(rate * total)) > count and math.isfinite(total):
        count, total = most, hours + most * each
        if count > 10_000:
            return math.inf
    return max(total, option.hours)


def at_most(mean: float) -> int:
    """Return the 95 % quantile of a Poisson variable with this mean."""
    if mean > 500.0:
        return math.ceil(mean + NORMAL_P95 * math.sqrt(mean))
    number, part = 0, math.exp(-mean)
    below = part
    while below < SURE:
        number += 1
        part *= mean / number
        below += part
    return number


def _price_range(spot: Spot) -> tuple[float, float]:
    """Return the 5 % and 95 % quantiles of the hourly price, as fractions of the mean price."""
    mean = mean_price_fraction(spot)
    if spot.prices:
        parts = sorted(part for _, part in spot.prices)
        low, high = parts[int(0.05 * len(parts))], parts[min(int(0.95 * len(parts)), len(parts) - 1)]
    else:
        wide = math.exp(NORMAL_P95 * spot.price_volatility)
        low, high = spot.price_fraction / wide, spot.price_fraction * wide
    return min(low, 1.0) / mean, min(high, 1.0) / mean


def spot_sentence(spot: SpotList, calendar: Calendar) -> str:
    """Return a sentence on the jobs on spot and their expected interruptions."""
    options = [entry.option for entry in calendar.entries if entry.option.kind.is_spot]
    if not options:
        return "On these terms no job is planned on the spot market."
    hits = sum(spot.per_node_hour * option.instances * option.hours for option in options)
    are = "runs" if len(options) == 1 else "run"
    return f"{counted(len(options), 'job')} {are} on spot, where {hits:.1f} interruptions are expected."


def quota_of_both(quota: Mapping[str, int], machines: Mapping[str, InstanceType]) -> dict[str, int]:
    """Return a quota for both markets; spot without a quota of its own gets that of on demand."""
    spot = {str(kind_of(kind).on_spot): most for kind, most in quota.items() if not kind_of(kind).is_spot}
    return {kind: most for kind, most in {**spot, **quota}.items() if kind in machines}


def terms_said(world: WorldSettings) -> dict[str, str]:
    """Return the assumptions on the spot market as text."""
    spot, saves = world.spot or Spot(), saves_of(world)
    low, high = _price_range(spot)
    saved = (
        f"every {saves.every_hours * 60.0:.4g} minutes"
        if math.isfinite(saves.every_hours)
        else "on a notice alone"
    )
    return {
        "spot price": f"{mean_price_fraction(spot):.0%} of the price on demand on average, "
        f"in nine of ten hours from {low:.0%} to {high:.0%} of that mean",
        "spot interruptions": f"each node is taken back after {spot.mean_interruption_hours:g} hours "
        f"on average, {spot.unannounced_fraction:.0%} of the times without a notice",
        "spot checkpoints": f"jobs save {saved}",
        "spot stock": "as many instances as the quota; a name such as a100@spot has its own quota",
        "dates on spot": f"met by {SURE:.0%} of the runs",
    }
