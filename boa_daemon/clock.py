"""Time: the system's, or one that moves when told."""

from __future__ import annotations

import threading
import time

from boa_daemon.errors import BoaError


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        """Return seconds since the Unix epoch."""
        return time.time()


class ForwardClock:
    """The machine's clock, but never backwards: while it was set back, time goes on as it passes.

    Bills, holds and caps must not run twice through the same minutes. `not_before` is the last instant that
    an earlier process saw.
    """

    def __init__(self, not_before: float = 0.0) -> None:
        self._last, self._passed = max(not_before, 0.0), time.monotonic()
        self._lock = threading.Lock()

    def now(self) -> float:
        """Return seconds since the Unix epoch, never less than before."""
        with self._lock:
            passed = time.monotonic()
            self._last = max(time.time(), self._last + passed - self._passed)
            self._passed = passed
            return self._last


class VirtualClock:
    """A clock that stands still until it is moved, and never goes back."""

    __slots__ = ("_now",)

    def __init__(self, now: float = 0.0) -> None:
        self._now = now

    def now(self) -> float:
        """Return the instant that it was moved to."""
        return self._now

    def advance_to(self, instant: float) -> None:
        """Move to `instant`.

        Raises:
            BoaError: when that would be a step back.
        """
        if instant < self._now:
            raise BoaError(
                f"a clock cannot go back: it is {self._now:.3f} s and was asked for {instant:.3f} s"
            )
        self._now = instant
