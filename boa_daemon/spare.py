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


def emptied(
    state: ClusterState,
    plan: Plan,
    allocation: Allocation,
    lent_widths: Mapping[JobId, Width],
    *,
    claimed: AbstractSet[NodeId],
) -> Plan:
    """Return the plan with the jobs of a node moved into gaps of others, where giving it back pays."""
    follower = allocation.follower
    if follower is None:
        return plan
    touched = {slot.node for slots in plan.slots.values() for slot in slots} | claimed
    base: dict[NodeId, dict[JobId, int]] = {}
    for name, node in state.nodes.items():
        if node.phase == "ready" and node.ends_by is None and node.idle_since is None and name not in touched:
            base[name] = {}
    spread: set[JobId] = set()
    for job_id, job in state.jobs.items():
        if not job.slots:
            continue
        planned = lent_widths.get(job_id)
        core = job.slots if planned is None else job.slots[: planned.gpus]
        nodes = {slot.node for slot in job.slots}
        free = job_id not in plan.slots and job_id not in plan.waiting and not job.is_stopping and job_id not in allocation.stay
        if len(nodes) > 1 or not free:
            spread.add(job_id)
        for slot in core if free else job.slots:
            if slot.node in base:
                here = base[slot.node]
                here[job_id] = here.get(job_id, 0) + 1
        for node in nodes:
            if node in base:
                base[node].setdefault(job_id, 0)
    by_type: dict[str, list[NodeId]] = {}
    for name in base:
        by_type.setdefault(state.nodes[name].instance_type.gpu_type, []).append(name)
    for kind, names in by_type.items():
        size = {name: len(state.nodes[name].gpus) for name in names}
        used = {name: sum(base[name].values()) for name in names}
        gap = {name: size[name] - used[name] for name in names}
        if len(names) < 2 or sum(gap.values()) < min(size.values()):
            continue
        for name in sorted(names, key=lambda n: used[n])[:TRIES]:
            if any(job in spread for job in base[name]):
                continue
            moved = _moved(state, base, gap, name, lent_widths, spread)
            if moved is None:
                continue
            slots, shrunk, receivers = moved
            left = {job: job_hours_left(state, state.jobs[job].job, follower) for job in (*base[name], *shrunk)}
            stays = min(max(job_hours_left(state, state.jobs[j].job, follower) for j in base[r]) for r in receivers)
            gain = follower.node_worth(kind) * min(stays, max(left[job] for job in base[name]))
            widths = {job: Width(kind, len(taken)) for job, taken in slots.items()}
            cost = sum(follower.move_cost(state.jobs[job].job, widths[job], hours_left=left[job]) for job in slots)
            if gain > EMPTY_COST * cost:
                return replace(plan, widths={**plan.widths, **widths}, slots={**plan.slots, **slots})
    return plan


import os
TRIES = 3
EMPTY_COST = float(os.environ.get("EC", "1"))
CONS = float(os.environ.get("CONS", "1"))


def _moved(state, base, gap, name, lent_widths, spread):
    """Return new slots of the jobs of a node and of those that make room, these, and the nodes that take them."""
    room = {node: free for node, free in gap.items() if node != name and base[node]}
    slots: dict[JobId, tuple[GpuSlot, ...]] = {}
    shrunk: dict[JobId, tuple[GpuSlot, ...]] = {}
    receivers: list[NodeId] = []
    free_now: dict[NodeId, list[int]] = {}
    for job, gpus in sorted(base[name].items(), key=lambda item: -item[1]):
        fits = [node for node, free in room.items() if free >= gpus]
        if not fits:
            return None
        node = min(fits, key=lambda n: room[n])
        if node not in free_now:
            free_now[node] = [i for i, j in enumerate(state.nodes[node].gpus) if j is None]
        for lender in base[node]:
            if len(free_now[node]) >= gpus:
                break
            if lender in lent_widths and lender not in shrunk and lender not in spread:
                held = state.jobs[lender].slots
                keep = lent_widths[lender].gpus
                shrunk[lender] = held[:keep]
                free_now[node] += [slot.index for slot in held[keep:] if slot.node == node]
        if len(free_now[node]) < gpus:
            return None
        slots[job] = tuple(GpuSlot(node, index) for index in free_now[node][:gpus])
        del free_now[node][:gpus]
        room[node] -= gpus
        receivers.append(node)
    return slots | shrunk, tuple(shrunk), receivers
