"""Recent orders by target, for the rules against flapping.  Cost: O(recent acts)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from boa_daemon.tick.facts.limits import Act, ActKind


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentActs:
    """Instants of recent acts in order of time, by kind and target (`by_target`).

    `started` are the jobs that were started, `stops` the stops of all jobs. `launches_without_start` are the
    launches since the last start of any job, by instance type.
    """

    by_target: dict[tuple[ActKind, str], list[float]]
    started: set[str]
    stops: list[float]
    launches_without_start: dict[str, list[float]]

    @classmethod
    def of(cls, acts: Sequence[Act]) -> RecentActs:
        """Return the history of acts in order of time."""
        by_target: dict[tuple[ActKind, str], list[float]] = {}
        launches: dict[str, list[float]] = {}
        started, stops = set[str](), list[float]()
        for act in acts:
            by_target.setdefault((act.kind, act.target), []).append(act.at)
            if act.kind == "start":
                started.add(act.target)
                launches.clear()
            elif act.kind == "launch":
                launches.setdefault(act.target, []).append(act.at)
            elif act.kind == "stop":
                stops.append(act.at)
        return cls(by_target=by_target, started=started, stops=stops, launches_without_start=launches)

    def since(self, kind: ActKind, target: str, at: float) -> list[float]:
        """Return the instants of acts of a kind on a target from an instant on."""
        return [instant for instant in self.by_target.get((kind, target), ()) if instant >= at]
