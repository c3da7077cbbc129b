"""A token bucket, which fills steadily up to its size; each use takes tokens from it."""

from __future__ import annotations

import time
from collections.abc import Callable


class TokenBucket:
    """Holds up to `size` tokens and gains `per_second`; `monotonic` returns the time in seconds."""

    def __init__(
        self, size: float, per_second: float, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._size, self._per_second, self._monotonic = size, per_second, monotonic
        self._tokens, self._at = size, monotonic()

    def take(self) -> float:
        """Take a token and return 0; if less than one is left, return the seconds until there is one."""
        self._fill()
        if self._tokens >= 1.0:
            self._tokens -= 1.0
            return 0.0
        return (1.0 - self._tokens) / self._per_second

    def charge(self, tokens: float) -> None:
        """Take tokens for something that has happened already; the bucket may go into debt."""
        self._fill()
        self._tokens -= tokens

    def seconds_in_debt(self) -> float:
        """Return the seconds until the bucket is out of debt."""
        self._fill()
        return max(0.0, -self._tokens / self._per_second)

    def set_rate(self, per_second: float) -> None:
        """Set the gain per second from now on."""
        self._fill()
        self._per_second = per_second

    def _fill(self) -> None:
        now = self._monotonic()
        self._tokens = min(self._size, self._tokens + max(now - self._at, 0.0) * self._per_second)
        self._at = now
