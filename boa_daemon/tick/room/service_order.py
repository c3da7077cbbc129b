"""The queue: which waiting jobs compete for GPUs, in the order in which they are served.

Jobs that were stopped without a fault of theirs come first (`boa_daemon.tick.facts.claims`), then those that
the plan names in its order of service, then the others by arrival. Jobs that may not start whatever is free,
such as jobs that rest after a failure or whose user's cap is spent, are in no queue.

Cost: O(jobs).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from boa_daemon.tick.facts.claims import served_first
from boa_daemon.tick.facts.plan import Plan
from boa_daemon.tick.facts.reasons import UnqueuedReason, WaitReason
from boa_daemon.tick.facts.state import ClusterState
from policies.model import JobId

BY_ARRIVAL = "jobs are served by arrival"
"""The rule of service where a plan has no other."""
NOT_IN_QUEUE: frozenset[WaitReason] = frozenset(get_args(UnqueuedReason))
"""Reasons for which a job waits whatever is free."""


def waiting_in_order(state: ClusterState, plan: Plan) -> tuple[JobId, ...]:
    """Return the waiting jobs that do not start now, in the order of service."""
    found = []
    for name in dict.fromkeys((*served_first(state), *plan.order, *state.jobs)):
        job = state.jobs.get(name)
        if job is None or job.slots or name in plan.jobs.slots or name in plan.jobs.given_up:
            continue
        if plan.jobs.waiting.get(name) not in NOT_IN_QUEUE:
            found.append(name)
    return tuple(found)


def places_in_queue(state: ClusterState, plan: Plan) -> Mapping[JobId, int]:
    """Return the place of each waiting job in the queue, counted from 1."""
    return {name: place for place, name in enumerate(waiting_in_order(state, plan), start=1)}
