"""Limit on the time that a job may lose to the gate: a token bucket filled with a fraction of the time."""

from __future__ import annotations

from boa_daemon.job.gate.bucket import TokenBucket

OVERHEAD_FRACTION = 0.006
"""Below 1 %, so that even a short run stays under 1 % with the burst and time that cannot be counted."""
MOST_FRACTION = 0.05
BURST_SECONDS = 0.02
"""The allowance at the start, and the maximum that can be saved up."""


class Allowance:
    """Seconds that a job may still lose: a fraction of the elapsed time, plus a burst. In debt, no asking."""

    def __init__(self) -> None:
        self.lost_seconds = 0.0
        self._bucket = TokenBucket(BURST_SECONDS, OVERHEAD_FRACTION)

    def charge(self, seconds: float) -> None:
        """Count lost time."""
        self._bucket.charge(seconds)
        self.lost_seconds += seconds

    def set_fraction(self, fraction: float) -> None:
        """Set the fraction that the gate grants, limited to 0.006 to 0.05."""
        self._bucket.set_rate(max(OVERHEAD_FRACTION, min(MOST_FRACTION, fraction)))

    def seconds_to_earn(self) -> float:
        """Return how many seconds the job must not ask; 0 if it may ask now."""
        return self._bucket.seconds_in_debt()
