"""A limit on frames per second: a bucket that fills steadily and empties by one per frame."""

from __future__ import annotations

FRAMES_PER_SECOND = 5000.0
"""Twice what a job needs that sends a message every half millisecond."""


class Rate:
    """At most `per_second` on average, and as many again at once."""

    def __init__(self, per_second: float = FRAMES_PER_SECOND) -> None:
        self._per_second = per_second
        self._left = per_second
        self._at: float | None = None

    def allows(self, now: float) -> bool:
        """Return whether one more frame is within the limit, and count it."""
        if self._at is not None:
            self._left = min(self._per_second, self._left + (now - self._at) * self._per_second)
        self._at = now
        self._left -= 1.0
        return self._left >= 0.0
