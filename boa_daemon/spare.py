"""Spare GPUs: what is rented anyway and nobody needs makes jobs wider, until somebody needs it.

A node is rented whole. GPUs beside a job that stays cost nothing more, so a job on that node is stretched onto
them where that saves more than its restart, and the one that comes with it when they are wanted back
(`Follower.stretch`). A job that holds more than its plan says lends the rest: a job that waits takes it back
before a node is rented for it. Only GPUs of nodes that the job is on already are taken, so no node stays for
the sake of a stretched job. Cost: O(nodes) per tick, O(jobs on nodes with spare GPUs) where there are some.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace

from boa_daemon.follow import job_hours_left
from boa_daemon.room import Room
from boa_daemon.state import ClusterState, Plan
from policies.model import Allocation, GpuSlot, JobId, NodeId, Width


def lent(state: ClusterState, allocation: Allocation) -> dict[JobId, Width]:
    """Return the planned widths of the jobs that hold more than that, and may hold it until it is wanted."""
    if allocation.follower is None:
        return {}
    found: dict[JobId, Width] = {}
    for job_id, planned in allocation.widths.items():
        held = state.jobs[job_id].job.width
        if (
            held is not None
            and held is not planned
            and held.gpu_type == planned.gpu_type
            and held.gpus > planned.gpus
        ):
            found[job_id] = planned
    return found


def held_width(state: ClusterState, job: JobId) -> Width:
    """Return the width that a running job holds."""
    width = state.jobs[job].job.width
    assert width is not None
    return width


def called_back(
    lent_widths: Mapping[JobId, Width], state: ClusterState, rest: Mapping[JobId, Width], free: dict[str, int]
) -> dict[JobId, Width]:
    """Return who gives back what was lent, so that as many of the waiting jobs as possible fit at once."""
    givers: dict[JobId, Width] = {}
    if not lent_widths:
        return givers
    extra = {job: _extra(state, job, planned) for job, planned in lent_widths.items()}
    order = sorted(lent_widths, key=lambda job: -extra[job])
    for width in rest.values():
        kind, missing = width.gpu_type, width.gpus - free.get(width.gpu_type, 0)
        asked: list[JobId] = []
        for job in order:
            if missing <= 0:
                break
            if job not in givers and lent_widths[job].gpu_type == kind:
                asked.append(job)
                missing -= extra[job]
        if missing > 0:
            continue
        free[kind] = -missing
        givers |= {job: lent_widths[job] for job in asked}
    return givers


def _extra(state: ClusterState, job: JobId, planned: Width) -> int:
    """Return how many GPUs more than planned a job holds."""
    held = state.jobs[job].job.width
    return 0 if held is None else held.gpus - planned.gpus


def with_spare_gpus(
    state: ClusterState, plan: Plan, allocation: Allocation, *, claimed: AbstractSet[NodeId]
) -> Plan:
    """Return the plan with jobs stretched onto free GPUs of the nodes that they are on."""
    follower = allocation.follower
    if follower is None:
        return plan
    spare = _spare(state, plan, claimed)
    if not spare:
        return plan
    widths, slots = dict(plan.widths), dict(plan.slots)
    while spare:
        node, gpus = spare.popitem()
        best: tuple[float, JobId, Width] | None = None
        for job_id in _jobs_on(state, plan, node):
            job = state.jobs[job_id]
            if job_id in slots:
                now, hours = widths[job_id], None
            elif job.job.width is not None and job_id not in plan.waiting and not job.is_stopping and job_id not in allocation.stay:
                now, hours = job.job.width, job_hours_left(state, job.job, follower)
            else:
                continue
            found = follower.stretch(job.job, now, most_gpus=now.gpus + len(gpus), hours_left=hours)
            if found is not None and (best is None or found[0] > best[0]):
                best = (found[0], job_id, found[1])
        if best is None:
            continue
        _, job_id, width = best
        held = slots.get(job_id, state.jobs[job_id].slots)
        more = width.gpus - len(held)
        slots[job_id] = (*held, *(GpuSlot(node, index) for index in gpus[:more]))
        widths[job_id] = width
        if gpus[more:]:
            spare[node] = gpus[more:]
            plan = replace(plan, widths=widths, slots=slots)
    return replace(plan, widths=widths, slots=slots)


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
    stay = {job: None for job in state.nodes[name].gpus if job is not None and job not in plan.slots}
    come = {job: None for job, slots in plan.slots.items() if any(slot.node == name for slot in slots)}
    return stay | come
