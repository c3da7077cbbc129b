"""How much work a job may have left: the sizes that its class's spread allows, given what it did.

Sizes are Gamma distributed, as in `policies.online.estimates`; of those above what is done, the one that a
part of the probability lies below. Cost: O(1), a special function each.
"""

from __future__ import annotations

from collections.abc import Sequence

import scipy

from policies.online.estimates import MOST_SHAPE_LEFT, mean_left

_UNDERFLOW = 1e-200
TIGHT = 1e-3
"""Sizes that spread less than this are one size."""


def work_left_at(mean: float, done: float, *, spread: float, levels: Sequence[float]) -> list[float]:
    """Return the work left that is not exceeded with each probability, of a class with a mean and spread."""
    if spread < TIGHT:
        return [mean_left(mean, done, spread=spread)] * len(levels)
    shape = min(1.0 / spread**2, MOST_SHAPE_LEFT)
    unit = mean / shape
    beyond = float(scipy.special.gammaincc(shape, max(done, 0.0) / unit))
    if beyond < _UNDERFLOW:
        # So far out that the rest is as good as exponential.
        beyond, unit, shape, done = 1.0, mean_left(mean, done, spread=spread), 1.0, 0.0
    return [
        max(
            unit * float(scipy.special.gammainccinv(shape, beyond * (1.0 - level))) - max(done, 0.0),
            1e-9 * mean,
        )
        for level in levels
    ]
