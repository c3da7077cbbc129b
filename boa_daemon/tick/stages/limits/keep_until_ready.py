"""May postpone moves of running jobs: a job moves only once its next nodes are free and have what it needs.

The job works on meanwhile. A stop takes up to the grace of the job that stops. If that is longer than a boot,
no other running job stops for the GPUs that it is to leave: it would stand still for that time. A job on a
node that ends, or that goes back for a cap, leaves in any case. A job that was to get GPUs of a postponed job
is postponed too, and so on.

Cost: O(moves) per tick.
"""

from __future__ import annotations

from collections.abc import Mapping

from boa_daemon.tick.facts.draft import SOON_SECONDS, Draft
from boa_daemon.tick.facts.limits import Held
from boa_daemon.tick.facts.needs import only_with
from boa_daemon.tick.facts.state import ClusterState
from boa_daemon.units import SECONDS_PER_HOUR
from policies.fast_dataclasses import replace
from policies.model import GpuSlot, JobId


@only_with("not-ready", "terms")
def keep_until_ready(state: ClusterState, draft: Draft) -> Draft:
    """Return the draft in which running jobs whose next start is not ready keep what they hold."""
    plan = draft.plan
    moving = [name for name in plan.jobs.slots if state.jobs[name].slots]
    if not moving:
        return draft
    ending = {node.id for node in state.passing_nodes if node.ends_by is not None}.union(plan.forced)
    prices = draft.allocation.node_prices
    boot_seconds = 0.0 if prices is None else SECONDS_PER_HOUR * prices.boot_hours
    early = {
        name
        for name in moving
        if (name in state.not_ready or _is_early(state, name, plan.jobs.slots[name], boot_seconds))
        and _may_stay(state, name, ending)
    }
    if not early:
        return draft
    put_off, leaving = _put_off(state, plan.jobs.slots, early, ending)
    held = [
        Held(what=f"job {name}", code="not-ready" if name in state.not_ready else "not-free")
        for name in sorted(put_off)
    ]
    plan = replace(
        plan,
        jobs=plan.jobs.held_back(put_off).stopping(sorted(leaving)),
        held=(*plan.held, *held),
    )
    if not state.not_ready.isdisjoint(put_off):
        plan = plan.looked_at_by(state.now + SOON_SECONDS)
    return replace(draft, plan=plan)


def _is_early(state: ClusterState, name: JobId, slots: tuple[GpuSlot, ...], boot_seconds: float) -> bool:
    """Return whether a job that may take longer than a boot to stop holds one of a moving job's next GPUs."""
    for slot in slots:
        holder = state.nodes[slot.node].gpus[slot.index] if slot.node in state.nodes else None
        if holder is not None and holder != name:
            other = state.all_jobs.get(holder)
            if other is not None and other.terms.grace_seconds > boot_seconds:
                return True
    return False


def _put_off(
    state: ClusterState, slots: Mapping[JobId, tuple[GpuSlot, ...]], early: set[JobId], ending: set[str]
) -> tuple[set[JobId], set[JobId]]:
    """Return the jobs that do not start now, and those of them that must release their GPUs anyway."""
    put_off, leaving = set(early), set[JobId]()
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
