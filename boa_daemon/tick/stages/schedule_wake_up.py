"""May bring the wake-up forward: a node that falls empty is looked at soon, and rounds come on time.

A node that is empty is to be given back, or its hold to begin; the next job may come or end in hours only.
A policy that decides in rounds looks then.
"""

from __future__ import annotations

from boa_daemon.tick.draft import SOON_SECONDS, Draft
from boa_daemon.tick.state import ClusterState, Plan
from policies.fast_dataclasses import replace
from policies.model import JobId

_OF_PEOPLE = frozenset({"user-day-cap", "team-day-cap", "team-month-cap", "team-share"})
"""What holds back the jobs of some, and not the site."""


def schedule_wake_up(state: ClusterState, draft: Draft) -> Draft:
    """Return the draft with a wake-up for what this decision, or the next round, makes necessary."""
    plan, every = draft.plan, draft.rules.round_seconds
    if every is not None:
        plan = plan.looked_at_by(_next_round(state, draft, every))
    elif _empties_a_node(state, plan):
        plan = plan.looked_at_by(state.now + SOON_SECONDS)
    return draft if plan is draft.plan else replace(draft, plan=plan)


def _next_round(state: ClusterState, draft: Draft, round_seconds: float) -> float | None:
    """Return when a policy that decides in rounds is due again; None where no round can change anything.

    With no node there, and none allowed before a cap opens again, nothing changes until then.
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
    """Return whether jobs that move by the plan leave a node on which nobody is then."""
    jobs = state.jobs

    def leaves(job: JobId) -> bool:
        return job in plan.slots and not jobs[job].is_stopping

    running = [job for job in plan.slots if jobs[job].slots]
    left = {slot.node for job in running if leaves(job) for slot in jobs[job].slots}
    if not left:
        return False
    left.difference_update([slot.node for slots in plan.slots.values() for slot in slots])
    return any(
        name in state.nodes and all(job is None or leaves(job) for job in state.nodes[name].gpus)
        for name in left
    )
