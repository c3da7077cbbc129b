"""Quantiles of the work left of a job, given the work done and the mean and spread of its class.

Sizes are Gamma distributed, as in `policies.online.estimates`, conditional on being above the work done.
Cost: O(1), one special function per quantile.
"""

from __future__ import annotations

from collections.abc import Sequence

import scipy

from policies.online.estimates import MOST_SHAPE_LEFT, mean_left

_UNDERFLOW = 1e-200
TIGHT = 1e-3
"""Below this spread all sizes are treated as equal."""


def work_left_at(mean: float, done: float, *, spread: float, levels: Sequence[float]) -> list[float]:
    """Return the quantiles of the work left at the probabilities `levels`, for a class's mean and spread."""
    if spread < TIGHT:
        return [mean_left(mean, done, spread=spread)] * len(levels)
    shape = min(1.0 / spread**2, MOST_SHAPE_LEFT)
    unit = mean / shape
    beyond = float(scipy.special.gammaincc(shape, max(done, 0.0) / unit))
    if beyond < _UNDERFLOW:
        # So far in the tail, the work left is practically exponential.
        beyond, unit, shape, done = 1.0, mean_left(mean, done, spread=spread), 1.0, 0.0
    return [
        max(
            unit * float(scipy.special.gammainccinv(shape, beyond * (1.0 - level))) - max(done, 0.0),
            1e-9 * mean,
        )
        for level in levels
    ]
