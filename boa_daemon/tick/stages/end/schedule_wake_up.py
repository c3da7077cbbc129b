"""May bring the wake-up forward: a tick follows soon after a node becomes empty, and when a round is due.

An empty node must be given back, or its hold must begin; the next event of a job may be hours away. A policy
that decides in rounds is asked at each round.
"""

from __future__ import annotations

from boa_daemon.tick.facts.draft import SOON_SECONDS, Draft
from boa_daemon.tick.facts.plan import Plan
from boa_daemon.tick.facts.state import ClusterState
from policies.fast_dataclasses import replace
from policies.model import JobId

_OF_PEOPLE = frozenset({"user-day-cap", "team-day-cap", "team-month-cap", "team-share"})
"""Codes that hold back the jobs of single users or teams, not of the whole site."""


def schedule_wake_up(state: ClusterState, draft: Draft) -> Draft:
    """Return the draft with a wake-up that this decision, or the next round, makes necessary."""
    plan, every = draft.plan, draft.rules.round_seconds
    if every is not None:
        plan = plan.looked_at_by(_next_round(state, draft, every))
    elif _empties_a_node(state, plan):
        plan = plan.looked_at_by(state.now + SOON_SECONDS)
    return draft if plan is draft.plan else replace(draft, plan=plan)


def _next_round(state: ClusterState, draft: Draft, round_seconds: float) -> float | None:
    """Return when a policy that decides in rounds is due again; None if no round can change anything.

    Without nodes, and with none allowed before a cap opens again, nothing changes until then.
    """
    plan = draft.plan
    if state.jobs.keys() <= draft.set_aside.keys():
        return None
    is_held = any(held.code not in _OF_PEOPLE for held in plan.held)
    if not state.nodes and is_held and not plan.launches and plan.wake_at is not None:
        return None
    held_at = state.now if plan.memory is not None or state.memory is None else state.memory[1]
    return held_at + round_seconds


def _empties_a_node(state: ClusterState, plan: Plan) -> bool:
    """Return whether jobs that move by the plan leave a node empty."""
    jobs = state.jobs

    def leaves(job: JobId) -> bool:
        return job in plan.jobs.slots and not jobs[job].is_stopping

    running = [job for job in plan.jobs.slots if jobs[job].slots]
    left = {slot.node for job in running if leaves(job) for slot in jobs[job].slots}
    if not left:
        return False
    left -= plan.jobs.start_nodes
    return any(
        name in state.nodes and all(job is None or leaves(job) for job in state.nodes[name].gpus)
        for name in left
    )
