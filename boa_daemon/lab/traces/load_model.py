"""Fit a load model to a trace, and draw load from it: hourly rates, growth, bursts, classes and sizes.

A trace has a count of submissions for each hour. The rate of an hour of the week is their mean, shrunk
towards the rate of its hour of the day, which is shrunk towards the overall mean; the prior weighs
`PRIOR_HOURS` of observation, because a trace of two days says little of Sundays. Each hour of the day has its
own mix of classes, shrunk towards the overall mix as far as chance explains the differences between hours. If
hours of equal rate differ more than by chance, each hour's rate is drawn from a gamma distribution around it,
and arrivals come in bursts like those of the trace. Two weeks or more show whether the load grows by week.

    symbol   here              meaning
    n_h      counts            submissions in hour h of the trace
    r_cw     rates             submissions of class c per hour in hour w of the week, hour 0 the trace's first
    g        growth_per_week   n_h ~ r_w exp(g t), t in weeks from the middle of the trace; kept if it is more
                               than `GROWTH_ERRORS` of its standard errors
    v        burstiness        variance of an hour's rate over its square: var n = r + v r^2
    rho      alike             similarity of jobs of one hour of the day: E chi^2 = (C-1) sum(1 + (n-1) rho)

Jobs of one class that arrive within `TOGETHER_SECONDS` of each other are one submission, for example a sweep.
A drawn submission repeats one of the trace, with as many jobs of the same sizes. So each class has, on
average, the jobs and the work of the trace. In less than two weeks, bursts cannot be told from busy hours of
single days. Not modelled: jobs that arrive because another one ended, and sizes or classes that change over
weeks; `goodness_of_fit` detects them.
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
"""Seconds after the first job, and scale, for each job."""
HOURS_PER_DAY, HOURS_PER_WEEK, DAYS_PER_WEEK = 24, 168, 7
PRIOR_HOURS = 1.0
LEAST_JOBS = 10
TOGETHER_SECONDS = 1.0
GROWTH_ERRORS = 2.0
_NEWTON_STEPS = 25
_MOST_ALIKE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnArrivals:
    """Jobs in order of time: seconds from the first hour's start, index of the class by name, and scale."""

    seconds: Floats
    kinds: Ints
    scales: Floats


@dataclass(frozen=True, kw_only=True)
class TraceLoad:
    """The fitted model of a trace.

    `rates` has the submissions per hour of each class in each hour of the week. `growth_per_week` is the
    growth of the logarithm of the rate over the observed `hours`; afterwards the rate stays constant.
    `growth_error` is its standard error, None if growth was not estimated.
    """

    rates: Mapping[str, tuple[float, ...]]
    burstiness: float
    submissions: Mapping[str, tuple[Submission, ...]]
    hours: float
    growth_per_week: float = 0.0
    growth_error: float | None = None

    @property
    def class_names(self) -> list[str]:
        """The classes, in the order of their indices."""
        return sorted(self.rates)

    def arrivals(
        self, hours: float, *, dice: np.random.Generator, load: float = 1.0, bursts: float | None = None
    ) -> DrawnArrivals:
        """Draw the arrivals of `hours` hours. Cost: O(hours + jobs), in numpy."""
        names = self.class_names
        table = np.array([self.rates[name] for name in names])
        spread = self.burstiness if bursts is None else bursts
        hour = np.arange(math.ceil(hours))
        slots, width = hour % HOURS_PER_WEEK, np.minimum(1.0, hours - hour)
        means = load * table.sum(axis=0)[slots] * width * growth(hour, self.hours, self.growth_per_week)
        factors = dice.gamma(1.0 / spread, spread, len(hour)) if spread > 0.0 else np.ones(len(hour))
        at = np.repeat(hour, dice.poisson(means * factors))
        began = np.sort(at + dice.random(len(at)) * width[at])
        # Draw the class: a uniform number falls into the cumulative fractions of the hour's classes.
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
        """Return the submissions as flat arrays.

        Index of each class's first submission; index of each submission's first job, and the number of jobs;
        seconds and scale of each job.
        """
        per_class = [self.submissions[name] for name in self.class_names]
        every = [own for submissions in per_class for own in submissions]
        first = np.cumsum([0, *map(len, per_class)])[:-1]
        among = np.cumsum([0, *map(len, every)])
        jobs = np.array([job for own in every for job in own])
        return first, among, jobs[:, 0], jobs[:, 1]

    def draw(self, hours: float, *, seed: int, load: float = 1.0, bursts: float | None = None) -> Trace:
        """Draw a trace of `hours` hours; `load` multiplies rates, `bursts` replaces the burstiness.

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
    """Fit the load model to a trace.

    Raises:
        InputError: when the trace has too few jobs, or all at one instant.
    """
    if len(trace.jobs) < LEAST_JOBS:
        raise InputError(f"a load is fitted to {LEAST_JOBS} jobs or more; got {len(trace.jobs)}")
    if not trace.window_hours:
        raise InputError(f"a load is fitted to arrivals over time; all {len(trace.jobs)} came at one instant")
    began, names, submissions = _submissions(trace)
    # Observed hours; the last one is partial.
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
    """Return the factor on each hour's rate: 1 in the middle of the observed hours, constant after them."""
    weeks = (np.minimum(hour + 0.5, hours) - 0.5 * hours) / HOURS_PER_WEEK
    return np.asarray(np.exp(per_week * weeks))


def _submissions(trace: Trace) -> tuple[Floats, Sequence[str], dict[str, list[Submission]]]:
    """Return each submission's time in seconds from the first, its class, and the submissions by class."""
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
    """Return the growth of the log rate per week, 0 if chance explains it, and its standard error.

    An hour is compared only with the same hour of other weeks, so that rhythms are not taken for growth. The
    error is that of Poisson counts, enlarged if hours or whole days vary more than Poisson counts.
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
    """Return the variance of counts relative to a Poisson variance, after fitting `fitted_values` values."""
    some = expected > 0.0
    excess = float(((counts[some] - expected[some]) ** 2 / expected[some]).sum())
    return excess / max(len(counts) - fitted_values, 1)


def _burstiness(counts: Floats, exposed: Floats, rates: Floats) -> float:
    """Return the variance of an hour's rate over its square, by the moments of a gamma-Poisson mixture.

    Less variance than Poisson counts as 0. An hour contributes to its own rate, so it differs less from it.
    """
    slots = np.arange(len(counts)) % HOURS_PER_WEEK
    expected = rates[slots] * exposed
    seen = np.bincount(slots, weights=exposed, minlength=HOURS_PER_WEEK)[slots]
    part = exposed / (seen + PRIOR_HOURS)
    less = (1.0 - part) ** 2 + (seen - exposed) * part**2
    extra = float(((counts - expected) ** 2 - less * expected).sum() / (less * expected**2).sum())
    return max(0.0, extra)


def _rates(counts: Floats, watched: Floats) -> Floats:
    """Return submissions per hour for each hour of the week, shrunk towards the less specific rates."""
    hour = np.arange(len(counts), dtype=np.int64)
    overall = float(counts.sum() / watched.sum())
    of_day = _towards(np.full(HOURS_PER_DAY, overall), hour % HOURS_PER_DAY, counts, watched)
    usual = of_day[np.arange(HOURS_PER_WEEK) % HOURS_PER_DAY]
    rates = _towards(usual, hour % HOURS_PER_WEEK, counts, watched)
    # Scale to the observed number of submissions in the observed hours.
    expected = float((rates[hour % HOURS_PER_WEEK] * watched).sum())
    return np.asarray(rates * (counts.sum() / expected))


def _towards(usual: Floats, slots: Ints, counts: Floats, watched: Floats) -> Floats:
    """Return a rate for each slot: its own count, shrunk towards `usual` with a weight of `PRIOR_HOURS`."""
    came = np.bincount(slots, weights=counts, minlength=len(usual))
    seen = np.bincount(slots, weights=watched, minlength=len(usual))
    return np.asarray((came + PRIOR_HOURS * usual) / (seen + PRIOR_HOURS))


def _by_class(
    rates: Floats, at: Ints, kinds: Ints, exposed: Floats, names: Sequence[str]
) -> dict[str, tuple[float, ...]]:
    """Return the rates of each class: the rate of the hour of the week times the class's fraction."""
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
    # Scale each class to its observed number of submissions in the observed hours.
    hours = np.arange(len(exposed)) % HOURS_PER_WEEK
    table *= in_all / (table[hours] * exposed[:, None]).sum(axis=0)
    return {name: tuple(table[:, number].tolist()) for number, name in enumerate(names)}
