"""The band in which a period's money should end, and how far it draws the multiplier from the plan's.

    symbol     here         meaning
    m          left         money that is expected to be left when the period ends; a debt is less than zero
    l, u       least, most  the band
    s          spread       standard deviation of m
    o          outer        what may not be left at any price up to the limit
    L          limit        the largest |log(multiplier / planned multiplier)|

    draw(m)  =  L (P(below l) - P(above u)),  or L where m < o

Cost: O(1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from policies.fast_dataclasses import fast_init


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class MoneyBand:
    """The least and the most money that may be left when a period ends, and how it varies."""

    least: float
    most: float
    outer: float
    spread: float
    limit: float

    def draw(self, left: float) -> float:
        """Return log(multiplier / planned multiplier) for the money that is expected to be left.

        It is at most `limit`, at least its negative, and does not rise with the money.
        """
        if left < self.outer:
            return self.limit
        return self.limit * (self._chance(self.least - left) - self._chance(left - self.most))

    def beyond(self, left: float) -> float:
        """Return by how much the money is outside the band."""
        return max(self.least - left, left - self.most, 0.0)

    def _chance(self, money: float) -> float:
        """Return the chance that what is normally distributed around `money` is more than zero."""
        if self.spread <= 0.0:
            return float(money > 0.0)
        return 0.5 * math.erfc(-money / (self.spread * math.sqrt(2.0)))
