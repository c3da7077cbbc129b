"""Load like that of a trace: rates by hour of the week, bursts, classes and sizes are fitted, and drawn.

A trace says how many jobs came in each hour. The rate of an hour of the week is their mean, drawn towards
that of its hour of the day, and this towards the mean of all, by as much as `PRIOR_HOURS` of watching weigh:
a trace of two days says little of Sundays. Where hours of equal rate differ more than chance lets them, each
hour's rate is drawn from a gamma distribution round it, and arrivals come in bursts as those of the trace do.

    symbol   here           meaning
    n_h      counts         jobs of hour h of the trace
    r_w      rates          jobs per hour in hour w of the week, hour 0 the trace's first
    v        burstiness     variance of an hour's rate over its square: var n = r + v r^2
    p_c      class_parts    part of the jobs that are of class c

Jobs of a class are as large as some job of the class was. Less than two weeks do not tell bursts from busy
hours of single days. Not fitted: whether loads grow from week to week,
classes that come at different hours, and jobs that come because another one ended.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from boa_daemon.errors import InputError
from boa_daemon.traces.reader import Trace, TraceJob
from boa_daemon.units import SECONDS_PER_HOUR
from policies.speedup import Floats, Ints

HOURS_PER_DAY, HOURS_PER_WEEK = 24, 168
PRIOR_HOURS = 1.0
LEAST_JOBS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceLoad:
    """What a trace is like. `rates` has an entry for each hour of the week, jobs per hour."""

    rates: tuple[float, ...]
    burstiness: float
    class_parts: Mapping[str, float]
    scales: Mapping[str, tuple[float, ...]]

    def draw(self, hours: float, *, seed: int, load: float = 1.0, bursts: float | None = None) -> Trace:
        """Return arrivals of so many hours; `load` multiplies rates, `bursts` replaces the burstiness.

        Raises:
            InputError: when nothing arrives.
        """
        dice = np.random.default_rng([seed, 0xB0A])
        names = sorted(self.class_parts)
        parts = np.array([self.class_parts[name] for name in names])
        spread = self.burstiness if bursts is None else bursts
        times: list[float] = []
        for hour in range(math.ceil(hours)):
            rate = load * self.rates[hour % HOURS_PER_WEEK] * min(1.0, hours - hour)
            factor = dice.gamma(1.0 / spread, spread) if spread > 0.0 else 1.0
            within = dice.random(int(dice.poisson(rate * factor))) * min(1.0, hours - hour)
            times += (SECONDS_PER_HOUR * (hour + np.sort(within))).tolist()
        if not times:
            raise InputError(f"nothing arrives in {hours:g} hours of this load", hint="Ask for more hours")
        classes = dice.choice(len(names), size=len(times), p=parts / parts.sum())
        jobs = []
        for number, (at, kind) in enumerate(zip(times, classes, strict=True)):
            name = names[int(kind)]
            scale = self.scales[name][int(dice.integers(len(self.scales[name])))]
            jobs.append(TraceJob(f"{name}-{number}", at, name, scale))
        return Trace(tuple(jobs))


def fitted(trace: Trace) -> TraceLoad:
    """Return what a trace is like.

    Raises:
        InputError: when it has too few jobs to say.
    """
    if len(trace.jobs) < LEAST_JOBS or not trace.window_hours:
        raise InputError(f"a load is fitted to {LEAST_JOBS} jobs or more; got {len(trace.jobs)}")
    begin = trace.jobs[0].arrived_at_seconds
    at = np.array([job.arrived_at_seconds - begin for job in trace.jobs]) / SECONDS_PER_HOUR
    # Hours that were watched, the last of them in part.
    hours = max(1, math.ceil(trace.window_hours))
    watched = np.minimum(1.0, trace.window_hours - np.arange(hours))
    counts = np.bincount(np.minimum(at.astype(int), hours - 1), minlength=hours).astype(float)
    rates = _rates(counts, watched)
    slots = np.arange(hours) % HOURS_PER_WEEK
    expected = rates[slots] * watched
    # The moments of a gamma mixture of Poisson counts; less than chance is no burstiness. An hour has a part
    # in its own rate, and so differs less from it: by this factor.
    seen = np.bincount(slots, weights=watched, minlength=HOURS_PER_WEEK)[slots]
    part = watched / (seen + PRIOR_HOURS)
    less = (1.0 - part) ** 2 + (seen - watched) * part**2
    extra = float(((counts - expected) ** 2 - less * expected).sum() / (less * expected**2).sum())
    scales: dict[str, list[float]] = {}
    for job in trace.jobs:
        scales.setdefault(job.class_name, []).append(job.scale)
    return TraceLoad(
        rates=tuple(rates.tolist()),
        burstiness=max(0.0, extra),
        class_parts={name: len(own) / len(trace.jobs) for name, own in sorted(scales.items())},
        scales={name: tuple(own) for name, own in sorted(scales.items())},
    )


def _rates(counts: Floats, watched: Floats) -> Floats:
    """Return jobs per hour for each hour of the week, each drawn towards what is less particular."""
    hour = np.arange(len(counts), dtype=np.int64)
    overall = float(counts.sum() / watched.sum())
    of_day = _towards(np.full(HOURS_PER_DAY, overall), hour % HOURS_PER_DAY, counts, watched)
    usual = of_day[np.arange(HOURS_PER_WEEK) % HOURS_PER_DAY]
    rates = _towards(usual, hour % HOURS_PER_WEEK, counts, watched)
    # As many jobs as there were, in the hours that were watched.
    expected = float((rates[hour % HOURS_PER_WEEK] * watched).sum())
    return np.asarray(rates * (counts.sum() / expected))


def _towards(usual: Floats, slots: Ints, counts: Floats, watched: Floats) -> Floats:
    """Return a rate for each slot: what came in it, and the usual as if that had been watched a while."""
    came = np.bincount(slots, weights=counts, minlength=len(usual))
    seen = np.bincount(slots, weights=watched, minlength=len(usual))
    return np.asarray((came + PRIOR_HOURS * usual) / (seen + PRIOR_HOURS))
