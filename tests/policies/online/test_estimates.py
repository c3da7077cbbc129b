"""Rates and sizes of classes: closed forms, coverage of intervals, and evidence from running jobs."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import scipy
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sampling import sampled
from scipy import integrate

from policies.errors import InvalidProblem
from policies.online.estimates import (
    DOUBT,
    SPREAD,
    WIDE_PRIOR,
    ArrivalCounts,
    Belief,
    SizeSums,
    dispersion,
    estimate_rate,
    estimate_size,
    mean_left,
)
from policies.speedup import Floats

NEVER = 1e12
"""A half-life so long that nothing is forgotten."""
NO_BOUNDS: Floats = np.array([])
_sizes = st.lists(st.floats(0.1, 8.0), min_size=0, max_size=12)


def an_hour_each(jobs: list[float], squares: list[float] | None = None) -> ArrivalCounts:
    """Return counts of hours of which the last is the newest; jobs come in minutes of their own."""
    return ArrivalCounts(
        jobs=np.array(jobs),
        squares=np.array(jobs if squares is None else squares),
        ages=np.arange(len(jobs))[::-1] + 0.5,
        hours=np.ones(len(jobs)),
    )


def test_a_regular_stream_gives_the_gamma_poisson_posterior() -> None:
    """Prior 3 jobs at 6/h is Gamma(3, 1/2 h); 24 jobs in 12 hours make it Gamma(27, 12.5 h)."""
    found = estimate_rate(6.0, an_hour_each([2.0] * 12), prior_jobs=3.0, half_life_hours=NEVER)

    assert found.mean == pytest.approx((3.0 + 24.0) / (0.5 + 12.0))
    assert found.weight == pytest.approx(24.0)
    # An unseen event with variance over mean of 20 joins the 24; the prior is worth 3 jobs or half a job.
    doubt = 1.0 + 19.0 / 25.0
    ends = [
        scipy.stats.gamma(worth + 24.0 / doubt, scale=1.0 / (worth / 6.0 + 12.0 / doubt)).interval(0.95)
        for worth in (3.0, 0.5)
    ]
    assert found.low == pytest.approx(min(low for low, _ in ends))
    assert found.high == pytest.approx(max(high for _, high in ends))


def test_a_class_without_arrivals_keeps_its_stated_rate() -> None:
    """The interval is as wide as the prior."""
    for counts in (None, an_hour_each([])):
        found = estimate_rate(6.0, counts, prior_jobs=2.0, half_life_hours=168.0)
        assert (found.mean, found.weight) == (6.0, 0.0)
        assert found.low < 1.0
        assert found.high > 15.0


def test_an_hour_counts_half_after_a_half_life() -> None:
    """Hours of one and of two half-lives ago weigh 1/2 and 1/4; the prior does not age."""
    counts = ArrivalCounts(
        jobs=np.array([4.0, 4.0]), squares=np.array([4.0, 4.0]), ages=np.array([20.0, 10.0]), hours=np.ones(2)
    )
    found = estimate_rate(1.0, counts, prior_jobs=2.0, half_life_hours=10.0)

    assert found.mean == pytest.approx((2.0 + 4.0 * 0.75) / (2.0 + 0.75))
    assert found.weight == pytest.approx(4.0 * 0.75)


def test_a_batch_counts_as_one_event() -> None:
    """Fifty jobs at one instant hardly move the rate and widen its interval; 50 jobs in 50 hours move it."""
    quiet = [0.0] * 49
    batch = estimate_rate(
        0.1, an_hour_each([*quiet, 50.0], [*quiet, 2500.0]), prior_jobs=2.0, half_life_hours=NEVER
    )
    spread = estimate_rate(0.1, an_hour_each([1.0] * 50), prior_jobs=2.0, half_life_hours=NEVER)

    assert spread.mean == pytest.approx((2.0 + 50.0) / (20.0 + 50.0))
    assert batch.mean < 0.16
    assert batch.high / batch.low > 3.0 * spread.high / spread.low
    first = ArrivalCounts(
        jobs=np.array([50.0]), squares=np.array([2500.0]), ages=np.array([0.0]), hours=np.array([0.001])
    )
    only = estimate_rate(0.1, first, prior_jobs=2.0, half_life_hours=NEVER)
    assert only.mean < 0.2, "the very first minute is no exception"


def test_a_poisson_stream_of_any_rate_has_dispersion_near_one() -> None:
    """Two hundred hours at 0.05, 5 and 600 jobs an hour: at most 1.3."""
    rng = np.random.default_rng(3)
    for rate in (0.05, 5.0, 600.0):
        minutes = rng.poisson(rate / 60.0, (200, 60)).astype(float)
        counts = an_hour_each(minutes.sum(axis=1).tolist(), (minutes**2).sum(axis=1).tolist())
        assert 1.0 <= dispersion(counts, np.ones(200), believed_per_hour=rate) < 1.3


@given(rate=st.floats(1e-3, 1e3), jobs=st.lists(st.integers(0, 20), max_size=30), unit=st.floats(0.01, 100.0))
def test_rates_scale_with_the_unit_of_time(rate: float, jobs: list[int], unit: float) -> None:
    """The prior scales with its rate. With data the mean lies between the stated and the observed rate."""
    prior = estimate_rate(rate, None, prior_jobs=2.0, half_life_hours=NEVER)
    scaled = estimate_rate(rate * unit, None, prior_jobs=2.0, half_life_hours=NEVER)
    assert (scaled.mean, scaled.low, scaled.high) == pytest.approx(
        (prior.mean * unit, prior.low * unit, prior.high * unit)
    )
    if jobs:
        found = estimate_rate(
            rate, an_hour_each([float(n) for n in jobs]), prior_jobs=2.0, half_life_hours=NEVER
        )
        seen = sum(jobs) / len(jobs)
        assert min(rate, seen) * (1.0 - 1e-9) <= found.mean <= max(rate, seen) * (1.0 + 1e-9)
        assert found.low <= found.mean <= found.high


def test_rate_intervals_hold_the_truth_as_often_as_stated() -> None:
    """At least 93 % of 95 % intervals hold the rate, for 400 streams with rates from the prior."""
    rng = np.random.default_rng(5)
    inside = 0
    for _ in range(400):
        truth = rng.gamma(2.0, 3.0)
        minutes = rng.poisson(truth / 60.0, (36, 60)).astype(float)
        counts = an_hour_each(minutes.sum(axis=1).tolist(), (minutes**2).sum(axis=1).tolist())
        found = estimate_rate(6.0, counts, prior_jobs=2.0, half_life_hours=NEVER)
        inside += found.low <= truth <= found.high
    assert 0.93 * 400 <= inside <= 400


def test_sizes_without_data_are_as_stated() -> None:
    """The mean is 1, and the interval is that of a log-normal of WIDE_PRIOR."""
    found = estimate_size(SizeSums(), NO_BOUNDS, prior_jobs=2.0)

    assert found.mean == pytest.approx(1.0, abs=1e-6)
    assert found.high == pytest.approx(math.exp(1.96 * WIDE_PRIOR), rel=0.03)
    assert found.low == pytest.approx(1.0 / found.high, rel=0.03)


def test_many_jobs_outweigh_the_stated_size() -> None:
    """1000 jobs of half the stated size on average: a half within 5 %, the interval no wider than 10 %."""
    rng = np.random.default_rng(1)
    found = estimate_size(SizeSums.of(0.5 * rng.lognormal(-0.125, 0.5, 1000)), NO_BOUNDS, prior_jobs=2.0)

    assert found.mean == pytest.approx(0.5, rel=0.05)
    assert 1.0 < found.high / found.low < 1.1


@given(left=_sizes, right=_sizes)
def test_sums_of_sizes_add_up(left: list[float], right: list[float]) -> None:
    """Sums of parts of the sizes, merged, equal the sums of all sizes."""
    merged = SizeSums.of(np.array(left)).plus(SizeSums.of(np.array(right)))
    whole = SizeSums.of(np.array(left + right))

    assert (merged.weight, merged.mean, merged.log_mean) == pytest.approx(
        (whole.weight, whole.mean, whole.log_mean), abs=1e-9
    )


@settings(max_examples=sampled(40), deadline=None)
@given(ended=_sizes, bounds=_sizes)
def test_running_jobs_never_make_the_mean_smaller(ended: list[float], bounds: list[float]) -> None:
    """The work done by a running job is a lower bound of its size."""
    sums = SizeSums.of(np.array(ended))
    without = estimate_size(sums, NO_BOUNDS, prior_jobs=2.0)
    found = estimate_size(sums, np.array(bounds), prior_jobs=2.0)

    assert found.mean >= without.mean * (1.0 - 1e-9)
    assert found.high >= without.high * (1.0 - 1e-9)


@settings(max_examples=sampled(40), deadline=None)
@given(ended=_sizes, bound=st.floats(0.1, 8.0))
def test_a_running_job_counts_for_more_than_one_that_ended_there(ended: list[float], bound: float) -> None:
    """Work done by a running job is a lower bound of its size, so its estimate is at least as large."""
    running = estimate_size(SizeSums.of(np.array(ended)), np.array([bound]), prior_jobs=2.0)
    over = estimate_size(SizeSums.of(np.array([*ended, bound])), NO_BOUNDS, prior_jobs=2.0)

    assert running.mean >= over.mean * (1.0 - 1e-3)


@settings(max_examples=sampled(30), deadline=None)
@given(logs=st.lists(st.floats(0.3, 3.0), min_size=2, max_size=10))
def test_repeated_data_never_widen_the_interval(logs: list[float]) -> None:
    """The same data are counted ten times."""
    once, often = SizeSums.of(np.array(logs)), SizeSums.of(np.array(logs * 10))
    narrow = estimate_size(often, NO_BOUNDS, prior_jobs=2.0)
    wide = estimate_size(once, NO_BOUNDS, prior_jobs=2.0)

    assert narrow.high / narrow.low <= 1.001 * wide.high / wide.low


def coverage(draw: Callable[[np.random.Generator], tuple[float, Floats]], *, classes: int = 200) -> float:
    """Return the share of classes whose mean is in its interval; each job is cut off at its own time."""
    rng = np.random.default_rng(7)
    inside = 0
    for _ in range(classes):
        mean, sizes = draw(rng)
        limits = mean * rng.lognormal(0.2, 0.5, len(sizes))
        is_cut = sizes > limits
        found = estimate_size(SizeSums.of(sizes[~is_cut]), limits[is_cut], prior_jobs=2.0)
        inside += found.low <= mean <= found.high
    return inside / classes


def test_size_intervals_hold_the_truth_as_often_as_stated() -> None:
    """At least 92 % of 95 % intervals hold the mean, for classes from the prior with 15 Gamma jobs each."""

    def draw(rng: np.random.Generator) -> tuple[float, Floats]:
        mean = float(rng.lognormal(0.0, SPREAD / math.sqrt(2.0)))
        shape = float(rng.lognormal(-2.0 * math.log(SPREAD), DOUBT))
        return mean, rng.gamma(shape, mean / shape, 15)

    assert coverage(draw) >= 0.92


@pytest.mark.exhaustive
def test_size_intervals_hold_for_log_normal_sizes_and_a_wrong_stated_size() -> None:
    """At least 85 % hold the mean, with 30 log-normal jobs of half the stated size and a spread of 0.7."""

    def draw(rng: np.random.Generator) -> tuple[float, Floats]:
        return 0.5, 0.5 * rng.lognormal(-0.245, 0.7, 30)

    assert coverage(draw) >= 0.85


def test_a_job_that_ended_at_once_lowers_the_mean_a_little() -> None:
    """Nine jobs have the stated size, and one has a thousandth."""
    found = estimate_size(SizeSums.of(np.array([1.0] * 9 + [0.001])), NO_BOUNDS, prior_jobs=2.0)

    assert 0.8 < found.mean < 1.0


@given(sizes=st.lists(st.floats(0.1, 8.0), min_size=1, max_size=8), unit=st.floats(0.01, 100.0))
@settings(max_examples=sampled(30), deadline=None)
def test_sizes_are_the_same_in_any_unit(sizes: list[float], unit: float) -> None:
    """Work and stated size in another unit give the same belief."""
    found = estimate_size(SizeSums.of(np.array(sizes)), NO_BOUNDS, prior_jobs=2.0)
    other = estimate_size(SizeSums.of(np.array(sizes) * unit).over(unit), NO_BOUNDS, prior_jobs=2.0)

    assert (other.mean, other.low, other.high) == pytest.approx((found.mean, found.low, found.high), rel=1e-6)


def test_hundreds_of_running_jobs_are_taken_in_groups() -> None:
    """500 lower bounds give the mean of 50 groups of ten, within 3 %."""
    rng = np.random.default_rng(2)
    sums, bounds = SizeSums.of(rng.lognormal(0.3, 0.4, 200)), rng.lognormal(-0.5, 0.5, 500)
    found = estimate_size(sums, bounds, prior_jobs=2.0)
    edges = np.array_split(np.sort(bounds), 50)
    grouped = estimate_size(
        sums,
        np.array([part.mean() for part in edges]),
        np.array([float(len(part)) for part in edges]),
        prior_jobs=2.0,
    )
    assert found.mean == pytest.approx(grouped.mean, rel=0.03)


def one_at_a_time(ended: SizeSums, bounds: Floats, weights: Floats, scale: float) -> Floats:
    """Return mean, low, high and spread of the posterior by the formulas at the top of the module."""
    points = np.log([1.0, *bounds, *([ended.mean] if ended.weight else [])])
    ends = np.array(
        [[points.min() - 5.0 * scale - 1.0, points.max() + 5.0 * scale + 1.0], np.log([0.1, 2000.0])]
    )
    for nodes in ((32, 10), (32, 10), (32, 10), (64, 20)):
        log_m, log_k = np.linspace(*ends[0], nodes[0]), np.linspace(*ends[1], nodes[1])
        m, k = np.exp(log_m)[:, None], np.exp(log_k)
        log = scipy.stats.norm.logpdf(log_m, 0.0, scale)[:, None]
        log = log + scipy.stats.norm.logpdf(log_k, -2.0 * math.log(SPREAD), DOUBT)
        # The mean logarithm of a Gamma density at the sizes of ended jobs, times their number.
        each = k * np.log(k / m) - scipy.special.gammaln(k) + (k - 1.0) * ended.log_mean - k * ended.mean / m
        log = log + ended.weight * each
        for bound, weight in zip(bounds, weights, strict=True):
            z = (1.0 - 1.0 / (9.0 * k) - np.cbrt(bound / m)) * 3.0 * np.sqrt(k)
            log = log + weight * scipy.stats.norm.logcdf(z)
        density = np.exp(log - log.max())
        for row, (points, mass) in enumerate(((log_m, density.sum(axis=1)), (log_k, density.sum(axis=0)))):
            inside = points[mass > 1e-7 * mass.max()]
            step = points[1] - points[0]
            ends[row] = inside[0] - step, inside[-1] + step
    of_mean, of_shape = density.sum(axis=1) / density.sum(), density.sum(axis=0) / density.sum()
    low, high = np.interp([0.025, 0.975], np.cumsum(of_mean) - 0.5 * of_mean, log_m)
    squares = (1.0 + of_shape @ np.exp(-log_k)) * (of_mean @ np.exp(2.0 * log_m))
    spread = math.sqrt(max(squares / (of_mean @ np.exp(log_m)) ** 2 - 1.0, 0.0))
    return np.array([of_mean @ log_m, low, high, spread])


@settings(max_examples=sampled(30), deadline=None)
@given(
    ended=st.lists(st.floats(0.01, 8.0), max_size=8),
    bounds=st.lists(st.floats(1e-3, 30.0), max_size=12),
    bound_weight=st.floats(0.01, 20.0),
)
@example(ended=[0.01] * 8, bounds=[1.0], bound_weight=1.0)
def test_estimates_on_stacked_grids_equal_those_on_single_grids(
    ended: list[float], bounds: list[float], bound_weight: float
) -> None:
    """For the usual and the wide prior; with bounds, without bounds, and with bounds as ended jobs."""
    sums, least = SizeSums.of(np.array(ended)), np.array(bounds)
    weights = np.full(len(bounds), bound_weight)
    found = estimate_size(sums, least, weights, prior_jobs=2.0)

    cases = []
    for scale in (SPREAD / math.sqrt(2.0), WIDE_PRIOR):
        ways = [one_at_a_time(sums, least, weights, scale)]
        if bounds:
            together = sums.plus(SizeSums.of(least, weights))
            ways += [one_at_a_time(each, NO_BOUNDS, NO_BOUNDS, scale) for each in (sums, together)]
        cases.append(np.max(ways, axis=0)[:3])
        if scale < WIDE_PRIOR:
            assert found.spread == pytest.approx(ways[0][3], rel=1e-9)
    believed, nearly_without = cases
    expected = [
        believed[0],
        min(believed[1], nearly_without[1]),
        max(believed[2], nearly_without[2]),
    ]
    assert np.log([found.mean, found.low, found.high]) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_invalid_rates_priors_and_beliefs_are_refused() -> None:
    """Stated rates of zero and NaN, a prior of zero jobs and an infinite mean are refused."""
    for stated, jobs in ((0.0, 1.0), (1.0, 0.0), (math.nan, 1.0)):
        with pytest.raises(InvalidProblem):
            estimate_rate(stated, None, prior_jobs=jobs, half_life_hours=1.0)
    with pytest.raises(InvalidProblem):
        estimate_size(SizeSums(), NO_BOUNDS, prior_jobs=0.0)
    with pytest.raises(InvalidProblem):
        Belief(mean=math.inf, low=1.0, high=2.0)


@given(factor=st.floats(0.01, 100.0))
def test_a_belief_scales_with_its_unit(factor: float) -> None:
    """Mean and interval are scaled together; the weight is not."""
    belief = Belief(mean=2.0, low=1.0, high=3.0, weight=4.0).times(factor)

    assert (belief.mean, belief.low, belief.high) == pytest.approx((2.0 * factor, factor, 3.0 * factor))
    assert belief.weight == 4.0


@given(mean=st.floats(0.01, 100.0), done=st.floats(0.0, 1000.0))
def test_exponential_sizes_leave_their_mean_after_any_work(mean: float, done: float) -> None:
    """A spread of 1 is the exponential distribution, which has no memory."""
    assert mean_left(mean, done * mean, spread=1.0) == pytest.approx(mean, rel=1e-6)


@given(part=st.floats(0.0, 0.95))
def test_equal_sizes_leave_the_stated_size_less_the_work_done(part: float) -> None:
    """At spread 0 this holds to a thousandth; past the stated size a small positive part is left."""
    assert mean_left(2.0, 2.0 * part, spread=0.0) == pytest.approx(2.0 * (1.0 - part), abs=2e-3)
    assert 0.0 < mean_left(2.0, 2.0 * (1.0 + part), spread=0.0) < 0.02


@pytest.mark.parametrize("shape", [0.2, 0.7, 2.0, 4.0, 50.0])
def test_gamma_sizes_leave_the_integral_of_their_tail(shape: float) -> None:
    """E[X - a | X > a] is the integral of P(X > t) beyond a, over P(X > a)."""
    law = scipy.stats.gamma(shape, scale=3.0 / shape)
    for done in (0.01, 1.0, 3.0, 10.0):
        if law.sf(done) > 1e-12:
            tail, _ = integrate.quad(law.sf, done, law.isf(law.sf(done) * 1e-14), limit=400)
            assert mean_left(3.0, done, spread=shape**-0.5) == pytest.approx(tail / law.sf(done), rel=1e-4)


@given(
    mean=st.floats(0.01, 100.0),
    spread=st.floats(0.0, 4.0),
    part=st.floats(0.0, 1e4),
    step=st.floats(0.0, 0.01),
)
@example(mean=1.0, spread=2.0, part=5e-324, step=0.0)
def test_the_mean_left_is_positive_and_falls_no_faster_than_work_is_done(
    mean: float, spread: float, part: float, step: float
) -> None:
    """The mean left is at most the mean size times max(1, spread squared)."""
    here, there = (mean_left(mean, mean * done, spread=spread) for done in (part, part * (1.0 + step)))

    assert mean_left(mean, 0.0, spread=spread) == mean
    assert here > 0.0
    assert math.isfinite(here)
    assert here <= mean * max(1.0, spread**2) * (1.0 + 1e-6)
    assert there >= here - mean * part * step - 1e-6 * mean


@pytest.mark.parametrize("spread", [0.02, 0.1, 0.5, 0.9, 1.1, 2.0, 4.0])
def test_the_mean_left_is_smooth_where_the_tail_underflows(spread: float) -> None:
    """Far out the mean left is theta (1 + (k - 1) / (x - k + 3 - ...)), on both sides of the change."""
    shape = spread**-2.0
    for x in np.linspace(
        shape + 20.0 * math.sqrt(shape) + 300.0, shape + 60.0 * math.sqrt(shape) + 900.0, 40
    ):
        left = mean_left(1.0, x / shape, spread=spread) * shape
        second = 1.0 + (shape - 1.0) / (x + 3.0 - shape - 2.0 * (2.0 - shape) / (x + 5.0 - shape))
        assert left == pytest.approx(second, rel=0.02)


def test_the_spread_is_exact_with_many_jobs_and_wide_with_few() -> None:
    """From 400 jobs the spread is within 15 %; from three nearly equal jobs it is above 0.2."""
    rng = np.random.default_rng(4)
    for spread in (0.2, 1.0, 2.0):
        sizes = rng.gamma(spread**-2.0, spread**2.0, 400)
        many = estimate_size(SizeSums.of(sizes), NO_BOUNDS, prior_jobs=2.0)
        assert many.spread == pytest.approx(spread, rel=0.15)
    few = estimate_size(SizeSums.of(np.array([0.95, 1.0, 1.05])), NO_BOUNDS, prior_jobs=2.0)
    assert few.spread > 0.2
