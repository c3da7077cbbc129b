"""Time: the system's, or one that moves when told."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from boa_daemon.errors import BoaError

SMALL_SECONDS, AGREEING_SECONDS, WITNESSES = 30.0, 5.0, 3
"""Steps that are no jump; how near two clocks agree; how often a cloud must say it before we believe it."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        """Return seconds since the Unix epoch."""
        return time.time()


def _passed() -> float:
    """Return seconds that no setting of the clock changes, and that go on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SteadyClock:
    """The machine's clock as it was at the start, carried on by the time that passes since.

    A jump of the machine's clock, in either direction, reaches no bill, no hold, no lease and no cap: steps
    up to `SMALL_SECONDS` forward are followed, as when the time service corrects it; others are told of by
    `jump_seconds` and not followed. What a cloud says (`hear`) is stronger than the machine: the first word
    sets this clock, and a later one that disagrees does so once `WITNESSES` in a row say the same. Until then
    it is in doubt, and nothing should be started, renewed or swept.
    """

    def __init__(
        self,
        *,
        wall: Callable[[], float] = time.time,
        passed: Callable[[], float] = _passed,
    ) -> None:
        self._wall, self._passed = wall, passed
        self._offset = wall() - passed()
        self._is_held = False
        self._others: list[float] = []
        self._lock = threading.Lock()

    def now(self) -> float:
        """Return seconds since the Unix epoch."""
        with self._lock:
            now = self._passed() + self._offset
            ahead = self._wall() - now
            if not self._is_held and 0.0 < ahead <= SMALL_SECONDS:
                self._offset += ahead
                now += ahead
            return now

    def hear(self, instant: float) -> None:
        """Take what a cloud says that the time is, to the second."""
        with self._lock:
            offset = instant + 0.5 - self._passed()
            if abs(offset - self._offset) <= AGREEING_SECONDS:
                self._others.clear()
            elif not self._is_held:
                self._offset = offset
            else:
                if self._others and abs(offset - self._others[-1]) > AGREEING_SECONDS:
                    self._others.clear()
                self._others.append(offset)
                if len(self._others) >= WITNESSES:
                    self._offset = offset
                    self._others.clear()
            self._is_held = True

    @property
    def doubt(self) -> str:
        """Why this clock is not to be believed now; empty where it is."""
        with self._lock:
            if not self._others:
                return ""
            off = self._others[-1] - self._offset
            return (
                f"the cloud's clock and ours differ by {off:.0f} s; it is asked again before anything is done"
            )

    @property
    def jump_seconds(self) -> float:
        """How far the machine's clock is ahead of this one: what it jumped by."""
        with self._lock:
            return self._wall() - self._passed() - self._offset


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
