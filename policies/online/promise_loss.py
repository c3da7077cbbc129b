"""What a promise about money is foretold to cost, and whether the load is too coarse for one figure.

    symbol   here        meaning
    n        jobs        equal jobs that would spread the load of a period as much as its jobs do
    e        tolerance   of the period's money, by the promise

The load of n equal jobs that come at random has a standard deviation of 1 / sqrt(n) of its mean. Where two of
them are above e, chance alone leaves the tolerance in more than one period of twenty, and what the promise
costs is a matter of chance too.  Cost: O(1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

DEVIATIONS = 2.0
"""Standard deviations of a period's load that a tolerance must hold, for one figure to say what it costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForetoldLoss:
    """The part of the waiting that a promise costs: the mean over loads, and the least and the most of them.

    `jobs` is how many equal jobs would spread the load of a period as much as its jobs do.
    """

    mean: float
    least: float
    most: float
    jobs: float
    is_coarse: bool


def is_too_coarse(jobs: float, tolerance: float) -> bool:
    """Return whether chance alone takes the load of so many equal jobs out of a tolerance."""
    return math.sqrt(jobs) * tolerance < DEVIATIONS
