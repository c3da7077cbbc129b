"""How much time a job may still lose to the gate: a bucket that fills with a part of the time that passes."""

from __future__ import annotations

from boa_daemon.job.gate.bucket import TokenBucket

OVERHEAD_FRACTION = 0.006
"""Below one percent, so that with the burst and what cannot be counted a short run stays under it too."""
MOST_FRACTION = 0.05
BURST_SECONDS = 0.02
"""The allowance at the start, and the most that is saved up."""


class Allowance:
    """At most `fraction` of the time since the start, plus a burst. In debt the job does not ask."""

    def __init__(self) -> None:
        self.lost_seconds = 0.0
        self._bucket = TokenBucket(BURST_SECONDS, OVERHEAD_FRACTION)

    def charge(self, seconds: float) -> None:
        """Count time that was lost."""
        self._bucket.charge(seconds)
        self.lost_seconds += seconds

    def set_fraction(self, fraction: float) -> None:
        """Take the gate's word for what asking is worth, within bounds."""
        self._bucket.set_rate(max(OVERHEAD_FRACTION, min(MOST_FRACTION, fraction)))

    def seconds_to_earn(self) -> float:
        """Return how long the job has to go without asking; zero where it may ask now."""
        return self._bucket.seconds_in_debt()
