"""Goodness of fit: compare statistics of a trace with those of draws from the load fitted to it.

The fitted load is drawn many times, each draw as long as the trace. For each statistic of the trace the draws
give the interval of 95 % of correct fits. For each group of statistics they give the probability that chance
alone is as far off, over all statistics of the group. Some groups were fitted. The others show a trace for
which the model is wrong: jobs that depend on each other, days that are busier than their hours explain, or
sizes that change over time.

    symbol   here        meaning
    x, m, s  figures     the trace's value; mean and standard deviation of the draws
    d        distance    mean of ((x - m) / s)^2 over the statistics of a group
    p        chance      fraction of the draws that are as far from m as the trace is

A group with a chance below `LEVEL` / (number of groups) rejects the fit: one in twenty correct fits has such
a group. As the load was fitted to this very trace, fitted statistics lie closer than that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from boa_daemon.lab.traces.load_model import HOURS_PER_DAY, HOURS_PER_WEEK, DrawnArrivals, TraceLoad
from boa_daemon.traces.reader import Trace
from boa_daemon.units import SECONDS_PER_HOUR, counted
from policies.speedup import Floats

DRAWS = 300
LEVEL = 0.05
SOON_SECONDS = 60.0
QUANTILES = (0.1, 0.5, 0.9)
_BLOCK_HOURS, _QUARTERS = 6, 4
_INTERVAL = (0.025, 0.975)


@dataclass(frozen=True, slots=True, kw_only=True)
class FitStatistic:
    """One statistic of the trace, the mean of the draws, and the interval of 95 % of them."""

    name: str
    seen: float
    drawn: float
    low: float
    high: float

    @property
    def is_inside(self) -> bool:
        """Whether the trace's value lies in the interval."""
        return self.low <= self.seen <= self.high

    def to_document(self) -> dict[str, Any]:
        """Return the fields as a JSON object."""
        return {"name": self.name, "seen": self.seen, "drawn": self.drawn, "low": self.low, "high": self.high}


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticGroup:
    """Related statistics; `chance` is the fraction of the draws that are as far off as the trace."""

    name: str
    figures: tuple[FitStatistic, ...]
    worst: FitStatistic
    chance: float
    is_like: bool

    @property
    def outside(self) -> int:
        """Number of statistics outside their intervals; one in twenty is expected."""
        return sum(not figure.is_inside for figure in self.figures)

    def to_document(self) -> dict[str, Any]:
        """Return the fields as a JSON object."""
        return {
            "name": self.name,
            "is_like": self.is_like,
            "chance": self.chance,
            "outside": self.outside,
            "figures": [figure.to_document() for figure in self.figures],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class GoodnessOfFit:
    """The comparison of a trace with its fitted load, by group."""

    draws: int
    groups: tuple[StatisticGroup, ...]

    @property
    def is_like(self) -> bool:
        """Whether no group rejects the fit."""
        return all(group.is_like for group in self.groups)

    @property
    def sentence(self) -> str:
        """The result of the comparison as a sentence."""
        wrong = [group for group in self.groups if not group.is_like]
        if not wrong:
            return f"Drawn load is like the trace: all {len(self.groups)} groups of figures agree."
        told = "; ".join(
            f"{group.name}: {group.worst.name} {group.worst.seen:.4g} where draws have "
            f"{group.worst.low:.4g} to {group.worst.high:.4g}"
            for group in wrong
        )
        return f"Drawn load is NOT like the trace in {counted(len(wrong), 'group')} of figures: {told}."

    def to_document(self) -> dict[str, Any]:
        """Return the fields as a JSON object."""
        return {
            "is_like": self.is_like,
            "draws": self.draws,
            "groups": [group.to_document() for group in self.groups],
        }


def goodness_of_fit(trace: Trace, load: TraceLoad, *, draws: int = DRAWS, seed: int = 0) -> GoodnessOfFit:
    """Compare a trace with `draws` draws of a load. Cost: draws x (hours + jobs)."""
    names = load.class_names
    known = {name: number for number, name in enumerate(names)}
    begin = trace.jobs[0].arrived_at_seconds
    own = DrawnArrivals(
        seconds=np.array([job.arrived_at_seconds - begin for job in trace.jobs]),
        kinds=np.array([known[job.class_name] for job in trace.jobs]),
        scales=np.array([job.scale for job in trace.jobs]),
    )
    seen = _figures(own, load.hours, names)
    dice = np.random.default_rng([seed, 0x11CE])
    drawn = [_figures(load.arrivals(load.hours, dice=dice), load.hours, names) for _ in range(draws)]
    level = LEVEL / len(seen)
    return GoodnessOfFit(
        draws=draws,
        groups=tuple(
            _group(name, figures, np.array([list(one[name].values()) for one in drawn]), level)
            for name, figures in seen.items()
        ),
    )


def _group(name: str, seen: Mapping[str, float], drawn: Floats, level: float) -> StatisticGroup:
    """Return one group; `drawn` has a row for each draw and a column for each statistic."""
    values = np.array(list(seen.values()))
    mean, spread = drawn.mean(axis=0), drawn.std(axis=0)
    # A statistic that is equal in all draws must match exactly.
    spread = np.maximum(spread, 1e-6 * np.maximum(np.abs(mean), 1e-6))
    off = ((values - mean) / spread) ** 2
    distances = (((drawn - mean) / spread) ** 2).mean(axis=1)
    chance = (1.0 + float((distances >= off.mean()).sum())) / (1.0 + len(drawn))
    low, high = np.quantile(drawn, _INTERVAL, axis=0)
    figures = tuple(
        FitStatistic(name=own, seen=float(value), drawn=float(m), low=float(a), high=float(b))
        for own, value, m, a, b in zip(seen, values, mean, low, high, strict=True)
    )
    return StatisticGroup(
        name=name,
        figures=figures,
        worst=figures[int(off.argmax())],
        chance=chance,
        is_like=chance >= level,
    )


def _figures(found: DrawnArrivals, hours: float, names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return the statistics of arrivals by group: the same keys for the same hours and classes."""
    in_all = max(1, math.ceil(hours))
    at = np.minimum((found.seconds / SECONDS_PER_HOUR).astype(np.int64), in_all - 1)
    by_hour = np.bincount(at, minlength=in_all).astype(float)
    of_week = np.bincount(at % HOURS_PER_WEEK, minlength=min(in_all, HOURS_PER_WEEK))
    days = np.bincount(at // HOURS_PER_DAY, minlength=math.ceil(in_all / HOURS_PER_DAY))
    gaps = np.diff(found.seconds)
    blocks = (at % HOURS_PER_DAY) // _BLOCK_HOURS
    quarter = np.minimum((_QUARTERS * at) // in_all, _QUARTERS - 1)
    groups: dict[str, dict[str, float]] = {
        "jobs": {"in all": float(len(at))},
        "hours of week": {f"hour {hour}": float(jobs) for hour, jobs in enumerate(of_week)},
        "days": {f"day {day}": float(jobs) for day, jobs in enumerate(days)},
        "bursts": {
            "variance/mean": float(by_hour.var() / max(by_hour.mean(), 1e-9)),
            "hour after hour": _correlation(by_hour[:-1], by_hour[1:]),
        },
        "gaps": {
            "within 1 s": _part(gaps <= 1.0),
            f"within {SOON_SECONDS:g} s": _part(gaps <= SOON_SECONDS),
        },
        "classes": {},
        "classes by hour": {},
        "sizes": {},
        "work over time": {},
    }
    for number, name in enumerate(names):
        own = found.kinds == number
        scales = found.scales[own]
        groups["classes"][name] = _part(own)
        for block in range(min(HOURS_PER_DAY // _BLOCK_HOURS, math.ceil(in_all / _BLOCK_HOURS))):
            key = f"{name} {block * _BLOCK_HOURS}-{(block + 1) * _BLOCK_HOURS} h"
            groups["classes by hour"][key] = float((own & (blocks == block)).sum())
        quantiles = np.quantile(scales, QUANTILES) if len(scales) else np.zeros(len(QUANTILES))
        for part, value in zip(QUANTILES, quantiles, strict=True):
            groups["sizes"][f"{name} p{100.0 * part:.0f}"] = float(value)
        groups["sizes"][f"{name} mean"] = float(scales.mean()) if len(scales) else 0.0
        for one in range(_QUARTERS):
            work = found.scales[own & (quarter == one)].sum()
            groups["work over time"][f"{name} quarter {one + 1}"] = float(work)
    return groups


def _part(of: Any) -> float:
    """Return the fraction of true values; 0 for no values."""
    return float(np.mean(of)) if len(of) else 0.0


def _correlation(one: Floats, other: Floats) -> float:
    """Return the correlation of two rows; 0 if one of them is constant."""
    if len(one) < 2 or not (one.std() and other.std()):
        return 0.0
    return float(np.corrcoef(one, other)[0, 1])
