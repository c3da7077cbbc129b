"""How often jobs come and how large they are: what a class file says, corrected by what was seen, with intervals.

Rates. Arrivals of a class are a Poisson stream of unknown rate with a Gamma prior, older hours counting less:

    rate ~ Gamma(a + N / phi, a / r + T / phi)

    symbol   here                meaning
    r, a     prior, prior_jobs   the rate that was stated, and how many arrivals its word is worth
    N, T     counts, hours       arrivals and hours, each times 0.5^(age / half-life)
    phi      dispersion          variance over mean of the counts; 1 for a Poisson stream, n for jobs in groups of n

Dividing by phi lets a burst count as what it is, one event, in the mean as in the interval. It is the larger of
what hours and minutes say, shrunk towards 1 while few jobs have come. The hour in which a class was first seen
begins the count with it: a class that was never seen keeps what was stated.

Sizes. The logarithm of the work of a job over what was stated is normal, of unknown mean and spread:

    y = log(work / stated) ~ N(eta - sigma^2 / 2, sigma^2),   exp(eta) the mean size over the stated one
    eta ~ N(0, SPREAD^2 / prior_jobs),   log sigma ~ N(log SPREAD, 1)

A job that ended is a point y, older ones counting less; one that still runs, or was stopped by its user, is only
known to be larger than what it did: it counts P(y > c). The posterior is laid out on a grid over (eta, sigma) that
closes in on where its mass is. What ended is needed as weight, mean and squares only, which add up.

Cost: O(hours) for a rate, O(grid x distinct bounds) for a size, some milliseconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaincinv, log_ndtr

from policies.model import check_positive
from policies.speedup import Floats

LEVEL = 0.95
"""Of the intervals: the part of the belief that lies inside."""
SPREAD = 0.7
"""Prior guess of the spread of log sizes within a class: one job in three is off by more than a factor of two."""
FEW = 4.0
"""So many arrivals make half of their own dispersion believed."""
MINUTES = 60.0
_ETAS, _SIGMAS, _BOUNDS, _PASSES = 96, 32, 32, 4
_LEAST_SIGMA, _MOST_SIGMA = 0.02, 2.5
_NEGLIGIBLE = 1e-7


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """What is believed of a positive number: its centre, and an interval that holds it in 95 cases of 100.

    `weight` is how many observations stand behind it, old ones counting less; 0 where only the prior speaks.
    """

    mean: float
    low: float
    high: float
    weight: float = 0.0

    def __post_init__(self) -> None:
        for name in ("mean", "low", "high"):
            check_positive(f"{name} of a belief", getattr(self, name))
        check_positive("weight of a belief", self.weight, zero=True)

    def times(self, factor: float) -> Belief:
        """Return the belief about a multiple of the number."""
        return Belief(
            mean=self.mean * factor, low=self.low * factor, high=self.high * factor, weight=self.weight
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Arrivals by hour: `jobs` of each hour, and the `squares` of the counts of its minutes; shape (hours,).

    `ages` are hours from the middle of each hour to now. Hours without arrivals are there with zeros.
    """

    jobs: Floats
    squares: Floats
    ages: Floats

    def decayed(self, half_life_hours: float) -> Floats:
        """Return the weight of each hour."""
        return np.asarray(0.5 ** (np.maximum(self.ages, 0.0) / half_life_hours))


def estimate_rate(
    stated_per_hour: float, counts: Counts | None, *, prior_jobs: float, half_life_hours: float
) -> Belief:
    """Return the arrival rate, jobs per hour; with no counts it is what was stated.

    Raises:
        InvalidProblem: when a number that must be positive is not.
    """
    for name, value in (
        ("stated_per_hour", stated_per_hour),
        ("prior_jobs", prior_jobs),
        ("half_life_hours", half_life_hours),
    ):
        check_positive(name, value)
    jobs, hours, phi = 0.0, 0.0, 1.0
    if counts is not None and len(counts.jobs):
        weights = counts.decayed(half_life_hours)
        jobs, hours = float(weights @ counts.jobs), float(weights.sum())
        phi = dispersion(counts, weights)
    shape = prior_jobs + jobs / phi
    exposure = prior_jobs / stated_per_hour + hours / phi
    tail = 0.5 * (1.0 - LEVEL)
    low, high = gammaincinv(shape, np.array([tail, 1.0 - tail])) / exposure
    mean = shape / exposure
    # A weak prior puts its lower end at zero to within rounding; a belief stays positive.
    return Belief(mean=mean, low=max(float(low), mean * 1e-12), high=float(high), weight=jobs)


def dispersion(counts: Counts, weights: Floats) -> float:
    """Return variance over mean of the counts, at least 1: what hours say or what minutes say, if that is more."""
    jobs, hours = float(weights @ counts.jobs), float(weights.sum())
    if jobs <= 0.0 or hours <= 0.0:
        return 1.0
    mean = jobs / hours
    by_hour = float(weights @ (counts.jobs - mean) ** 2) / hours / mean
    by_minute = float(weights @ counts.squares) / jobs - mean / MINUTES
    return 1.0 + max(by_hour - 1.0, by_minute - 1.0, 0.0) * jobs / (jobs + FEW)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSizes:
    """Logarithms of sizes, added up: how many (old ones less), their mean, and their squares about it."""

    weight: float = 0.0
    mean: float = 0.0
    squares: float = 0.0

    @classmethod
    def of(cls, logs: Floats, weights: Floats | None = None) -> LogSizes:
        """Add up values, each with its weight."""
        logs = np.asarray(logs, dtype=float)
        each = np.ones(len(logs)) if weights is None else np.asarray(weights, dtype=float)
        total = float(each.sum())
        if total <= 0.0:
            return cls()
        mean = float(each @ logs) / total
        return cls(weight=total, mean=mean, squares=float(each @ (logs - mean) ** 2))

    def plus(self, other: LogSizes) -> LogSizes:
        """Return both together."""
        weight = self.weight + other.weight
        if weight <= 0.0:
            return LogSizes()
        apart = other.mean - self.mean
        return LogSizes(
            weight=weight,
            mean=self.mean + apart * other.weight / weight,
            squares=self.squares + other.squares + apart**2 * self.weight * other.weight / weight,
        )

    def times(self, factor: float) -> LogSizes:
        """Return them counting so much less."""
        return LogSizes(weight=self.weight * factor, mean=self.mean, squares=self.squares * factor)


def estimate_size(
    ended: LogSizes, bounds: Floats, bound_weights: Floats | None = None, *, prior_jobs: float
) -> Belief:
    """Return the mean size of the jobs of a class over the stated one.

    `ended` are logarithms of work over what was stated, of jobs that ended by themselves; `bounds` are those of
    jobs that did so much and have not ended. They never make the mean smaller than it is without them.

    Raises:
        InvalidProblem: when `prior_jobs` is not positive.
    """
    check_positive("prior_jobs", prior_jobs)
    bounds = np.asarray(bounds, dtype=float)
    weights = np.ones(len(bounds)) if bound_weights is None else np.asarray(bound_weights, dtype=float)
    bounds, weights = _grouped(bounds, weights)
    found = _posterior(ended, bounds, weights, prior_jobs)
    if len(bounds):
        # A bound that says little also says that sizes spread little, which could lower the mean a bit.
        found = np.maximum(found, _posterior(ended, bounds[:0], weights[:0], prior_jobs))
    mean, low, high = (math.exp(value) for value in found)
    return Belief(mean=mean, low=low, high=high, weight=ended.weight)


def _grouped(bounds: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Return at most `_BOUNDS` bounds: neighbours are taken together at their mean."""
    if len(bounds) <= _BOUNDS:
        return bounds, weights
    order = np.argsort(bounds)
    groups = np.array_split(order, _BOUNDS)
    total = np.array([weights[group].sum() for group in groups])
    mean = np.array([np.average(bounds[group], weights=weights[group] + 1e-300) for group in groups])
    return mean, total


def _posterior(ended: LogSizes, bounds: Floats, weights: Floats, prior_jobs: float) -> Floats:
    """Return (mean, lower end, upper end) of eta on a grid that closes in on the mass."""
    scale = SPREAD / math.sqrt(prior_jobs)
    points = [0.0, *bounds.tolist(), *([ended.mean] if ended.weight else [])]
    low_eta, high_eta = min(points) - 5.0 * scale - 1.0, max(points) + 5.0 * scale + 1.0 + _MOST_SIGMA**2
    low_sigma, high_sigma = math.log(_LEAST_SIGMA), math.log(_MOST_SIGMA)
    for _ in range(_PASSES):
        etas = np.linspace(low_eta, high_eta, _ETAS)
        logs = np.linspace(low_sigma, high_sigma, _SIGMAS)
        density = _density(etas, logs, ended, bounds, weights, scale)
        of_eta, of_sigma = density.sum(axis=1), density.sum(axis=0)
        low_eta, high_eta = _inside(etas, of_eta)
        low_sigma, high_sigma = _inside(logs, of_sigma)
    etas = np.linspace(low_eta, high_eta, _ETAS)
    of_eta = _density(
        etas, np.linspace(low_sigma, high_sigma, _SIGMAS), ended, bounds, weights, scale
    ).sum(axis=1)
    of_eta /= of_eta.sum()
    below = np.cumsum(of_eta) - 0.5 * of_eta
    tail = 0.5 * (1.0 - LEVEL)
    low, high = np.interp([tail, 1.0 - tail], below, etas)
    return np.array([float(of_eta @ etas), low, high])


def _density(
    etas: Floats, log_sigmas: Floats, ended: LogSizes, bounds: Floats, weights: Floats, scale: float
) -> Floats:
    """Return the posterior on a grid, shape (etas, sigmas), its largest value being 1."""
    sigma = np.exp(log_sigmas)[None, :]
    theta = etas[:, None] - 0.5 * sigma**2
    log = -0.5 * (etas[:, None] / scale) ** 2 - 0.5 * (log_sigmas[None, :] - math.log(SPREAD)) ** 2
    log = log - ended.weight * np.log(sigma)
    log = log - 0.5 * (ended.squares + ended.weight * (ended.mean - theta) ** 2) / sigma**2
    if len(bounds):
        above = log_ndtr((theta[:, :, None] - bounds) / sigma[:, :, None])
        log = log + above @ weights
    return np.asarray(np.exp(log - log.max()))


def _inside(nodes: Floats, mass: Floats) -> tuple[float, float]:
    """Return the range of the nodes that have all but a negligible part of the mass, with a margin."""
    held = np.flatnonzero(mass > _NEGLIGIBLE * mass.max())
    step = float(nodes[1] - nodes[0])
    return float(nodes[held[0]]) - step, float(nodes[held[-1]]) + step
