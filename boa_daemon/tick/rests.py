"""For how long what was refused, or failed, is left alone before it is tried again: one rule, one table.

The first wait is short. The following ones grow with the number of refusals in a row, or with the time over
which it has been refused, up to a longest.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """How waits grow: by a factor with each time, or as a part of how long it has gone on."""

    first_seconds: float
    longest_seconds: float = inf
    factor: float = 1.0
    part: float = 0.0

    def seconds(self, *, times: int = 1, lasted_seconds: float = 0.0) -> float:
        """Return the wait after so many times in a row, the first of them so long ago."""
        # So many doublings are more than any longest wait; more would overflow.
        grown = self.first_seconds * self.factor ** min(times - 1, 60)
        return min(max(grown, self.part * lasted_seconds), self.longest_seconds)


OFFER = Rest(first_seconds=180.0, longest_seconds=1800.0, factor=2.0)
"""A launch that a cloud refused. Karpenter waits three minutes for a type and zone out of capacity."""
WIDE_OFFER = Rest(first_seconds=600.0, longest_seconds=1800.0, factor=2.0)
"""An order of several nodes at once: what is rented in its place has booted before it is asked for again."""
FAILURE = Rest(first_seconds=5.0, factor=2.0)
"""A job that failed; how often it is tried is for its file to say."""
NODE = Rest(first_seconds=5.0, longest_seconds=60.0, part=1.0 / 8.0)
"""A node that does not take what it is told, or a job that its nodes did not take.

What comes to be after ten minutes is seen a minute later at the most, and ticks of ten seconds ask some 40
times within half an hour, not 180 times.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Something that a node refuses: since when, and when it was asked last."""

    since: float
    at: float

    @property
    def until(self) -> float:
        """When it is asked again."""
        return self.at + NODE.seconds(lasted_seconds=self.at - self.since)
