"""How often jobs come and how large they are: a class file, corrected by what was seen, with intervals.

Rates. Arrivals of a class are a Poisson stream of unknown rate with a Gamma prior, older hours counting less:

    rate ~ Gamma(a + N / phi, a / r + T / phi)

    symbol   here                meaning
    r, a     prior, prior_jobs   the rate that was stated, and how many arrivals its word is worth
    N, T     counts, hours       arrivals and hours, each times 0.5^(age / half-life)
    phi      dispersion          variance over mean of the counts; 1 for a Poisson stream, n for groups of n

Dividing by phi lets a burst count as what it is, one event, in the mean as in the interval. It is the larger
of what hours and minutes say, shrunk towards 1 while few jobs have come. The hour in which a class was first
seen begins the count with it: a class that was never seen keeps what was stated.

Sizes. The work of a job over what was stated is Gamma distributed, of unknown mean and shape:

    x = work / stated ~ Gamma(k, k / m),   m the mean size over the stated one,   1/k the squared spread
    log m ~ N(0, SPREAD^2 / prior_jobs),   log k ~ N(-2 log SPREAD, DOUBT^2)

A job that ended is a point x, older ones counting less; one that still runs, or was stopped by its user, is
only known to be larger than what it did: it counts P(x > c). Of what ended, the weight, the mean and the mean
logarithm are all that is needed, and they add up. The best mean for given k is then the plain average, so a
job that ended at once is one small job and nothing worse; with logarithms alone it would make the spread, and
with it the mean, large. The posterior is laid out on a grid over (log m, log k) that closes in on where its
mass is.

Cost: O(hours) for a rate, O(grid x distinct bounds) for a size, some milliseconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaincinv, gammaln, log_ndtr

from policies.model import check_positive
from policies.speedup import Floats

LEVEL = 0.95
"""Of the intervals: the part of the belief that lies inside."""
SPREAD = 0.5
"""Prior guess of the spread of sizes within a class, standard deviation over mean."""
DOUBT = 1.5
"""Of that guess: the standard deviation of log k."""
FEW = 4.0
"""So many arrivals make half of their own dispersion believed."""
MINUTES = 60.0
_MEANS, _SHAPES, _BOUNDS, _PASSES = 64, 20, 12, 4
_LEAST_SHAPE, _MOST_SHAPE = 0.1, 2000.0
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
    """Arrivals by hour: `jobs` of each, and the `squares` of the counts of its minutes; shape (hours,).

    `ages` are hours from the middle of each to now, `hours` how much of each was watched, at most one. Hours
    without arrivals are there with zeros.
    """

    jobs: Floats
    squares: Floats
    ages: Floats
    hours: Floats

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
        jobs, hours = float(weights @ counts.jobs), float(weights @ counts.hours)
        believed = (prior_jobs + jobs) / (prior_jobs / stated_per_hour + hours)
        phi = dispersion(counts, weights, believed_per_hour=believed)
    shape = prior_jobs + jobs / phi
    exposure = prior_jobs / stated_per_hour + hours / phi
    tail = 0.5 * (1.0 - LEVEL)
    low, high = gammaincinv(shape, np.array([tail, 1.0 - tail])) / exposure
    mean = shape / exposure
    # A weak prior puts its lower end at zero to within rounding; a belief stays positive.
    return Belief(mean=mean, low=max(float(low), mean * 1e-12), high=float(high), weight=jobs)


def dispersion(counts: Counts, weights: Floats, *, believed_per_hour: float) -> float:
    """Return variance over mean of the counts, at least 1: what hours say, or minutes where they say more.

    The minutes are held against the believed rate, since the very first ones may hold a batch and nothing
    else.
    """
    jobs, hours = float(weights @ counts.jobs), float(weights @ counts.hours)
    if jobs <= 0.0 or hours <= 0.0:
        return 1.0
    mean = jobs / hours
    by_hour = float(weights @ (counts.jobs - mean * counts.hours) ** 2) / hours / mean
    by_minute = float(weights @ counts.squares) / jobs - believed_per_hour / MINUTES
    return 1.0 + max(by_hour - 1.0, by_minute - 1.0, 0.0) * jobs / (jobs + FEW)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Sizes added up: how many (old ones less), their mean, and the mean of their logarithms."""

    weight: float = 0.0
    mean: float = 1.0
    log_mean: float = 0.0

    @classmethod
    def of(cls, sizes: Floats, weights: Floats | None = None) -> Sizes:
        """Add up sizes, each with its weight."""
        sizes = np.asarray(sizes, dtype=float)
        each = np.ones(len(sizes)) if weights is None else np.asarray(weights, dtype=float)
        total = float(each.sum())
        if total <= 0.0:
            return cls()
        return cls(
            weight=total, mean=float(each @ sizes) / total, log_mean=float(each @ np.log(sizes)) / total
        )

    def plus(self, other: Sizes) -> Sizes:
        """Return both together."""
        weight = self.weight + other.weight
        if weight <= 0.0:
            return Sizes()
        share = other.weight / weight
        return Sizes(
            weight=weight,
            mean=self.mean + share * (other.mean - self.mean),
            log_mean=self.log_mean + share * (other.log_mean - self.log_mean),
        )

    def times(self, factor: float) -> Sizes:
        """Return them counting so much less."""
        return Sizes(weight=self.weight * factor, mean=self.mean, log_mean=self.log_mean)

    def over(self, stated: float) -> Sizes:
        """Return them in units of what was stated."""
        return Sizes(weight=self.weight, mean=self.mean / stated, log_mean=self.log_mean - math.log(stated))


def estimate_size(
    ended: Sizes, bounds: Floats, bound_weights: Floats | None = None, *, prior_jobs: float
) -> Belief:
    """Return the mean size of the jobs of a class over the stated one.

    `ended` are sizes over the stated one, of jobs that ended by themselves; `bounds` are those of jobs that
    did so much and have not ended, all positive. They never make the mean smaller than it is without them.

    Raises:
        InvalidProblem: when `prior_jobs` is not positive.
    """
    check_positive("prior_jobs", prior_jobs)
    bounds = np.asarray(bounds, dtype=float)
    weights = np.ones(len(bounds)) if bound_weights is None else np.asarray(bound_weights, dtype=float)
    bounds, weights = _grouped(bounds, weights)
    found = _posterior(ended, bounds, weights, prior_jobs)
    if len(bounds):
        # What a bound says about the spread can lower the mean by a few percent. It says "at least", so
        # neither leaving it out nor counting it as an end may give more.
        for sums in (ended, ended.plus(Sizes.of(bounds, weights))):
            found = np.maximum(found, _posterior(sums, bounds[:0], weights[:0], prior_jobs))
    mean, low, high = (math.exp(value) for value in found)
    return Belief(mean=mean, low=low, high=high, weight=ended.weight)


def _grouped(bounds: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Return at most `_BOUNDS` bounds: neighbours are taken together at their mean."""
    if len(bounds) <= _BOUNDS:
        return bounds, weights
    groups = np.array_split(np.argsort(bounds), _BOUNDS)
    total = np.array([weights[group].sum() for group in groups])
    mean = np.array([np.average(bounds[group], weights=weights[group] + 1e-300) for group in groups])
    return mean, total


def _posterior(ended: Sizes, bounds: Floats, weights: Floats, prior_jobs: float) -> Floats:
    """Return (centre, lower end, upper end) of log m on a grid that closes in on the mass."""
    scale = SPREAD / math.sqrt(prior_jobs)
    points = [0.0, *np.log(bounds).tolist(), *([math.log(ended.mean)] if ended.weight else [])]
    means = min(points) - 5.0 * scale - 1.0, max(points) + 5.0 * scale + 1.0
    shapes = math.log(_LEAST_SHAPE), math.log(_MOST_SHAPE)
    for _ in range(_PASSES):
        log_m, log_k = np.linspace(*means, _MEANS), np.linspace(*shapes, _SHAPES)
        density = _density(log_m, log_k, ended, (bounds, weights), scale)
        means = _inside(log_m, density.sum(axis=1))
        shapes = _inside(log_k, density.sum(axis=0))
    of_mean = density.sum(axis=1)
    of_mean /= of_mean.sum()
    below = np.cumsum(of_mean) - 0.5 * of_mean
    tail = 0.5 * (1.0 - LEVEL)
    low, high = np.interp([tail, 1.0 - tail], below, log_m)
    return np.array([float(of_mean @ log_m), low, high])


def _density(
    log_m: Floats, log_k: Floats, ended: Sizes, bounds: tuple[Floats, Floats], scale: float
) -> Floats:
    """Return the posterior on a grid, shape (means, shapes), its largest value being 1."""
    m, k = np.exp(log_m)[:, None], np.exp(log_k)[None, :]
    log = (
        -0.5 * (log_m[:, None] / scale) ** 2 - 0.5 * ((log_k[None, :] + 2.0 * math.log(SPREAD)) / DOUBT) ** 2
    )
    each = (
        k * (log_k[None, :] - log_m[:, None]) - gammaln(k) + (k - 1.0) * ended.log_mean - k * ended.mean / m
    )
    log = log + ended.weight * each
    least, weights = bounds
    if len(least):
        # Wilson and Hilferty 1931: the cube root of a Gamma variable is nearly normal.
        root = np.cbrt(least / m[:, :, None])
        log = (
            log
            + log_ndtr((1.0 - 1.0 / (9.0 * k[:, :, None]) - root) * 3.0 * np.sqrt(k[:, :, None])) @ weights
        )
    return np.asarray(np.exp(log - log.max()))


def _inside(nodes: Floats, mass: Floats) -> tuple[float, float]:
    """Return the range of the nodes that have all but a negligible part of the mass, with a margin."""
    held = np.flatnonzero(mass > _NEGLIGIBLE * mass.max())
    step = float(nodes[1] - nodes[0])
    return float(nodes[held[0]]) - step, float(nodes[held[-1]]) + step
