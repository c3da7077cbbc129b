"""Intervals hold the true value about as often as they state, over many random draws."""

from __future__ import annotations

import numpy as np
import pytest

from policies.online.estimates import ArrivalCounts, SizeSums, estimate_rate, estimate_size

LEAST = 0.93
NEVER = 1e12


@pytest.mark.parametrize("hours", [3, 24, 120])
@pytest.mark.parametrize(("burst", "stated"), [(1.0, 6.0), (1.0, 1.5), (1.0, 24.0), (4.0, 6.0), (10.0, 6.0)])
def test_rate_intervals_hold_the_truth_under_bursts_and_wrong_stated_rates(
    hours: int, burst: float, stated: float
) -> None:
    """Six jobs an hour, stated up to four times off, or in bursts of ten on average: 600 streams each."""
    rng = np.random.default_rng(hours)
    inside = 0
    for _ in range(600):
        truth = 6.0 if stated != 6.0 else float(rng.gamma(2.0, 3.0))
        sizes = rng.geometric(1.0 / burst, rng.poisson(truth / burst * hours))
        minutes = np.zeros(hours * 60)
        np.add.at(minutes, rng.integers(0, hours * 60, len(sizes)), sizes)
        by_hour = minutes.reshape(hours, 60)
        counts = ArrivalCounts(
            jobs=by_hour.sum(axis=1),
            squares=(by_hour**2).sum(axis=1),
            ages=np.arange(hours)[::-1] + 0.5,
            hours=np.ones(hours),
        )
        found = estimate_rate(stated, counts, prior_jobs=2.0, half_life_hours=NEVER)
        inside += found.low <= truth <= found.high

    assert inside >= LEAST * 600


@pytest.mark.parametrize("jobs", [4, pytest.param(15, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize(("spread", "off"), [(0.5, 1.0), (0.5, 4.0), (1.0, 1.0), (1.0, 4.0)])
def test_size_intervals_hold_the_truth_under_wrong_stated_sizes(jobs: int, spread: float, off: float) -> None:
    """150 classes with a spread of 0.5 or 1 and up to four times the stated size; some jobs are cut off."""
    rng = np.random.default_rng(jobs)
    inside = 0
    for _ in range(150):
        sizes = np.maximum(rng.gamma(spread**-2.0, off * spread**2.0, jobs), 1e-9)
        limits = off * rng.lognormal(0.2, 0.5, jobs)
        is_cut = sizes > limits
        found = estimate_size(SizeSums.of(sizes[~is_cut]), limits[is_cut], prior_jobs=2.0)
        inside += found.low <= off <= found.high

    assert inside >= 0.91 * 150, "150 draws: one standard deviation is 0.02"
