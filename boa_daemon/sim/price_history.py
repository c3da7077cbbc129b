"""A spot price history as a world: the price of a machine over time, and what it says of interruptions.

AWS takes a spot node back where it needs the machine, or where the price rises above what the renter pays at
most, which is the price on demand. A history shows the second kind only: the world counts the times at which
the price came to that of on demand, and takes the default's time between interruptions where it is shorter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from boa_daemon.sim.world_settings import Spot

LEAST_FRACTION = 0.001
_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceHistory:
    """The price of a machine in a zone as shares of its price on demand, from `begins_at` to `ends_at`.

    `reached` counts the times at which it rose to the price on demand.
    """

    steps: tuple[tuple[float, float], ...]
    begins_at: datetime
    ends_at: datetime
    reached: int

    @property
    def hours(self) -> float:
        """The hours from the first to the last entry."""
        return (self.ends_at - self.begins_at).total_seconds() / _HOUR

    @property
    def mean_fraction(self) -> float:
        """The mean price over time."""
        return Spot(prices=self.steps).mean_listed_fraction

    @property
    def mean_interruption_hours(self) -> float:
        """The hours between interruptions of a node: the default's, or fewer by the history."""
        if not self.reached:
            return Spot().mean_interruption_hours
        return min(Spot().mean_interruption_hours, max(self.hours / self.reached, 1.0 / 60.0))


def price_history(prices: Sequence[tuple[datetime, float]], usd_on_demand: float) -> PriceHistory:
    """Return the history of (instant, dollars per hour), in any order; prices end at that of on demand."""
    ordered = sorted(prices)
    begin = ordered[0][0]
    fractions = [
        ((at - begin).total_seconds(), min(1.0, max(LEAST_FRACTION, usd / usd_on_demand)))
        for at, usd in ordered
    ]
    before = [0.0, *(fraction for _, fraction in fractions)]
    reached = sum(now >= 1.0 > earlier for (_, now), earlier in zip(fractions, before, strict=False))
    return PriceHistory(steps=tuple(fractions), begins_at=begin, ends_at=ordered[-1][0], reached=reached)


def cheapest_zone(zones: Mapping[str, PriceHistory]) -> str:
    """Return the zone with the lowest mean price; of several the one whose name comes first."""
    return min(zones, key=lambda zone: (zones[zone].mean_fraction, zone))
