"""Estimates of arrival rates and job sizes: stated values corrected by observations, with intervals.

Rates. Arrivals of a class are a Poisson stream of unknown rate with a Gamma prior; older hours count less:

    rate ~ Gamma(a + N / phi, a / r + T / phi)

    symbol   here                          meaning
    r, a     stated_per_hour, prior_jobs   the stated rate, and how many arrivals it counts as
    N, T     jobs, hours                   arrivals and hours, each times 0.5^(age / half-life)
    phi      dispersion                    variance over mean of the counts; 1 for Poisson, n for groups of n

Dividing by phi counts a burst as one event, in the mean and in the interval. phi is the larger of the values
from hourly and from minute counts, shrunk towards 1 while few jobs have come. Counting begins with the hour
in which a class was first seen; a class that was never seen keeps its stated rate.

Sizes. The work of a job over the stated work is Gamma distributed, of unknown mean and shape:

    x = work / stated ~ Gamma(k, k / m),   m the mean size over the stated one,   1/k the squared spread
    log m ~ N(0, SPREAD^2 / prior_jobs),   log k ~ N(-2 log SPREAD, DOUBT^2)

A job that ended is an observation x; older ones count less. A job that still runs, or was stopped by its
user, is only known to be larger than the work c that it did: it contributes P(x > c). Of the jobs that ended
only the weight, the mean and the mean logarithm are needed, and these can be added up. The best mean for
given k is then the plain average, so a job that ended at once is just one small job; with logarithms alone it
would make the spread, and with it the mean, large. The posterior is computed on a grid over (log m, log k),
after coarse passes that narrow it to where the mass is.

Work left. A job that has done a and has not ended is larger than a. With a Gamma of mean m and shape k,
theta = m / k and Q the regularised upper incomplete Gamma function, its mean work left is

    E[X - a | X > a] = m Q(k + 1, a / theta) / Q(k, a / theta) - a

This is m at a = 0, m - a while a is small and the spread narrow, always m for exponential sizes (k = 1), and
rises towards theta for wider spreads. The k of the next job comes from `Belief.spread`: the squared spread is
the variance of the next job over its squared mean, including the uncertainty of k and m.

Cost: O(hours) for a rate, O(grid x distinct bounds) for a size, some milliseconds; O(1) for what is left.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import scipy

from policies.model import check_positive
from policies.speedup import Floats

LEVEL = 0.95
"""Probability of the intervals."""
SPREAD = 0.5
"""Prior guess of the spread of sizes within a class, standard deviation over mean."""
DOUBT = 1.5
"""Prior standard deviation of log k."""
UNSEEN_BURST = 20.0
"""Dispersion that intervals assume for one burst that was not seen yet."""
WEAK_PRIOR_JOBS, WIDE_PRIOR = 0.5, 1.5
"""A weak prior, used for intervals only: arrivals that the stated rate counts as, and the standard deviation
of the logarithm of the size. A stated value that is wrong by a factor of four is well within it."""
FEW = 4.0
"""With this many arrivals, half of the observed excess dispersion is used."""
MINUTES = 60.0
_BOUNDS, _PASSES = 12, 3
_MEANS, _SHAPES = np.linspace(0.0, 1.0, 64), np.linspace(0.0, 1.0, 20)
"""Relative positions of the grid points, 0 first and 1 last."""
_COARSE_MEANS, _COARSE_SHAPES = np.linspace(0.0, 1.0, 32), np.linspace(0.0, 1.0, 10)
"""The same for the `_PASSES` that only look for the mass, at a quarter of the cost."""
_LEAST_SHAPE, _MOST_SHAPE = 0.1, 2000.0
_NEGLIGIBLE = 1e-7
MOST_SHAPE_LEFT = 1e4
"""The largest shape used for work left: a job far beyond its expected size still has some work left."""
_UNDERFLOW, _TERMS = 1e-250, 100
_NORMAL_UNDERFLOW = -35.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """An estimate of a positive number: its mean, and a 95 % interval.

    `weight` is the number of observations, old ones counting less; 0 if there is only the prior. For the mean
    size of a class, `spread` is the standard deviation of the next job's size over its mean.
    """

    mean: float
    low: float
    high: float
    weight: float = 0.0
    spread: float = 0.0

    def __post_init__(self) -> None:
        for name in ("mean", "low", "high"):
            check_positive(f"{name} of a belief", getattr(self, name))
        check_positive("weight of a belief", self.weight, zero=True)
        check_positive("spread of a belief", self.spread, zero=True)

    def times(self, factor: float) -> Belief:
        """Return the estimate of the number times `factor`."""
        return replace(self, mean=self.mean * factor, low=self.low * factor, high=self.high * factor)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalCounts:
    """Arrivals by hour: `jobs` of each, and the `squares` of the counts of its minutes; shape (hours,).

    `ages` are hours from the middle of each hour to now, `hours` is how much of each hour was observed, at
    most one. Hours without arrivals are included, with zeros.
    """

    jobs: Floats
    squares: Floats
    ages: Floats
    hours: Floats

    def decayed(self, half_life_hours: float) -> Floats:
        """Return the weight of each hour, 0.5^(age / half-life)."""
        return np.asarray(0.5 ** (np.maximum(self.ages, 0.0) / half_life_hours))


def estimate_rate(
    stated_per_hour: float, counts: ArrivalCounts | None, *, prior_jobs: float, half_life_hours: float
) -> Belief:
    """Estimate an arrival rate, jobs per hour; without counts its mean is the stated rate.

    Raises:
        InvalidProblem: when a number that must be positive is not.
    """
    for name, value in (
        ("stated_per_hour", stated_per_hour),
        ("prior_jobs", prior_jobs),
        ("half_life_hours", half_life_hours),
    ):
        check_positive(name, value)
    jobs, hours, phi, doubt = 0.0, 0.0, 1.0, UNSEEN_BURST
    if counts is not None and len(counts.jobs):
        weights = counts.decayed(half_life_hours)
        jobs, hours = float(weights @ counts.jobs), float(weights @ counts.hours)
        believed = (prior_jobs + jobs) / (prior_jobs / stated_per_hour + hours)
        phi = dispersion(counts, weights, believed_per_hour=believed)
        # Bursts may be larger than those seen: one burst of dispersion UNSEEN_BURST is added.
        doubt = phi + (max(UNSEEN_BURST - phi, 0.0)) / (jobs / phi + 1.0)
    mean = (prior_jobs + jobs / phi) / (prior_jobs / stated_per_hour + hours / phi)
    tails = np.array([0.5 * (1.0 - LEVEL), 0.5 * (1.0 + LEVEL)])
    # The interval covers two priors, the stated one and a weak one, because the stated rate may be far off.
    ends = [
        scipy.special.gammaincinv(worth + jobs / doubt, tails) / (worth / stated_per_hour + hours / doubt)
        for worth in {prior_jobs, min(prior_jobs, WEAK_PRIOR_JOBS)}
    ]
    # With the weak prior the lower end may round to zero; a Belief must be positive.
    low = max(min(float(end[0]) for end in ends), mean * 1e-12)
    return Belief(mean=mean, low=low, high=max(float(end[1]) for end in ends), weight=jobs)


def dispersion(counts: ArrivalCounts, weights: Floats, *, believed_per_hour: float) -> float:
    """Return variance over mean of the counts, at least 1: the larger of the hourly and minute values.

    The minute value uses the rate `believed_per_hour`, because the first minutes may hold just one batch.
    """
    jobs, hours = float(weights @ counts.jobs), float(weights @ counts.hours)
    if jobs <= 0.0 or hours <= 0.0:
        return 1.0
    mean = jobs / hours
    by_hour = float(weights @ (counts.jobs - mean * counts.hours) ** 2) / hours / mean
    by_minute = float(weights @ counts.squares) / jobs - believed_per_hour / MINUTES
    return 1.0 + max(by_hour - 1.0, by_minute - 1.0, 0.0) * jobs / (jobs + FEW)


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeSums:
    """Sufficient statistics of sizes: total weight (old ones count less), mean, and mean logarithm."""

    weight: float = 0.0
    mean: float = 1.0
    log_mean: float = 0.0

    @classmethod
    def of(cls, sizes: Floats, weights: Floats | None = None) -> SizeSums:
        """Add up sizes; `weights` defaults to 1 for each."""
        sizes = np.asarray(sizes, dtype=float)
        each = np.ones(len(sizes)) if weights is None else np.asarray(weights, dtype=float)
        total = float(each.sum())
        if total <= 0.0:
            return cls()
        return cls(
            weight=total, mean=float(each @ sizes) / total, log_mean=float(each @ np.log(sizes)) / total
        )

    def plus(self, other: SizeSums) -> SizeSums:
        """Return the sums of both sets of sizes together."""
        weight = self.weight + other.weight
        if weight <= 0.0:
            return SizeSums()
        share = other.weight / weight
        return SizeSums(
            weight=weight,
            mean=self.mean + share * (other.mean - self.mean),
            log_mean=self.log_mean + share * (other.log_mean - self.log_mean),
        )

    def times(self, factor: float) -> SizeSums:
        """Return the sums with the weight multiplied by `factor`."""
        return SizeSums(weight=self.weight * factor, mean=self.mean, log_mean=self.log_mean)

    def over(self, stated: float) -> SizeSums:
        """Return the sums of the sizes divided by `stated`."""
        return SizeSums(
            weight=self.weight, mean=self.mean / stated, log_mean=self.log_mean - math.log(stated)
        )


def estimate_size(
    ended: SizeSums, bounds: Floats, bound_weights: Floats | None = None, *, prior_jobs: float
) -> Belief:
    """Estimate the mean size of a class's jobs over the stated size.

    `ended` are the sizes over the stated one of jobs that ended by themselves. `bounds` are positive lower
    bounds: the work, over the stated size, of jobs that have not ended. Bounds never make the mean smaller.

    Raises:
        InvalidProblem: when `prior_jobs` is not positive.
    """
    check_positive("prior_jobs", prior_jobs)
    bounds = np.asarray(bounds, dtype=float)
    weights = np.ones(len(bounds)) if bound_weights is None else np.asarray(bound_weights, dtype=float)
    bounds, weights = _grouped(bounds, weights)
    scale = SPREAD / math.sqrt(prior_jobs)
    # The stated size may be far off, so the interval also covers the posterior under a wide prior.
    cases = [_Case(ended, each, bounds, weights) for each in (scale, max(scale, WIDE_PRIOR))]
    if len(bounds):
        # Through the spread, a bound can lower the posterior mean by a few percent. A bound means "at least",
        # so the result must not be below that without bounds, or with bounds counted as ends.
        others = ended, ended.plus(SizeSums.of(bounds, weights))
        cases += [_Case(sums, case.scale) for sums in others for case in cases]
    found, spreads = _posteriors(cases)
    found = np.maximum.reduce(found.reshape(-1, 2, 3))
    mean, low, high = np.exp([found[0, 0], found[:, 1].min(), found[:, 2].max()]).tolist()
    return Belief(mean=mean, low=low, high=high, weight=ended.weight, spread=float(spreads[0]))


def mean_left(mean: float, done: float, *, spread: float) -> float:
    """Return the mean work left of a job that has done `done`, in a class of the given mean size and spread.

    Sizes are Gamma distributed; `spread` is their standard deviation over their mean. The result is positive,
    continuous in `done`, and `mean` at `done` = 0.
    """
    shape = min(1.0 / max(spread, 1e-9) ** 2, MOST_SHAPE_LEFT)
    unit: float = mean / shape
    x = done / unit
    if x <= 0.0:  # Nothing is done, or so little that the ratio underflows.
        return mean
    beyond = float(scipy.special.gammaincc(shape, x))
    if beyond > _UNDERFLOW:
        # m Q(k + 1, x) / Q(k, x) - a, of which the first is m + theta x^k e^-x / (Gamma(k) Q(k, x)).
        hazard: float = math.exp(shape * math.log(x) - x - math.lgamma(shape)) / beyond
        # The exact value is between k theta and theta; rounding must not go below that.
        return max(unit * (shape - x + hazard), unit * min(shape, 1.0))
    # Legendre's continued fraction of Gamma(k, x), with k - x subtracted term by term.
    tail = x + 2.0 * _TERMS + 1.0 - shape
    for n in range(_TERMS - 1, 0, -1):
        tail = x + 2.0 * n + 1.0 - shape - (n + 1.0) * (n + 1.0 - shape) / tail
    return float(unit * (1.0 + (shape - 1.0) / tail))


def _grouped(bounds: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Return at most `_BOUNDS` bounds: neighbours are replaced by their weighted mean."""
    if len(bounds) <= _BOUNDS:
        return bounds, weights
    order = np.argsort(bounds)
    starts = np.cumsum([0, *(len(group) for group in np.array_split(order, _BOUNDS)[:-1])])
    weights = weights[order] + 1e-300
    total = np.add.reduceat(weights, starts)
    return np.add.reduceat(weights * bounds[order], starts) / total, total


class _Case(NamedTuple):
    """Inputs of one posterior: sums of sizes, the prior's standard deviation of log m, and bounds."""

    ended: SizeSums
    scale: float
    bounds: Floats = np.zeros(0)
    weights: Floats = np.zeros(0)

    @property
    def means(self) -> tuple[float, float]:
        """A range of log m that contains all of the mass."""
        points = [0.0, *np.log(self.bounds).tolist()]
        if self.ended.weight:
            points.append(math.log(self.ended.mean))
        beyond = 5.0 * self.scale + 1.0
        return min(points) - beyond, max(points) + beyond


def _posteriors(cases: Sequence[_Case]) -> tuple[Floats, Floats]:
    """Return (centre, lower end, upper end) of log m, shape (cases, 3), and the spreads, shape (cases,).

    Each posterior has its own grid, which is narrowed to the mass in `_PASSES` coarse passes.
    """
    first, last = np.array([case.means for case in cases]).T[:, :, None]
    least, most = np.full((2, len(cases), 1), [[[math.log(_LEAST_SHAPE)]], [[math.log(_MOST_SHAPE)]]])
    for _ in range(_PASSES):
        log_m, log_k = first + (last - first) * _COARSE_MEANS, least + (most - least) * _COARSE_SHAPES
        density = _densities(log_m, log_k, cases)
        (first, last), (least, most) = (
            _inside(log_m, density.sum(axis=2)),
            _inside(log_k, density.sum(axis=1)),
        )
    log_m, log_k = first + (last - first) * _MEANS, least + (most - least) * _SHAPES
    density = _densities(log_m, log_k, cases)
    of_mean, of_shape = density.sum(axis=2), density.sum(axis=1)
    of_mean /= of_mean.sum(axis=1, keepdims=True)
    of_shape /= of_shape.sum(axis=1, keepdims=True)
    below = np.cumsum(of_mean, axis=1) - 0.5 * of_mean
    tails = 0.5 * (1.0 - LEVEL), 0.5 * (1.0 + LEVEL)
    ends = [np.interp(tails, mass, nodes) for mass, nodes in zip(below, log_m, strict=True)]
    m = np.exp(log_m)
    squared = (of_shape * np.exp(-log_k)).sum(axis=1)
    of_the_mean = (of_mean * m**2).sum(axis=1) / (of_mean * m).sum(axis=1) ** 2
    spreads = np.sqrt(np.maximum((1.0 + squared) * of_the_mean - 1.0, 0.0))
    return np.column_stack([(of_mean * log_m).sum(axis=1), ends]), spreads


def _densities(log_m: Floats, log_k: Floats, cases: Sequence[_Case]) -> Floats:
    """Return posteriors on grids, shape (cases, means, shapes), the largest value of each being 1."""
    scale, weight, mean, log_mean = np.array(
        [(case.scale, case.ended.weight, case.ended.mean, case.ended.log_mean) for case in cases]
    ).T[:, :, None]
    k, inverse_m = np.exp(log_k), np.exp(-log_m)
    of_mean = -0.5 * (log_m / scale) ** 2
    of_shape = -0.5 * ((log_k + 2.0 * math.log(SPREAD)) / DOUBT) ** 2
    of_shape += weight * (k * log_k - scipy.special.gammaln(k) + (k - 1.0) * log_mean)
    # The likelihood of ended jobs couples mean and shape in this product only.
    both = weight * (log_m + mean * inverse_m)
    log = of_mean[:, :, None] + of_shape[:, None, :] - both[:, :, None] * k[:, None, :]
    # Wilson and Hilferty 1931: the cube root of a Gamma variable is nearly normal.
    centre, width = 1.0 - 1.0 / (9.0 * k), 3.0 * np.sqrt(k)
    for n, case in enumerate(cases):
        if len(case.bounds):
            root = np.cbrt(inverse_m[n, :, None] * case.bounds)
            z = (centre[n, :, None] - root[:, None, :]) * width[n, :, None]
            log[n] += _log_ndtr(z) @ case.weights
    return np.asarray(np.exp(log - log.max(axis=(1, 2), keepdims=True)))


def _log_ndtr(z: Floats) -> Floats:
    """Return the logarithm of the normal distribution function, by the fastest exact method."""
    if z.min() > _NORMAL_UNDERFLOW:
        return np.asarray(np.log(scipy.special.ndtr(z)))
    return np.asarray(scipy.special.log_ndtr(z))


def _inside(nodes: Floats, mass: Floats) -> tuple[Floats, Floats]:
    """Return the range that holds all but a negligible part of the mass, with a margin, each (cases, 1).

    `nodes` and `mass` have shape (cases, nodes).
    """
    held = mass > _NEGLIGIBLE * mass.max(axis=1, keepdims=True)
    step = nodes[:, 1] - nodes[:, 0]
    case = np.arange(len(nodes))
    first, last = held.argmax(axis=1), held.shape[1] - 1 - held[:, ::-1].argmax(axis=1)
    return (nodes[case, first] - step)[:, None], (nodes[case, last] + step)[:, None]
