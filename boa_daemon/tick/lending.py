"""Spare GPUs: what is rented anyway and nobody needs makes jobs wider, until somebody needs it.

A node is rented whole. Free GPUs beside a job that stays cost nothing more, so a job on that node is
stretched onto them where that saves more than its restarts (`NodePrices.stretch`). What a job holds beyond
its plan is lent: a job that waits gets it back before a node is rented for it. Nobody is stretched onto a
node that it is not on already, and who holds a node with nothing but what was lent lets go of it: no node
stays for the sake of a stretched job. The planned part of a job's slots stands first.

Cost: O(nodes + jobs) per tick; O(columns) for each job beside spare GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace

from boa_daemon.tick.state import ClusterState, Plan
from boa_daemon.tick.whole_nodes import job_hours_left
from policies.answer import Allocation, Stretch
from policies.model import GpuSlot, JobId, NodeId, Width


def lent(state: ClusterState, allocation: Allocation) -> dict[JobId, Width]:
    """Return the planned widths of the jobs that hold more than that and may keep it until it is wanted."""
    found: dict[JobId, Width] = {}
    for job_id, planned in allocation.widths.items():
        held = state.jobs[job_id].job.width
        if held is None or held is planned or held.gpu_type != planned.gpu_type:
            continue
        if held.gpus > planned.gpus:
            found[job_id] = planned
    if not found:
        return found
    beyond: dict[NodeId, list[JobId]] = {}
    for job_id, planned in found.items():
        for slot in state.jobs[job_id].slots[planned.gpus :]:
            beyond.setdefault(slot.node, []).append(job_id)
    for name, jobs in beyond.items():
        node = state.nodes.get(name)
        if node is None or len(node.gpus) - node.free_gpus == len(jobs):
            for job_id in jobs:
                found.pop(job_id, None)
    return found


def as_held(state: ClusterState, allocation: Allocation, lent_widths: Mapping[JobId, Width]) -> Allocation:
    """Return the allocation with what was lent left where it is."""
    if not lent_widths:
        return allocation
    held = {job: state.jobs[job].job.width for job in lent_widths}
    kept = {job: width for job, width in held.items() if width is not None}
    return replace(allocation, widths={**allocation.widths, **kept})


def called_back(
    state: ClusterState,
    lent_widths: Mapping[JobId, Width],
    waiting: Iterable[Width],
    free: Mapping[str, int],
) -> dict[JobId, Width]:
    """Return who goes back to its planned width, so that those who wait, in their order, fit at once.

    Nobody is asked for the sake of a job that would not fit even so. Those who give most are asked first.
    """
    givers: dict[JobId, Width] = {}
    left = dict(free)
    gives = {job: len(state.jobs[job].slots) - planned.gpus for job, planned in lent_widths.items()}
    order = sorted(gives, key=lambda job: -gives[job])
    for width in waiting:
        missing = width.gpus - left.get(width.gpu_type, 0)
        asked: list[JobId] = []
        for job in order:
            if missing <= 0:
                break
            if job not in givers and lent_widths[job].gpu_type == width.gpu_type:
                asked.append(job)
                missing -= gives[job]
        if missing <= 0:
            left[width.gpu_type] = -missing
            givers |= {job: lent_widths[job] for job in asked}
    return givers


def with_spare_gpus(
    state: ClusterState, plan: Plan, allocation: Allocation, *, claimed: AbstractSet[NodeId]
) -> Plan:
    """Return the plan with jobs stretched onto free GPUs of the nodes that they are on."""
    if allocation.node_prices is None:
        return plan
    spare = _spare(state, plan, claimed)
    for node, free in spare.items():
        left = free
        while left:
            found = _best_on(node, len(left), state=state, plan=plan, allocation=allocation)
            if found is None:
                break
            job, width = found
            before = plan.slots.get(job, state.jobs[job].slots)
            more = width.gpus - len(before)
            slots = (*before, *(GpuSlot(node, index) for index in left[:more]))
            plan = replace(plan, widths={**plan.widths, job: width}, slots={**plan.slots, job: slots})
            left = left[more:]
    return plan


def _best_on(
    node: NodeId, gpus: int, *, state: ClusterState, plan: Plan, allocation: Allocation
) -> tuple[JobId, Width] | None:
    """Return who saves most with so many more GPUs on a node, and its new width."""
    node_prices = allocation.node_prices
    best: tuple[JobId, Stretch] | None = None
    if node_prices is None:
        return None
    for job_id in _jobs_on(state, plan, node):
        job = state.jobs[job_id]
        now, left = job.job.width, None
        if job_id in plan.slots:
            now = plan.widths[job_id]
        elif job_id in plan.waiting or job.is_stopping or job_id in allocation.stay:
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
    """Return the free GPUs of the nodes that jobs are on, once the plan is carried out."""
    taken: dict[NodeId, set[int]] = {}
    for slots in plan.slots.values():
        for slot in slots:
            taken.setdefault(slot.node, set()).add(slot.index)
    moving = {*plan.slots, *plan.stops}
    changed = {slot.node for job in moving for slot in state.jobs[job].slots} | taken.keys()
    spare: dict[NodeId, list[int]] = {}
    for name, node in state.nodes.items():
        if node.phase != "ready" or node.ends_by is not None or name in claimed:
            continue
        if name not in changed:
            if node.idle_since is None and None in node.gpus:
                spare[name] = [index for index, job in enumerate(node.gpus) if job is None]
            continue
        here = taken.get(name, set())
        left = [i for i, job in enumerate(node.gpus) if i not in here and (job is None or job in moving)]
        if left and len(left) < len(node.gpus):
            spare[name] = left
    return spare


def _jobs_on(state: ClusterState, plan: Plan, name: NodeId) -> Iterable[JobId]:
    """Return the jobs that are on a node once the plan is carried out."""
    gone = {*plan.slots, *plan.stops}
    stay = {job: None for job in state.nodes[name].gpus if job is not None and job not in gone}
    come = {job: None for job, slots in plan.slots.items() if any(slot.node == name for slot in slots)}
    return stay | come
