"""A decision at a glance: the figures that people and scrapers ask for, added up once when it is made.

Whoever asks for the status is answered from this, whatever a tick is doing meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from boa_daemon.daemon.alerts import budget_figures
from boa_daemon.tick.decision import Decision
from boa_daemon.tick.limits import Caps

_LISTED = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionSummary:
    """The figures of a decision; `figures` are the books of the day and the month in dollars.

    `nodes` are those that run, or are to; `stopped` are the others, of the warm pool.
    """

    decision: Decision
    figures: Mapping[str, Mapping[str, float | None]]
    usd_per_hour: float
    nodes: int
    stopped: int
    gpus: int
    gpus_used: int
    running: int
    waiting: int
    held: tuple[str, ...]

    @classmethod
    def of(cls, decision: Decision, caps: Caps | None) -> DecisionSummary:
        """Return the figures of a decision; O(jobs + nodes)."""
        state = decision.state
        running = sum(1 for job in state.jobs.values() if job.slots)
        stopped = sum(node.phase == "stopped" for node in state.nodes.values())
        gpus = sum(len(node.gpus) for node in state.nodes.values())
        return cls(
            decision=decision,
            figures=budget_figures(state, caps),
            usd_per_hour=state.usd_per_hour,
            nodes=len(state.nodes) - stopped,
            stopped=stopped,
            gpus=gpus,
            gpus_used=gpus - sum(node.free_gpus for node in state.nodes.values()),
            running=running,
            waiting=len(state.jobs) - running,
            held=tuple(held.sentence for held in decision.plan.held[:_LISTED]),
        )
