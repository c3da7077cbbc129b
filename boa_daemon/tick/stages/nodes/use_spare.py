"""May change widths and slots: widen jobs onto rented GPUs that no other job needs.

A node is rented whole. Free GPUs beside a staying job cost nothing more, so a job on that node is widened
onto them if that saves more than its restarts (`NodePrices.stretch`). GPUs that a job holds beyond its plan
are lent: they stay with it until another job needs them (`leave_lent`), and a waiting job gets them before a
node is rented for it (`call_back`). No job is widened onto a node that it is not on already. A job gives up a
node on which it holds only lent GPUs. The planned part of a job's slots comes first.

Cost: O(nodes + jobs) per tick; O(columns) for each job beside spare GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from functools import partial

from boa_daemon.tick.facts.draft import Draft, with_plan
from boa_daemon.tick.facts.plan import Plan, lent_reason
from boa_daemon.tick.facts.state import ClusterState
from boa_daemon.tick.room.forecasts import job_hours_left
from policies.answer import Allocation, LentWidth, NodePrices
from policies.fast_dataclasses import replace
from policies.model import GpuSlot, JobId, NodeId, Width


def use_spare(state: ClusterState, draft: Draft) -> Draft:
    """Return the draft with jobs widened onto free GPUs of their nodes."""
    node_prices = draft.allocation.node_prices
    if node_prices is None or not draft.may_improve:
        return draft
    before, lent = draft, draft.lent
    draft = _stretched(state, draft, node_prices)
    plan = draft.plan
    jobs = plan.jobs
    own_widths = {job: planned for job, planned in lent.items() if job not in jobs.slots}
    for job in jobs.slots:
        planned = lent.get(job, draft.allocation.widths[job])
        if job not in jobs.intended and jobs.widths[job].gpus > planned.gpus:
            own_widths[job] = planned
    if not own_widths:
        return draft
    return with_plan(draft, plan.with_jobs(jobs.lending(own_widths, before.own_reason)))


def _stretched(state: ClusterState, draft: Draft, node_prices: NodePrices) -> Draft:
    """Return the draft with the jobs that save the most made wider, node by node."""
    plan = draft.plan
    for node, free in _spare(state, plan, draft.claimed).items():
        left = free
        while left:
            found = _best_on(
                node, len(left), state=state, plan=plan, allocation=draft.allocation, node_prices=node_prices
            )
            if found is None:
                break
            job, width = found
            before = plan.jobs.slots.get(job, state.jobs[job].slots)
            more = width.gpus - len(before)
            slots = (*before, *(GpuSlot(node, index) for index in left[:more]))
            planned = draft.lent.get(job, draft.allocation.widths[job])
            jobs = plan.jobs.with_widths({job: width}, partial(_why, planned, draft))
            plan = plan.with_jobs(jobs.starting({job: slots}))
            left = left[more:]
    return draft if plan is draft.plan else replace(draft, plan=plan)


def _why(planned: Width, draft: Draft, job: JobId) -> str:
    """Return why a job gets more GPUs than planned."""
    why = "no other job needs the free GPUs beside it, and they save it more than a restart"
    return lent_reason(why, planned, draft.own_reason(job))


def _best_on(
    node: NodeId,
    gpus: int,
    *,
    state: ClusterState,
    plan: Plan,
    allocation: Allocation,
    node_prices: NodePrices,
) -> tuple[JobId, Width] | None:
    """Return the job that saves the most with up to `gpus` more GPUs on a node, and its new width."""
    best: tuple[JobId, LentWidth] | None = None
    for job_id in _jobs_on(state, plan, node):
        if job_id in allocation.exact:
            continue
        job = state.jobs[job_id]
        now, left = job.job.width, None
        if job_id in plan.jobs.slots:
            now = plan.jobs.widths[job_id]
        elif job_id in plan.jobs.waiting or job.is_stopping or job_id in allocation.stay:
            continue
        else:
            left = job_hours_left(state, job.job, node_prices)
        if now is None:
            continue
        found = node_prices.stretch(job.job, now, most_gpus=now.gpus + gpus, hours_left=left)
        if found is not None and (best is None or found.saved_hours > best[1].saved_hours):
            best = (job_id, found)
    return None if best is None else (best[0], best[1].width)


def _spare(state: ClusterState, plan: Plan, claimed: AbstractSet[NodeId]) -> dict[NodeId, list[int]]:
    """Return the free GPUs of the nodes with jobs, once the plan is carried out."""
    if not (state.nodes_with_gaps or plan.jobs.slots or plan.jobs.stops):
        return {}
    taken: dict[NodeId, set[int]] = {}
    for slots in plan.jobs.slots.values():
        for slot in slots:
            taken.setdefault(slot.node, set()).add(slot.index)
    moving = {*plan.jobs.slots, *plan.jobs.stops}
    changed = {slot.node for job in moving for slot in state.jobs[job].slots} | taken.keys()
    spare: dict[NodeId, list[int]] = {}
    for name, node in state.with_gaps_or(changed).items():
        has_changed = name in changed
        if not has_changed and (node.idle_since is not None or None not in node.gpus):
            continue
        if node.phase != "ready" or node.ends_by is not None or name in claimed:
            continue
        if node.instance_type.places_per_gpu > 1:
            # A free place beside a job is not an idle GPU: another job there slows that job down.
            continue
        if not has_changed:
            spare[name] = [index for index, job in enumerate(node.gpus) if job is None]
            continue
        here = taken.get(name, set())
        if len(here) == len(node.gpus):
            continue
        left = [i for i, job in enumerate(node.gpus) if i not in here and (job is None or job in moving)]
        if left and len(left) < len(node.gpus):
            spare[name] = left
    return spare


def _jobs_on(state: ClusterState, plan: Plan, name: NodeId) -> Iterable[JobId]:
    """Return the jobs that are on a node once the plan is carried out."""
    gone = {*plan.jobs.slots, *plan.jobs.stops}
    stay = {job: None for job in state.nodes[name].gpus if job is not None and job not in gone}
    come = {job: None for job, slots in plan.jobs.slots.items() if any(slot.node == name for slot in slots)}
    return stay | come
