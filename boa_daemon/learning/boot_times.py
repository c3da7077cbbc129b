"""Observed boot times by instance type: from a node's launch until a job can run on it.

Plans begin with the cloud's own figure (180 s on AWS). Once a few nodes of the types in use have booted,
plans use the mean of the observed boots, in steps, so that a slightly longer boot changes no plan. Starts of
stopped nodes are kept apart: they say what a warm pool saves, and plans do not use them as boots. Cost:
O(boots kept).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import log
from statistics import fmean, quantiles

from boa_daemon.tick.facts.node_lives import life_of

MOST_KEPT, LEAST_SEEN = 50, 3
STARTED_SUFFIX = " (started)"
"""Suffix of a type name for the starts of stopped nodes."""
STEP = 1.25
"""Plans round boot times to steps of this factor: 100 s, 125 s, 156 s."""
LONGEST_SECONDS = 1800.0
"""Longer boots are ignored: such a node was of no use and went back."""


@dataclass(slots=True)
class BootTimes:
    """The newest boot times of each type, in seconds."""

    by_type: dict[str, deque[float]] = field(default_factory=dict)
    _taken: set[str] = field(default_factory=set)

    def take(self, node: str, instance_type: str, *, launched_at: float, ready_at: float | None) -> None:
        """Record the boot of a ready node, once per node."""
        if ready_at is None or node in self._taken:
            return
        self._taken.add(node)
        seconds = ready_at - launched_at
        if 0.0 < seconds <= LONGEST_SECONDS:
            name = instance_type + (STARTED_SUFFIX if life_of(node) > 1 else "")
            self.by_type.setdefault(name, deque(maxlen=MOST_KEPT)).append(seconds)

    def forget_others(self, nodes: Iterable[str]) -> None:
        """Forget the names of nodes that are gone; a name never comes back."""
        self._taken &= set(nodes)

    def planned_seconds(self, types: Iterable[str], *, otherwise: float) -> float:
        """Return the boot time for plans: the mean over types of the observed boots, else `otherwise`."""
        kinds = list(types)
        known = [self.by_type.get(name, deque()) for name in kinds]
        if not any(len(seen) >= LEAST_SEEN for seen in known):
            return otherwise
        mean = fmean(fmean(seen) if len(seen) >= LEAST_SEEN else otherwise for seen in known)
        return float(STEP ** round(log(mean) / log(STEP)))

    def started_seconds(self, types: Iterable[str], *, otherwise: float) -> float:
        """Return the time of a start of a stopped node, computed as `planned_seconds` does for boots."""
        return self.planned_seconds((name + STARTED_SUFFIX for name in types), otherwise=otherwise)

    def document(self) -> Mapping[str, Mapping[str, float]]:
        """Return the distribution of each type as a JSON document."""
        return {name: _described(list(seen)) for name, seen in sorted(self.by_type.items())}


def _described(seen: list[float]) -> Mapping[str, float]:
    """Return the number of boots, and their median and 90th percentile in seconds."""
    tenths = quantiles(seen, n=10, method="inclusive") if len(seen) > 1 else [seen[0]] * 9
    return {"boots": len(seen), "p50_seconds": round(tenths[4], 1), "p90_seconds": round(tenths[8], 1)}
