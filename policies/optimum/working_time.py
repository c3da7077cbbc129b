"""Working time: a clock that stops during hours off, such as nights and weekends.

On this clock a calendar with hours off is one without them: running jobs pause and then continue.

    symbol   here     meaning
    t        at       a moment, hours after the beginning
    w(t)     worked   working hours before it
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from policies.speedup import Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WorkingTime:
    """Intervals off, disjoint and ascending: `begins`, `ends`, and the working hours `before` each."""

    begins: Floats
    ends: Floats
    before: Floats

    @classmethod
    def without(cls, stretches: Iterable[tuple[float, float]]) -> WorkingTime:
        """Return the working time with these intervals off; they may overlap; time before 0 is ignored."""
        merged: list[list[float]] = []
        for begin, end in sorted((max(begin, 0.0), end) for begin, end in stretches if end > max(begin, 0.0)):
            if merged and begin <= merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], end)
            else:
                merged.append([begin, end])
        begins, ends = (np.array([one[i] for one in merged], dtype=float) for i in (0, 1))
        lengths = np.concatenate([[0.0], np.cumsum(ends - begins)[:-1]]) if merged else np.zeros(0)
        return cls(begins=begins, ends=ends, before=begins - lengths)

    @property
    def is_always(self) -> bool:
        """Whether there are no hours off."""
        return not len(self.begins)

    def worked(self, at: float) -> float:
        """Return the working hours before the moment `at`."""
        place = int(np.searchsorted(self.begins, at, side="right")) - 1
        if place < 0:
            return at
        return float(self.before[place] + max(at - self.ends[place], 0.0))

    def start(self, worked: float) -> float:
        """Return the last moment before which `worked` hours were worked: after an interval off."""
        return self._moment(worked, "right")

    def end(self, worked: float) -> float:
        """Return the first moment before which `worked` hours were worked: before an interval off."""
        return self._moment(worked, "left")

    def _moment(self, worked: float, side: str) -> float:
        place = int(np.searchsorted(self.before, worked, side="right" if side == "right" else "left")) - 1
        return worked if place < 0 else float(self.ends[place] + worked - self.before[place])


ALWAYS = WorkingTime.without(())
"""Working time without hours off."""
