"""Clocks: the machine's, one that ignores jumps of the machine's clock, and one that tests move."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from boa_daemon.errors import BoaError

SMALL_SECONDS, AGREEING_SECONDS, WITNESSES = 30.0, 5.0, 3
"""Largest forward step to follow; how close two clocks agree; cloud answers in a row that outvote us."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        """Return seconds since the Unix epoch."""
        return time.time()


def _passed() -> float:
    """Return seconds since boot; setting the clock does not change them, and sleep counts."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SteadyClock:
    """The machine's clock at the start plus the time that passed since, so that jumps have no effect.

    A jump of the machine's clock would corrupt bills, idle holds, leases and caps. This clock follows steps
    forward of up to `SMALL_SECONDS`, as a time service makes them. It ignores other steps and reports them in
    `jump_seconds`.

    A cloud's time (`hear`) overrides the machine's. The first answer sets this clock. A later answer that
    disagrees sets it once `WITNESSES` answers in a row agree with each other. Until then the clock is in
    `doubt`, and nothing should be started, renewed or swept.
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
        """Take the time that a cloud reports: whole seconds since the Unix epoch, rounded down."""
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
        """Why this clock cannot be trusted now; empty when it can."""
        with self._lock:
            if not self._others:
                return ""
            off = self._others[-1] - self._offset
            return f"the cloud's clock and ours differ by {off:.0f} s; nothing is done until this is settled"

    @property
    def jump_seconds(self) -> float:
        """Seconds that the machine's clock is ahead of this one."""
        with self._lock:
            return self._wall() - self._passed() - self._offset


class VirtualClock:
    """A clock that only `advance_to` moves, and that never goes back."""

    __slots__ = ("_now",)

    def __init__(self, now: float = 0.0) -> None:
        self._now = now

    def now(self) -> float:
        """Return the instant of the last `advance_to`."""
        return self._now

    def advance_to(self, instant: float) -> None:
        """Move to `instant`.

        Raises:
            BoaError: when `instant` lies before the present one.
        """
        if instant < self._now:
            raise BoaError(
                f"a clock cannot go back: it is {self._now:.3f} s and was asked for {instant:.3f} s"
            )
        self._now = instant
