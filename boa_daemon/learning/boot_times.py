"""How long nodes take from their launch until a job can run on them, by type, as seen.

What a cloud says beforehand (180 s on AWS) is what plans begin with. Once a few nodes of the types in use
have booted, plans go by the mean of what was seen, in steps, so that a boot that is a little longer changes
no plan. Starts of stopped nodes are kept apart: they say what a warm pool saves, and no plan counts on them.
Cost: O(boots kept).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import log
from statistics import fmean, quantiles

from boa_daemon.tick.node_lives import life_of

MOST_KEPT, LEAST_SEEN = 50, 3
STARTED_SUFFIX = " (started)"
"""After the name of a type: its starts are meant, not its boots."""
STEP = 1.25
"""Plans know boots to this factor: 100 s, 125 s, 156 s."""
LONGEST_SECONDS = 1800.0
"""A node that took longer was of no use, and went back."""


@dataclass(slots=True)
class BootTimes:
    """The newest boots of each type, in seconds."""

    by_type: dict[str, deque[float]] = field(default_factory=dict)
    _taken: set[str] = field(default_factory=set)

    def take(self, node: str, instance_type: str, *, launched_at: float, ready_at: float | None) -> None:
        """Take in a node that is ready; each once."""
        if ready_at is None or node in self._taken:
            return
        self._taken.add(node)
        seconds = ready_at - launched_at
        if 0.0 < seconds <= LONGEST_SECONDS:
            name = instance_type + (STARTED_SUFFIX if life_of(node) > 1 else "")
            self.by_type.setdefault(name, deque(maxlen=MOST_KEPT)).append(seconds)

    def forget_others(self, nodes: Iterable[str]) -> None:
        """Keep only the names of nodes that are still there: a name comes once."""
        self._taken &= set(nodes)

    def planned_seconds(self, types: Iterable[str], *, otherwise: float) -> float:
        """Return what plans assume: the mean over types of what was seen, and what is said of the others."""
        kinds = list(types)
        known = [self.by_type.get(name, deque()) for name in kinds]
        if not any(len(seen) >= LEAST_SEEN for seen in known):
            return otherwise
        mean = fmean(fmean(seen) if len(seen) >= LEAST_SEEN else otherwise for seen in known)
        return float(STEP ** round(log(mean) / log(STEP)))

    def started_seconds(self, types: Iterable[str], *, otherwise: float) -> float:
        """Return how long starts take, as `planned_seconds` says it of boots."""
        return self.planned_seconds((name + STARTED_SUFFIX for name in types), otherwise=otherwise)

    def document(self) -> Mapping[str, Mapping[str, float]]:
        """Return the distribution of each type as JSON shows it."""
        return {name: _described(list(seen)) for name, seen in sorted(self.by_type.items())}


def _described(seen: list[float]) -> Mapping[str, float]:
    """Return how many boots were seen, their median and their 90th percentile, in seconds."""
    tenths = quantiles(seen, n=10, method="inclusive") if len(seen) > 1 else [seen[0]] * 9
    return {"boots": len(seen), "p50_seconds": round(tenths[4], 1), "p90_seconds": round(tenths[8], 1)}
