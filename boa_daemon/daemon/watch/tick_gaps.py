"""How far apart ticks come: what the caps must set aside when ticks are late.

A tick is late because an earlier one took long, a machine slept or its processor was busy. The time from the
beginning of a tick, which counts what nodes cost, to the end of the next one, which can end them, is measured
on the daemon's clock. What was seen within a day may be seen again.
"""

from __future__ import annotations

from math import ceil

from boa_daemon.daemon.planner.tick_rules import ALLOWED_TICKS

HOURS = 24
"""Hours for which a gap is remembered."""
MOST_SECONDS = 3600.0
"""Longest gap that is set aside for: a machine that sleeps all night would leave no money for work."""
STEP_SECONDS = 10.0
"""Gaps are rounded up to this, so that rules change seldom."""


class TickGaps:
    """The longest gap of each of the last hours, in seconds."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._by_hour: dict[int, float] = {}

    def note(self, *, began: float, ended: float) -> None:
        """Take in a tick that began and ended at these instants."""
        if self._began is not None:
            hour, gap = int(ended // 3600.0), ended - self._began
            self._by_hour[hour] = max(gap, self._by_hour.get(hour, 0.0))
            self._by_hour = {each: gap for each, gap in self._by_hour.items() if hour - each < HOURS}
        self._began = began

    def longest(self) -> float:
        """Return the longest gap within a day, rounded up; 0 before the second tick."""
        longest = max(self._by_hour.values(), default=0.0)
        return min(STEP_SECONDS * ceil(longest / STEP_SECONDS), MOST_SECONDS)


def gap_note(longest_seconds: float, tick_seconds: float) -> str:
    """Return a note that ticks come later than every site allows for; empty if they do not."""
    if longest_seconds <= ALLOWED_TICKS * tick_seconds:
        return ""
    return (
        f"ticks came up to {longest_seconds:.0f} s apart, and [daemon] tick_seconds is {tick_seconds:g}: "
        "for a day the caps set aside what nodes cost in that time, so that jobs stop earlier before a cap. "
        "See whether this machine sleeps or is busy, or whether ticks take long (`boa status`)"
    )
