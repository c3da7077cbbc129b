"""Forecast how long jobs run on, and which GPUs are free so soon that renting others does not pay.

The policy says what that is worth (`policies.online.node_prices`).  Cost: O(running jobs).
"""

from __future__ import annotations

from collections.abc import Mapping

from boa_daemon.tick.facts.state import ClusterState
from boa_daemon.units import SECONDS_PER_HOUR
from policies.answer import NodePrices
from policies.model import Job, JobId, Width

OVERDUE = 2.0
"""If a job has waited this multiple of the patience, no forecast is trusted: they were wrong."""


def about_to_end(
    state: ClusterState, node_prices: NodePrices | None, waiting: Mapping[JobId, Width]
) -> frozenset[JobId]:
    """Return the jobs whose GPUs are free sooner than it pays to rent nodes for the waiting jobs."""
    if node_prices is None or not waiting:
        return frozenset()
    patience = {kind: node_prices.patience_hours(kind) for kind in {w.gpu_type for w in waiting.values()}}
    for job_id, width in waiting.items():
        job, limit = state.jobs[job_id], OVERDUE * patience[width.gpu_type] * SECONDS_PER_HOUR
        if not job.slots and state.now - job.job.arrived_at > limit:
            return frozenset()
    patient = patience.get
    return frozenset(
        [
            job_id
            for job_id, job in state.jobs.items()
            if (held := job.job.width) is not None
            and job_id not in waiting
            and job_hours_left(state, job.job, node_prices) < patient(held.gpu_type, 0.0)
        ]
    )


def job_hours_left(state: ClusterState, job: Job, node_prices: NodePrices) -> float:
    """Return how many hours a job runs on from now, whenever its work was counted."""
    hours, counted_at = node_prices.hours_left(job), job.counted_at
    return hours if counted_at is None else hours + (counted_at - state.now) / SECONDS_PER_HOUR
