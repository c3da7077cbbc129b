"""How far apart ticks come: what the caps must set aside when ticks are late.

A tick is late because an earlier one took long, a machine slept or its processor was busy. The time from the
beginning of a tick, which counts what nodes cost, to the end of the next one, which can end them, is measured
on the daemon's clock. What was seen twice within a day may be seen again; a machine that slept once, for a
move or an upgrade, leaves money for the work of the day.
"""

from __future__ import annotations

from math import ceil

from boa_daemon.tick.facts.limits import ALLOWED_TICKS

HOURS = 24
"""Hours for which a gap is remembered."""
MOST_SECONDS = 3600.0
"""Longest gap that is set aside for: a machine that sleeps all night would leave no money for work."""
TOLD_SECONDS = 60.0
"""Shorter gaps are set aside for and not told: with short ticks a busy machine has some all the time."""
STEP_SECONDS = 10.0
"""Gaps are rounded up to this, so that rules change seldom."""


class TickGaps:
    """The two longest gaps of each of the last hours, in seconds."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._by_hour: dict[int, list[float]] = {}

    def note(self, *, began: float, ended: float) -> None:
        """Take in a tick that began and ended at these instants."""
        if self._began is not None:
            hour, gap = int(ended // 3600.0), ended - self._began
            self._by_hour[hour] = sorted([*self._by_hour.get(hour, []), gap])[-2:]
            self._by_hour = {each: gaps for each, gaps in self._by_hour.items() if hour - each < HOURS}
        self._began = began

    def longest(self) -> float:
        """Return the longest gap that came twice within a day, rounded up; 0 before there are two."""
        longest = sorted(gap for gaps in self._by_hour.values() for gap in gaps)[-2:]
        if len(longest) < 2:
            return 0.0
        return min(STEP_SECONDS * ceil(longest[0] / STEP_SECONDS), MOST_SECONDS)


def gap_note(longest_seconds: float, tick_seconds: float) -> str:
    """Return a note that ticks come later than every site allows for; empty if they do not."""
    if longest_seconds <= max(ALLOWED_TICKS * tick_seconds, TOLD_SECONDS):
        return ""
    return (
        f"ticks came {longest_seconds:.0f} s apart or more, twice within a day, and [daemon] tick_seconds is "
        f"{tick_seconds:g}: for a day the caps set aside what nodes cost in that time, so that jobs stop "
        "earlier before a cap. See whether this machine sleeps or is busy, or whether ticks take long "
        "(`boa status`)"
    )
