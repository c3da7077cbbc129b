"""Load like that of a trace: rates by hour of the week, growth, bursts, classes, sizes are fitted and drawn.

A trace says how many submissions came in each hour. The rate of an hour of the week is their mean, drawn
towards that of its hour of the day, and this towards the mean of all, by as much as `PRIOR_HOURS` of watching
weigh: a trace of two days says little of Sundays. Each hour of the day has its own mix of classes, drawn
towards that of all hours by as much as hours differ no more than chance lets them. Where hours of equal rate
differ more than chance lets them, each hour's rate is drawn from a gamma distribution round it, and arrivals
come in bursts as those of the trace do. Two weeks or more tell whether the load grows from week to week.

    symbol   here              meaning
    n_h      counts            submissions in hour h of the trace
    r_cw     rates             submissions of class c per hour in hour w of the week, hour 0 the trace's first
    g        growth_per_week   n_h ~ r_w exp(g t), t in weeks from the middle of the trace; kept where it is
                               more than `GROWTH_ERRORS` of its standard errors
    v        burstiness        variance of an hour's rate over its square: var n = r + v r^2
    rho      alike             how alike jobs of one hour of the day are: E chi^2 = (C-1) sum(1 + (n-1) rho)

Jobs of one class that come within `TOGETHER_SECONDS` of each other are one submission, a sweep say, and a
submission that is drawn is one that was seen: as many jobs, as large. So each class has, on average, the jobs
and the work of the trace. Less than two weeks do not tell bursts from busy hours of single days. Not fitted:
jobs that come because another one ended, and sizes or classes that change over weeks; `likeness` tells.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from boa_daemon.errors import InputError
from boa_daemon.traces.reader import Trace, TraceJob
from boa_daemon.units import SECONDS_PER_HOUR
from policies.speedup import Floats, Ints

Submission: TypeAlias = tuple[tuple[float, float], ...]
"""Seconds after its first job, and scale, of each job."""
HOURS_PER_DAY, HOURS_PER_WEEK, DAYS_PER_WEEK = 24, 168, 7
PRIOR_HOURS = 1.0
LEAST_JOBS = 10
TOGETHER_SECONDS = 1.0
GROWTH_ERRORS = 2.0
_NEWTON_STEPS = 25
_MOST_ALIKE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnArrivals:
    """Jobs in order of time: seconds from the first hour's start, number of the class by name, and scale."""

    seconds: Floats
    kinds: Ints
    scales: Floats


@dataclass(frozen=True, kw_only=True)
class TraceLoad:
    """What a trace is like. `rates` has for each class submissions per hour in each hour of the week.

    `growth_per_week` is that of the logarithm of the rate over the `hours` that were watched; afterwards the
    load stays as it is. `growth_error` is its standard error, None where it was not looked for.
    """

    rates: Mapping[str, tuple[float, ...]]
    burstiness: float
    submissions: Mapping[str, tuple[Submission, ...]]
    hours: float
    growth_per_week: float = 0.0
    growth_error: float | None = None

    @property
    def class_names(self) -> list[str]:
        """The classes, in the order of their numbers."""
        return sorted(self.rates)

    def arrivals(
        self, hours: float, *, dice: np.random.Generator, load: float = 1.0, bursts: float | None = None
    ) -> DrawnArrivals:
        """Return arrivals of so many hours. Cost: O(hours + jobs), in numpy."""
        names = self.class_names
        table = np.array([self.rates[name] for name in names])
        spread = self.burstiness if bursts is None else bursts
        hour = np.arange(math.ceil(hours))
        slots, width = hour % HOURS_PER_WEEK, np.minimum(1.0, hours - hour)
        means = load * table.sum(axis=0)[slots] * width * growth(hour, self.hours, self.growth_per_week)
        factors = dice.gamma(1.0 / spread, spread, len(hour)) if spread > 0.0 else np.ones(len(hour))
        at = np.repeat(hour, dice.poisson(means * factors))
        began = np.sort(at + dice.random(len(at)) * width[at])
        # Which class: where a number between 0 and 1 falls in the parts of the hour.
        parts = np.cumsum(table, axis=0) / np.maximum(table.sum(axis=0), 1e-300)
        kinds = (dice.random(len(at)) > parts[:-1, slots[at]]).sum(axis=0)
        first, among, after, scale = self._flat
        of_class = np.append(first, len(among) - 1)
        choice = first[kinds] + (dice.random(len(at)) * (of_class[kinds + 1] - first[kinds])).astype(np.int64)
        jobs = among[choice + 1] - among[choice]
        # The jobs of each submission, one after another.
        index = np.arange(jobs.sum()) + np.repeat(among[choice] - (np.cumsum(jobs) - jobs), jobs)
        seconds = np.minimum(
            np.repeat(began * SECONDS_PER_HOUR, jobs) + after[index], hours * SECONDS_PER_HOUR
        )
        order = np.argsort(seconds, kind="stable")
        return DrawnArrivals(
            seconds=seconds[order], kinds=np.repeat(kinds, jobs)[order], scales=scale[index][order]
        )

    @cached_property
    def _flat(self) -> tuple[Ints, Ints, Floats, Floats]:
        """Return the submissions in rows.

        The first submission of each class; where the jobs of each submission begin, and the end of all;
        seconds and scale of each job.
        """
        per_class = [self.submissions[name] for name in self.class_names]
        every = [own for submissions in per_class for own in submissions]
        first = np.cumsum([0, *map(len, per_class)])[:-1]
        among = np.cumsum([0, *map(len, every)])
        jobs = np.array([job for own in every for job in own])
        return first, among, jobs[:, 0], jobs[:, 1]

    def draw(self, hours: float, *, seed: int, load: float = 1.0, bursts: float | None = None) -> Trace:
        """Return a trace of so many hours; `load` multiplies rates, `bursts` replaces the burstiness.

        Raises:
            InputError: when nothing arrives.
        """
        dice = np.random.default_rng([seed, 0xB0A])
        found = self.arrivals(hours, dice=dice, load=load, bursts=bursts)
        if not len(found.seconds):
            raise InputError(f"nothing arrives in {hours:g} hours of this load", hint="Ask for more hours")
        names = self.class_names
        rows = zip(found.seconds.tolist(), found.kinds.tolist(), found.scales.tolist(), strict=True)
        return Trace(
            tuple(
                TraceJob(f"{names[kind]}-{number}", at, names[kind], scale)
                for number, (at, kind, scale) in enumerate(rows)
            )
        )


def fit_load(trace: Trace) -> TraceLoad:
    """Return what a trace is like.

    Raises:
        InputError: when it has too few jobs to say, or all at one instant.
    """
    if len(trace.jobs) < LEAST_JOBS:
        raise InputError(f"a load is fitted to {LEAST_JOBS} jobs or more; got {len(trace.jobs)}")
    if not trace.window_hours:
        raise InputError(f"a load is fitted to arrivals over time; all {len(trace.jobs)} came at one instant")
    began, names, submissions = _submissions(trace)
    # Hours that were watched, the last of them in part.
    hours = max(1, math.ceil(trace.window_hours))
    watched = np.minimum(1.0, trace.window_hours - np.arange(hours))
    at = np.minimum((began / SECONDS_PER_HOUR).astype(np.int64), hours - 1)
    counts = np.bincount(at, minlength=hours).astype(float)
    grows, error = _growth(counts, watched)
    exposed = watched * growth(np.arange(hours), trace.window_hours, grows)
    rates = _rates(counts, exposed)
    numbers = {name: number for number, name in enumerate(sorted(submissions))}
    kinds = np.array([numbers[name] for name in names])
    return TraceLoad(
        rates=_by_class(rates, at, kinds, exposed, list(numbers)),
        burstiness=_burstiness(counts, exposed, rates),
        submissions={name: tuple(own) for name, own in sorted(submissions.items())},
        hours=trace.window_hours,
        growth_per_week=grows,
        growth_error=error,
    )


def growth(hour: Ints, hours: float, per_week: float) -> Floats:
    """Return the factor on the rate of each hour: 1 in the middle of those watched, constant after them."""
    weeks = (np.minimum(hour + 0.5, hours) - 0.5 * hours) / HOURS_PER_WEEK
    return np.asarray(np.exp(per_week * weeks))


def _submissions(trace: Trace) -> tuple[Floats, Sequence[str], dict[str, list[Submission]]]:
    """Return when each submission came, seconds from the first, of which class, and those of each class."""
    begin = trace.jobs[0].arrived_at_seconds
    began: list[float] = []
    names: list[str] = []
    jobs: list[list[tuple[float, float]]] = []
    latest: dict[str, tuple[int, float]] = {}
    for job in trace.jobs:
        at = job.arrived_at_seconds - begin
        number, last = latest.get(job.class_name, (0, -math.inf))
        if at - last > TOGETHER_SECONDS:
            number = len(began)
            began.append(at)
            names.append(job.class_name)
            jobs.append([])
        jobs[number].append((at - began[number], job.scale))
        latest[job.class_name] = number, at
    by_class: dict[str, list[Submission]] = {}
    for name, own in zip(names, jobs, strict=True):
        by_class.setdefault(name, []).append(tuple(own))
    return np.array(began), names, by_class


def _growth(counts: Floats, watched: Floats) -> tuple[float, float | None]:
    """Return the growth of the logarithm per week, 0 where chance would make as much, and its error.

    Hours are beside the same hour of other weeks alone, so no rhythm is taken for growth. The error is that
    of Poisson counts, widened by how much more hours, or whole days, differ.
    """
    if len(counts) < 2 * HOURS_PER_WEEK:
        return 0.0, None
    hour = np.arange(len(counts), dtype=np.int64)
    slots, weeks = hour % HOURS_PER_WEEK, (hour + 0.5 - 0.5 * len(counts)) / HOURS_PER_WEEK
    came = np.bincount(slots, weights=counts, minlength=HOURS_PER_WEEK)
    found = information = 0.0
    for _ in range(_NEWTON_STEPS):
        weights = watched * np.exp(found * weeks)
        in_all = np.bincount(slots, weights=weights, minlength=HOURS_PER_WEEK)
        mean = np.bincount(slots, weights=weights * weeks, minlength=HOURS_PER_WEEK) / in_all
        square = np.bincount(slots, weights=weights * weeks**2, minlength=HOURS_PER_WEEK) / in_all
        information = float((came * (square - mean**2)).sum())
        step = float((counts * weeks).sum() - (came * mean).sum()) / information
        found = min(max(found + step, -5.0), 5.0)
    expected = weights * (came / in_all)[slots]
    days = hour // HOURS_PER_DAY
    by_day, expected_by_day = (np.bincount(days, weights=one).astype(float) for one in (counts, expected))
    dispersion = max(
        1.0,
        _dispersion(counts, expected, HOURS_PER_WEEK + 1),
        _dispersion(by_day, expected_by_day, DAYS_PER_WEEK + 1),
    )
    error = math.sqrt(dispersion / information)
    return (found if abs(found) > GROWTH_ERRORS * error else 0.0), error


def _dispersion(counts: Floats, expected: Floats, fitted_values: int) -> float:
    """Return the variance of counts over what chance makes it, after so many values were fitted."""
    some = expected > 0.0
    excess = float(((counts[some] - expected[some]) ** 2 / expected[some]).sum())
    return excess / max(len(counts) - fitted_values, 1)


def _burstiness(counts: Floats, exposed: Floats, rates: Floats) -> float:
    """Return the variance of an hour's rate over its square, by the moments of a gamma mixture of Poisson.

    Less than chance is no burstiness. An hour has a part in its own rate, and so differs less from it.
    """
    slots = np.arange(len(counts)) % HOURS_PER_WEEK
    expected = rates[slots] * exposed
    seen = np.bincount(slots, weights=exposed, minlength=HOURS_PER_WEEK)[slots]
    part = exposed / (seen + PRIOR_HOURS)
    less = (1.0 - part) ** 2 + (seen - exposed) * part**2
    extra = float(((counts - expected) ** 2 - less * expected).sum() / (less * expected**2).sum())
    return max(0.0, extra)


def _rates(counts: Floats, watched: Floats) -> Floats:
    """Return submissions per hour for each hour of the week, each drawn towards what is less particular."""
    hour = np.arange(len(counts), dtype=np.int64)
    overall = float(counts.sum() / watched.sum())
    of_day = _towards(np.full(HOURS_PER_DAY, overall), hour % HOURS_PER_DAY, counts, watched)
    usual = of_day[np.arange(HOURS_PER_WEEK) % HOURS_PER_DAY]
    rates = _towards(usual, hour % HOURS_PER_WEEK, counts, watched)
    # As many as there were, in the hours that were watched.
    expected = float((rates[hour % HOURS_PER_WEEK] * watched).sum())
    return np.asarray(rates * (counts.sum() / expected))


def _towards(usual: Floats, slots: Ints, counts: Floats, watched: Floats) -> Floats:
    """Return a rate for each slot: what came in it, and the usual as if that had been watched a while."""
    came = np.bincount(slots, weights=counts, minlength=len(usual))
    seen = np.bincount(slots, weights=watched, minlength=len(usual))
    return np.asarray((came + PRIOR_HOURS * usual) / (seen + PRIOR_HOURS))


def _by_class(
    rates: Floats, at: Ints, kinds: Ints, exposed: Floats, names: Sequence[str]
) -> dict[str, tuple[float, ...]]:
    """Return the rates of each class: that of the hour of the week, by the parts of its hour of the day."""
    counts = np.zeros((HOURS_PER_DAY, len(names)))
    np.add.at(counts, (at % HOURS_PER_DAY, kinds), 1.0)
    in_all, of_hour = counts.sum(axis=0), counts.sum(axis=1)
    parts = np.tile(in_all / in_all.sum(), (HOURS_PER_DAY, 1))
    expected = of_hour[:, None] * parts
    some = of_hour > 0.0
    rest = 1.0 - of_hour / of_hour.sum()
    weight = float((rest * np.maximum(of_hour - 1.0, 0.0)).sum())
    if len(names) > 1 and weight > 0.0:
        chance = float(((counts[some] - expected[some]) ** 2 / expected[some]).sum()) / (len(names) - 1)
        alike = min((chance - float(rest[some].sum())) / weight, _MOST_ALIKE)
        if alike > 0.0:
            prior = 1.0 / alike - 1.0
            parts = (counts + prior * parts) / (of_hour + prior)[:, None]
    slot = np.arange(HOURS_PER_WEEK)
    table = rates[:, None] * parts[slot % HOURS_PER_DAY]
    # Each class as often as it came, in the hours that were watched.
    hours = np.arange(len(exposed)) % HOURS_PER_WEEK
    table *= in_all / (table[hours] * exposed[:, None]).sum(axis=0)
    return {name: tuple(table[:, number].tolist()) for number, name in enumerate(names)}
