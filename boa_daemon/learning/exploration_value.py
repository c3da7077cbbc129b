"""Which width of a class is worth trying, given the value of knowing its speed."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

import scipy

from boa_daemon.learning.speedups import CurveEstimate
from boa_daemon.units import SECONDS_PER_HOUR, counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Exploration:
    """A width worth trying for a while, and the GPU-seconds that the trial may waste."""

    gpus: int
    gpu_seconds: float
    reason: str
    seconds: float = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplorationStakes:
    """The value of a better width to a class, and the cost of trying one.

    `gpu_hour_worth` is the weighted hours that the money for a GPU-hour saves elsewhere. `hours_to_come` is
    how long the jobs of the class will work at the planned width while a measurement is valid. Added GPUs
    come in nodes of `node_gpus`.
    """

    gpu_hour_worth: float
    hours_to_come: float
    weight: float = 1.0
    restart_seconds: float = 0.0
    boot_seconds: float = 0.0
    node_gpus: int = 1
    most_gpu_seconds: float = math.inf

    def an_hour(self, gpus: int) -> float:
        """Return the cost of an hour at a width, in weighted hours."""
        return self.weight + self.gpu_hour_worth * gpus


def worth_exploring(
    curve: CurveEstimate,
    *,
    planned_gpus: int,
    stakes: ExplorationStakes,
    seconds: float = 120.0,
    allowed: Collection[int] | None = None,
) -> Exploration | None:
    """Return the width whose speed is most worth knowing, if that exceeds the cost of trying it.

    A measured width is not tried again. None if no trial pays, or none is within what trials may waste.
    """
    best, found = 0.0, None
    for width in curve.widths:
        if width.measurements or width.gpus == planned_gpus or (allowed and width.gpus not in allowed):
            continue
        mean, spread = curve.ratio(width.gpus, planned_gpus)
        worth = curve.doubt * stakes.hours_to_come
        worth *= _worth_of_knowing(mean, spread, width.gpus, planned_gpus, stakes)
        slow = math.exp(mean - spread)
        extra = stakes.node_gpus * math.ceil(max(width.gpus - planned_gpus, 0) / stakes.node_gpus)
        wasted = seconds * max(width.gpus - planned_gpus * slow, 0.0)
        wasted += stakes.restart_seconds * (width.gpus + planned_gpus) + stakes.boot_seconds * extra
        cost = seconds * max(stakes.an_hour(width.gpus) - slow * stakes.an_hour(planned_gpus), 0.0)
        cost += stakes.restart_seconds * (stakes.an_hour(width.gpus) + stakes.an_hour(planned_gpus))
        cost = (cost + stakes.boot_seconds * stakes.gpu_hour_worth * extra) / SECONDS_PER_HOUR
        if worth - cost > best and wasted <= stakes.most_gpu_seconds:
            best = worth - cost
            reason = (
                f"a try of {counted(width.gpus, 'GPU')} for {seconds:.0f} s: "
                f"the speed is known to ±{spread:.0%}; "
                f"knowing it saves {worth:.2g} hours of waiting and costs {cost:.2g}"
            )
            found = Exploration(gpus=width.gpus, gpu_seconds=wasted, reason=reason, seconds=seconds)
    return found


def _worth_of_knowing(
    mean: float, spread: float, gpus: int, planned: int, stakes: ExplorationStakes
) -> float:
    """Return the weighted hours that knowing a width's speed saves per hour at the planned width."""
    here, there = stakes.an_hour(planned), stakes.an_hour(gpus)
    linear = math.log(max(gpus / planned, 1.0)) if gpus > planned else math.inf
    mean = min(mean, linear)
    if spread <= 0.0 or there * math.exp(-linear) >= here:
        return 0.0
    saved = _put(mean, spread, here, there) - _put(mean, spread, there * math.exp(-linear), there)
    as_it_is = here - there * math.exp(0.5 * spread**2 - mean)
    return max(saved - max(as_it_is, 0.0), 0.0)


def _put(mean: float, spread: float, strike: float, there: float) -> float:
    """Return E[max(strike - there / rho, 0)] for log rho ~ N(mean, spread^2)."""
    if strike <= 0.0:
        return 0.0
    d = (mean - math.log(there / strike)) / spread
    expected = there * math.exp(0.5 * spread**2 - mean)
    return strike * float(scipy.special.ndtr(d)) - expected * float(scipy.special.ndtr(d - spread))
