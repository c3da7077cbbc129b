"""A store that forgets when the program ends: exact sums, and the last records of each kind."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from boa_daemon.actions import Action, LaunchNode
from boa_daemon.ports import Charge, Launched, Outcome, Refused
from boa_daemon.state import ClusterState
from policies.model import NodeId


class MemoryStore:
    """Keeps sums exactly and the last `keep` records, so that a long simulation stays small."""

    def __init__(self, keep: int = 1000) -> None:
        self.outcomes: deque[tuple[Action, Outcome, float]] = deque(maxlen=keep)
        self.charges: deque[Charge] = deque(maxlen=keep)
        self.decisions: deque[tuple[ClusterState, tuple[Action, ...]]] = deque(maxlen=min(keep, 64))
        self._tick = 0
        self._open: dict[str, tuple[Action, float]] = {}
        self._unseen: dict[str, tuple[LaunchNode, float]] = {}
        self._refused_until: dict[str, float] = {}
        self._charged: set[NodeId] = set()
        self._settled = 0
        self._books_opened_at: float | None = None
        self._lean: tuple[float, float] | None = None

    def next_tick(self) -> int:
        """Return the number of the tick that begins."""
        self._tick += 1
        return self._tick

    def record_intent(self, action: Action, *, at: float) -> None:
        """Keep an action as open until its outcome is known."""
        self._open[action.id] = (action, at)
        if isinstance(action, LaunchNode):
            self._unseen[action.id] = (action, at)

    def record_outcome(self, action: Action, outcome: Outcome, *, at: float) -> None:
        """Close an action; a refused launch keeps its type from being asked for again too soon."""
        self._open.pop(action.id, None)
        self.outcomes.append((action, outcome, at))
        if isinstance(action, LaunchNode) and not isinstance(outcome, Launched):
            self._unseen.pop(action.id, None)
            if isinstance(outcome, Refused):
                self._refused_until[action.instance_type.name] = at + outcome.retry_after_seconds

    def open_intents(self) -> Sequence[Action]:
        """Return the actions whose outcome is unknown."""
        return [action for action, _ in self._open.values()]

    def unsettled(self) -> Sequence[tuple[LaunchNode, float]]:
        """Return launches whose outcome is unknown, or whose node was not seen yet."""
        return list(self._unseen.values())

    def record_seen(self, launched_by: str) -> None:
        """The node of a launch is in the cloud's list: the launch is settled."""
        self._unseen.pop(launched_by, None)
        self._open.pop(launched_by, None)

    def refused_until(self, now: float) -> Mapping[str, float]:
        """Return the types that were refused, while asking again is still too soon."""
        if self._refused_until:
            self._refused_until = {name: until for name, until in self._refused_until.items() if until > now}
        return dict(self._refused_until)

    def record_charge(self, charge: Charge) -> None:
        """Append a final bill; a second one for the same node is ignored."""
        if charge.node not in self._charged:
            self._charged.add(charge.node)
            self.charges.append(charge)
            self._settled += charge.micro_dollars

    def settled_micro_dollars(self) -> int:
        """Return the sum of all final bills."""
        return self._settled

    def books_opened_at(self, now: float) -> float:
        """Return the instant from which the budget accrues; the first call sets it."""
        if self._books_opened_at is None:
            self._books_opened_at = now
        return self._books_opened_at

    def reopen_books(self, at: float) -> None:
        """Let the budget accrue from a later instant."""
        self._books_opened_at = at

    def record_lean(self, lean: float, *, at: float) -> None:
        """Keep the last lean."""
        self._lean = (lean, at)

    def lean(self) -> tuple[float, float] | None:
        """Return the last lean and its instant."""
        return self._lean

    def record_decision(self, state: ClusterState, actions: Sequence[Action]) -> None:
        """Keep what a tick saw and decided."""
        self.decisions.append((state, tuple(actions)))
