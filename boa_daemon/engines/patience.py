"""When to ask again what was refused: at first soon, then ever more seldom, as long as it goes on."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

FIRST_SECONDS, LONGEST_SECONDS = 5.0, 60.0
PART = 8.0


@dataclass(slots=True)
class Patience:
    """What was refused, since when, and when it is asked again.

    The wait is an eighth of how long it has gone on, from five seconds to a minute: what comes to be after
    ten minutes is seen a minute later at the most, and ticks of ten seconds ask some 40 times within half an
    hour, not 180 times.
    """

    _open: dict[Hashable, tuple[float, float, str]] = field(default_factory=dict)

    def refused(self, what: Hashable, why: str, *, now: float) -> float:
        """Note a refusal; return when to ask again."""
        since, _, _ = self._open.get(what, (now, now, ""))
        again = now + min(max((now - since) / PART, FIRST_SECONDS), LONGEST_SECONDS)
        self._open[what] = (since, again, why)
        return again

    def why_not_yet(self, what: Hashable, *, now: float) -> str:
        """Return the last refusal while it is not to be asked again; empty where it may be."""
        _, again, why = self._open.get(what, (now, now, ""))
        return why if now < again else ""

    def last(self, what: Hashable) -> str:
        """Return the last refusal, whether or not it may be asked again; empty where there is none."""
        return self._open.get(what, (0.0, 0.0, ""))[2]

    def forget(self, what: Hashable) -> None:
        """Forget refusals: it was done, or is not wanted any more."""
        self._open.pop(what, None)
