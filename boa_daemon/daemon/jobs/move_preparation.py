"""Prepare moves: a job keeps running until its next nodes are ready for it, within a time limit."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from boa_daemon.tick.facts.actions import StartJob
from boa_daemon.tick.facts.ports import Clock, EarlyStarter, Runner
from policies.model import JobId, NodeId

MOST_SECONDS = 300.0
"""Longest wait of a move for its next nodes to be prepared."""
FORGOTTEN_SECONDS = 10.0
"""After this time without a request from a tick, a move no longer keeps its nodes busy."""


@dataclass(frozen=True, slots=True)
class _Move:
    """A start in preparation: its nodes, since when, and when a tick last asked for it."""

    generation: int
    since: float
    asked_at: float
    nodes: frozenset[NodeId]


class MovePreparation:
    """Asks engines that support it to prepare starts; `alert` receives failures."""

    def __init__(self, runner: Runner, clock: Clock, alert: Callable[[str, str], None]) -> None:
        self._runner, self._clock, self._alert = runner, clock, alert
        self._moves: dict[JobId, _Move] = {}

    def is_ready(self, action: StartJob) -> bool:
        """Return whether a job may be stopped for its next start; call again until it may."""
        if not isinstance(self._runner, EarlyStarter):
            return True
        now, known = self._clock.now(), self._moves.get(action.job)
        since = now if known is None or known.generation != action.generation else known.since
        nodes = frozenset(slot.node for slot in action.slots)
        self._moves[action.job] = _Move(action.generation, since, asked_at=now, nodes=nodes)
        if now - since > MOST_SECONDS:
            return True
        try:
            return self._runner.ahead(action)
        except (OSError, ValueError) as fault:
            self._alert(f"ahead:{action.job}", f"job {action.job} moves without being made ready: {fault}")
            return True

    def nodes(self, stopping: Collection[JobId]) -> frozenset[NodeId]:
        """Return the nodes to which jobs are about to move, including those of `stopping` jobs."""
        now = self._clock.now()
        wanted = (
            move.nodes
            for job, move in self._moves.items()
            if job in stopping or now - move.asked_at <= FORGOTTEN_SECONDS
        )
        return frozenset[NodeId]().union(*wanted)

    def forget(self, job: JobId) -> None:
        """Forget a job's move, because its generation is over."""
        self._moves.pop(job, None)
