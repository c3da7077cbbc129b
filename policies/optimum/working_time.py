"""Working time: a clock that stands still in stretches that are off, such as nights and weekends.

A calendar with such stretches is one without them on this clock: what runs pauses and goes on.

    symbol   here     meaning
    t        at       a moment, hours after the beginning
    w(t)     worked   hours at work before it
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from policies.speedup import Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WorkingTime:
    """Stretches that are off: begins and ends, apart and rising; `before` is what is worked before each."""

    begins: Floats
    ends: Floats
    before: Floats

    @classmethod
    def without(cls, stretches: Iterable[tuple[float, float]]) -> WorkingTime:
        """Return the working time without stretches, which may overlap; what is before 0 does not count."""
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
        """Whether nothing is off."""
        return not len(self.begins)

    def worked(self, at: float) -> float:
        """Return the hours at work before a moment."""
        place = int(np.searchsorted(self.begins, at, side="right")) - 1
        if place < 0:
            return at
        return float(self.before[place] + max(at - self.ends[place], 0.0))

    def start(self, worked: float) -> float:
        """Return the moment at which work goes on with so many hours behind it: after what is off."""
        return self._moment(worked, "right")

    def end(self, worked: float) -> float:
        """Return the first moment with so many hours behind it: before what is off."""
        return self._moment(worked, "left")

    def _moment(self, worked: float, side: str) -> float:
        """Return a moment with so many hours behind it."""
        place = int(np.searchsorted(self.before, worked, side="right" if side == "right" else "left")) - 1
        return worked if place < 0 else float(self.ends[place] + worked - self.before[place])


ALWAYS = WorkingTime.without(())
"""Nothing is off."""
