"""May change widths and slots of waiting jobs: start them narrow on free GPUs until their nodes come.

The policy says what a head start is worth (`policies.online.node_prices`). No job starts if the rules against
flapping would keep it narrow beyond the wait: its nodes would come, find no job to claim them and go back.
Cost: O(jobs that wait).
"""

from __future__ import annotations

from boa_daemon.tick.facts.draft import Draft, with_plan
from boa_daemon.tick.facts.plan import Plan
from boa_daemon.tick.facts.state import ClusterState
from boa_daemon.units import SECONDS_PER_HOUR
from policies.answer import NodePrices
from policies.fast_dataclasses import replace
from policies.model import GpuSlot, JobId, Width


def start_early(state: ClusterState, draft: Draft) -> Draft:
    """Return the draft with waiting jobs started on free GPUs, if that pays for the later restart."""
    plan, node_prices, room = draft.plan, draft.allocation.node_prices, draft.room
    if node_prices is None or room is None or not draft.may_improve:
        return draft
    waiting = [job for job in plan.jobs.waiting if not state.jobs[job].slots]
    if not waiting:
        return draft
    wait_hours = _wait_hours(state, plan, node_prices)
    steady = draft.rules.steady
    if steady is not None and wait_hours * SECONDS_PER_HOUR < steady.minimum_hold_seconds:
        return draft
    left = room.after(plan.jobs.slots)
    free = left.free_gpus()
    if not any(free.values()):
        return draft
    widths, reasons = plan.jobs.widths, plan.jobs.reasons
    early: dict[JobId, Width | None] = {}
    slots: dict[JobId, tuple[GpuSlot, ...]] = {}
    starts: dict[JobId, Width] = {}
    for job in waiting:
        then = widths[job]
        most = free.get(then.gpu_type, 0)
        now = (
            node_prices.head_start(state.jobs[job].job, then, most_gpus=most, wait_hours=wait_hours)
            if most
            else None
        )
        placed = {} if now is None else left.place({job: now})
        if now is not None and job in placed:
            early[job], slots[job], starts[job] = now, placed[job], then
            free[then.gpu_type] -= now.gpus
            left = left.after(placed)
    if not starts:
        return draft

    def why(job: JobId) -> str:
        later = f"{starts[job]} in about {60.0 * wait_hours:.0f} min"
        return f"these are free now, and {later}: {reasons.get(job, 'by the policy')}"

    jobs = replace(plan.jobs.with_widths(early, why).starting(slots), intended=starts)
    return with_plan(draft, plan.with_jobs(jobs))


def _wait_hours(state: ClusterState, plan: Plan, node_prices: NodePrices) -> float:
    """Return the hours until nodes come: a whole boot for new nodes, the rest of it for booting ones."""
    if plan.launches:
        return node_prices.boot_hours
    booting = (
        node_prices.boot_hours - (state.now - node.launched_at) / SECONDS_PER_HOUR
        for node in state.passing_nodes
        if node.phase == "requested"
    )
    return max(booting, default=0.0)
