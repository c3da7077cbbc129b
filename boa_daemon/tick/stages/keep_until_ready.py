"""May postpone moves of running jobs: a job moves only once its next nodes have what it needs.

The job works on meanwhile. A job on a node that ends, or that goes back for a cap, leaves in any case. A job
that was to get GPUs of a postponed job is postponed too, and so on.
"""

from __future__ import annotations

from collections.abc import Mapping

from boa_daemon.tick.draft import SOON_SECONDS, Draft
from boa_daemon.tick.limits import Held
from boa_daemon.tick.state import ClusterState
from policies.fast_dataclasses import replace
from policies.model import GpuSlot, JobId


def keep_until_ready(state: ClusterState, draft: Draft) -> Draft:
    """Return the draft in which running jobs whose next start is not ready keep what they hold."""
    plan = draft.plan
    if not state.not_ready:
        return draft
    ending = {node.id for node in state.passing_nodes if node.ends_by is not None}.union(plan.forced)
    not_ready = {
        name
        for name in state.not_ready & plan.slots.keys()
        if state.jobs[name].slots and _may_stay(state, name, ending)
    }
    if not not_ready:
        return draft
    put_off, leaving = _put_off(state, plan.slots, not_ready, ending)
    held = [
        Held(what=f"job {name}", code="not-ready" if name in not_ready else "not-free")
        for name in sorted(put_off)
    ]
    plan = replace(
        plan,
        slots={name: slots for name, slots in plan.slots.items() if name not in put_off},
        stops=(*plan.stops, *sorted(leaving)),
        held=(*plan.held, *held),
    )
    return replace(draft, plan=plan.looked_at_by(state.now + SOON_SECONDS))


def _put_off(
    state: ClusterState, slots: Mapping[JobId, tuple[GpuSlot, ...]], not_ready: set[JobId], ending: set[str]
) -> tuple[set[JobId], set[JobId]]:
    """Return the jobs that do not start now, and those of them that must release their GPUs anyway."""
    put_off, leaving = set(not_ready), set[JobId]()
    taken = {slot for name in put_off for slot in state.jobs[name].slots}
    while late := {name for name, new in slots.items() if name not in put_off and not taken.isdisjoint(new)}:
        put_off |= late
        for name in late:
            if _may_stay(state, name, ending):
                taken.update(state.jobs[name].slots)
            else:
                leaving.add(name)
    return put_off, leaving


def _may_stay(state: ClusterState, name: JobId, ending: set[str]) -> bool:
    """Return whether none of the job's nodes ends."""
    return ending.isdisjoint(slot.node for slot in state.jobs[name].slots)
