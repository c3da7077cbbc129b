"""Ends of nodes that the cloud refused or did not answer: when each is tried again, and since when it lasts.

A node that does not end costs money, so the next try comes within seconds, then less often
(`boa_daemon.tick.facts.rests.END`). Nothing is kept over a restart: the first tick orders what is still due.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from boa_daemon.tick.facts.ports import Accepted, Outcome, Refused, Unknown
from boa_daemon.tick.facts.rests import END
from boa_daemon.tick.facts.state import NodeState
from policies.model import NodeId

LASTING_SECONDS = 60.0
"""People are told of an end that was not done for this long; what only they can mend is told at once."""
_OF_PEOPLE = ("denied", "bad-request")
"""Kinds of refusals that do not pass by themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingEnd:
    """An end that was not done: since when, how often it was tried, when last, and what the cloud said."""

    since: float
    at: float
    times: int
    said: Refused | Unknown

    @property
    def again_at(self) -> float:
        """When it is tried again."""
        return self.at + END.seconds(times=self.times)

    def is_lasting(self, now: float) -> bool:
        """Return whether people have to be told."""
        needs_people = isinstance(self.said, Refused) and self.said.kind in _OF_PEOPLE
        return needs_people or now - self.since >= LASTING_SECONDS


class PendingEnds:
    """The ends that were not done, by node."""

    def __init__(self) -> None:
        self._ends: dict[NodeId, PendingEnd] = {}

    def note(self, outcomes: Iterable[tuple[NodeId, Outcome]], *, at: float) -> None:
        """Take in what the cloud answered to orders to end nodes."""
        for node, outcome in outcomes:
            if isinstance(outcome, Accepted):
                self._ends.pop(node, None)
            elif isinstance(outcome, Refused | Unknown):
                before = self._ends.get(node)
                new = PendingEnd(since=at, at=at, times=1, said=outcome)
                again = None if before is None else replace(new, since=before.since, times=before.times + 1)
                self._ends[node] = again or new

    def again_at(self, nodes: Mapping[NodeId, NodeState], *, since: float, now: float) -> float | None:
        """Return when to look again; None if nothing is open. `nodes` are those that may exist.

        An end is open if it was tried `since` an instant, or if the cloud has it under way without an answer.
        """
        ends: dict[NodeId, PendingEnd] = {}
        for name, end in self._ends.items():
            node = nodes.get(name)
            if node is None or not (end.at >= since or (node.phase == "terminating" and _costs(node))):
                continue
            ends[name] = end if end.again_at > now else replace(end, at=now, times=end.times + 1)
        self._ends = ends
        return min((end.again_at for end in ends.values()), default=None)

    def lasting(self, now: float) -> Mapping[NodeId, PendingEnd]:
        """Return the ends that people have to be told of."""
        return {name: end for name, end in self._ends.items() if end.is_lasting(now)}


def _costs(node: NodeState) -> bool:
    """Whether a node is still charged: one that shuts down is not."""
    return not node.prices or node.prices[-1][1] > 0.0
