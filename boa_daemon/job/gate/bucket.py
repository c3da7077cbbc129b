"""A token bucket: it fills steadily up to its size, and what is done is paid from it."""

from __future__ import annotations

import time
from collections.abc import Callable


class TokenBucket:
    """Holds up to `size` tokens and gains `per_second`; `monotonic` tells the time in seconds."""

    def __init__(
        self, size: float, per_second: float, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._size, self._per_second, self._monotonic = size, per_second, monotonic
        self._tokens, self._at = size, monotonic()

    def take(self) -> float:
        """Take a token and return 0; with less than one left, return the seconds until there is one."""
        self._fill()
        if self._tokens >= 1.0:
            self._tokens -= 1.0
            return 0.0
        return (1.0 - self._tokens) / self._per_second

    def charge(self, tokens: float) -> None:
        """Take tokens that are already used up, into debt if need be."""
        self._fill()
        self._tokens -= tokens

    def seconds_in_debt(self) -> float:
        """Return how long the bucket needs until it owes nothing."""
        self._fill()
        return max(0.0, -self._tokens / self._per_second)

    def set_rate(self, per_second: float) -> None:
        """Gain so much from now on."""
        self._fill()
        self._per_second = per_second

    def _fill(self) -> None:
        """Add what was gained since the last look."""
        now = self._monotonic()
        self._tokens = min(self._size, self._tokens + max(now - self._at, 0.0) * self._per_second)
        self._at = now
