"""How long a refused or failed thing rests before it is tried again: one rule, one table.

The first wait is short. Later waits grow with the number of refusals in a row, or with the time since the
first refusal, up to a maximum.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """How waits grow: by a factor each time, or as a part of the time since the first refusal."""

    first_seconds: float
    longest_seconds: float = inf
    factor: float = 1.0
    part: float = 0.0

    def seconds(self, *, times: int = 1, lasted_seconds: float = 0.0) -> float:
        """Return the wait after `times` refusals in a row, the first of them `lasted_seconds` ago."""
        # 60 doublings exceed any longest wait; more would overflow.
        grown = self.first_seconds * self.factor ** min(times - 1, 60)
        return min(max(grown, self.part * lasted_seconds), self.longest_seconds)


OFFER = Rest(first_seconds=180.0, longest_seconds=1800.0, factor=2.0)
"""A launch that the cloud refused. Karpenter waits three minutes for a type and zone out of capacity."""
WIDE_OFFER = Rest(first_seconds=600.0, longest_seconds=1800.0, factor=2.0)
"""An order of several nodes at once: a substitute has booted before the order is tried again."""
END = Rest(first_seconds=2.0, longest_seconds=60.0, factor=2.0)
"""The end of a node that the cloud refused or did not answer; the node costs money meanwhile."""
FAILURE = Rest(first_seconds=5.0, factor=2.0)
"""A job that failed; its file says how often it is retried."""
NODE = Rest(first_seconds=5.0, longest_seconds=60.0, part=1.0 / 8.0)
"""A node that refuses an order, or a job that its nodes refused.

A change after ten minutes is seen at most a minute later, and ticks of ten seconds ask some 40 times within
half an hour, not 180 times.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Something that a node refuses: since when, and when it was last asked."""

    since: float
    at: float

    @property
    def until(self) -> float:
        """When the node is asked again."""
        return self.at + NODE.seconds(lasted_seconds=self.at - self.since)
