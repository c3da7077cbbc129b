"""A summary of a decision: the figures for status requests and metrics, computed once per decision.

Requests are answered from the summary, so they never wait for a tick.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from boa_daemon.daemon.watch.alerts import budget_figures
from boa_daemon.tick.decide.decision import Decision
from boa_daemon.tick.facts.limits import Caps

_LISTED = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionSummary:
    """The figures of a decision; `figures` are the day's and the month's money in dollars.

    `nodes` counts nodes that run or are being launched; `stopped` counts the stopped nodes of the warm pool.
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
        """Return the summary of a decision, in O(jobs + nodes)."""
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
