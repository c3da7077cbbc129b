"""May change widths and slots: move the jobs of a node into gaps on others, to give the node back.

At most one node per type is emptied per tick. Each of its jobs moves, at its planned width, to the fullest
node with room for the job's part on this one, once jobs with lent GPUs there have released them. A job on
several nodes stays in its zone, and is on no more nodes afterwards. The move happens if the node's cost until
its last job, or the last job of a receiving node, would have ended is more than twice the loss of all moving
jobs (`NodePrices.hours_lost`): their restarts, and their narrower widths until the others have ended. A job
of a week makes room for jobs of an hour, and then has the node again. A node that will soon be empty is left
alone. Jobs do not move back and forth, because each move leaves less room.

Cost: O(nodes + GPUs of nodes with gaps) per tick; O(jobs on a node) for the few nodes examined closely.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from boa_daemon.tick.facts.draft import Draft
from boa_daemon.tick.facts.state import ClusterState, NodeState
from boa_daemon.tick.room.forecasts import job_hours_left
from policies.answer import NodePrices
from policies.fast_dataclasses import replace
from policies.model import GpuSlot, Job, JobId, NodeId, Width, width_of
from policies.money_text import in_dollars

LEAST_RETURN = 2.0
"""A move must save this multiple of its cost, because forecasts are inaccurate."""
CANDIDATES = 3
"""How many nodes are examined closely: those with the fewest planned GPUs."""


@dataclass(slots=True, kw_only=True)
class _Shared:
    """A node with jobs: how many planned GPUs each has here, and whether one of them must stay."""

    node: NodeState
    planned: dict[JobId, int] = field(default_factory=dict)
    is_fixed: bool = False

    @property
    def used(self) -> int:
        """The planned GPUs of all jobs here."""
        return sum(self.planned.values())

    @property
    def gap(self) -> int:
        """The GPUs that are not planned for any job."""
        return len(self.node.gpus) - self.used


def empty_nodes(state: ClusterState, draft: Draft) -> Draft:
    """Return the draft with the jobs of a node moved to other nodes, if giving it back pays."""
    node_prices, plan = draft.allocation.node_prices, draft.plan
    if node_prices is None or not draft.may_improve or plan.launches:
        return draft
    lent_widths = draft.lent
    if lent_widths:
        lent_widths = {job: planned for job, planned in lent_widths.items() if job not in plan.jobs.slots}
    for kind, nodes in _shared_nodes(state, draft, lent_widths).items():
        if kind not in draft.rules.instance_types:
            continue
        if len(nodes) < 2 or sum(node.gap for node in nodes) < min(len(node.node.gpus) for node in nodes):
            continue
        worth = node_prices.node_worth(kind)
        for giver in sorted(nodes, key=lambda node: node.used)[:CANDIDATES]:
            moved = None if giver.is_fixed else _moved(state, giver, nodes, lent_widths)
            if moved is not None and _pays(state, giver, moved, node_prices, worth):
                slots = moved.slots
                widths = {job: width_of(kind, len(taken)) for job, taken in slots.items()}
                why = partial(_why, giver.node.id, giver.node.usd_per_hour, draft)
                plan = plan.with_jobs(plan.jobs.with_widths(widths, why).starting(slots))
                break
    return draft if plan is draft.plan else replace(draft, plan=plan)


def _why(node: NodeId, usd_per_hour: float, draft: Draft, job: JobId) -> str:
    """Return why a job moves so that a node can go back."""
    saved = f"node {node} can go back, which saves {in_dollars(usd_per_hour)}/hour"
    return f"it makes room so that {saved}: {draft.own_reason(job)}"


def _shared_nodes(
    state: ClusterState, draft: Draft, lent_widths: Mapping[JobId, Width]
) -> dict[str, list[_Shared]]:
    """Return the nodes with jobs and a gap that the plan leaves unchanged, by GPU type."""
    plan = draft.plan
    if not lent_widths and len(state.nodes_with_gaps) < 2:
        return {}
    touched = plan.jobs.start_nodes | draft.claimed
    lending = {slot.node for job in lent_widths for slot in state.jobs[job].slots}
    found = {
        name: _Shared(node=node)
        for name, node in state.with_gaps_or(lending).items()
        if (None in node.gpus or name in lending)
        and node.phase == "ready"
        and node.ends_by is None
        and node.idle_since is None
        and name not in touched
    }
    if len(found) < 2:
        return {}
    present = dict.fromkeys(job for shared in found.values() for job in shared.node.gpus if job is not None)
    # A job with slots in the plan has them elsewhere, because nodes with such slots were left out above.
    going = {*plan.jobs.stops, *plan.jobs.slots, *(job for job in present if state.jobs[job].is_stopping)}
    for job_id in present:
        job = state.jobs[job_id]
        may_move = not (job_id in going or job_id in plan.jobs.waiting or job_id in draft.allocation.stay)
        planned = lent_widths.get(job_id) if may_move else None
        own = len(job.slots) if planned is None else planned.gpus
        for number, slot in enumerate(job.slots):
            node = found.get(slot.node)
            if node is not None:
                node.planned[job_id] = node.planned.get(job_id, 0) + (number < own)
                node.is_fixed |= not may_move
    by_type: dict[str, list[_Shared]] = {}
    for node in found.values():
        # A node whose jobs all leave empties by itself, and no job should move there.
        if not node.planned.keys() <= going:
            by_type.setdefault(node.node.instance_type.gpu_type, []).append(node)
    return by_type


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moved:
    """New slots of the moving jobs and of those that make room for them, and the receiving nodes."""

    slots: dict[JobId, tuple[GpuSlot, ...]]
    takers: list[_Shared]


def _moved(
    state: ClusterState, giver: _Shared, nodes: list[_Shared], lent_widths: Mapping[JobId, Width]
) -> _Moved | None:
    """Return new slots for a node's jobs, the widest first; None if one of them fits nowhere."""
    gaps = {node.node.id: node.gap for node in nodes if node is not giver}
    by_name = {node.node.id: node for node in nodes}
    free: dict[NodeId, list[int]] = {}
    slots: dict[JobId, tuple[GpuSlot, ...]] = {}
    for job, gpus in sorted(giver.planned.items(), key=lambda item: -item[1]):
        elsewhere = _elsewhere(state, job, giver, lent_widths)
        if gpus == 0:
            slots[job] = elsewhere
            continue
        fitting = [
            name
            for name, gap in gaps.items()
            if gap >= gpus and (not elsewhere or by_name[name].node.zone == giver.node.zone)
        ]
        if not fitting:
            return None
        name = min(fitting, key=lambda name: gaps[name])
        here = free.setdefault(name, [i for i, on in enumerate(by_name[name].node.gpus) if on is None])
        for lender, kept in _lenders(state, by_name[name], lent_widths):
            if len(here) < gpus and lender not in slots:
                slots[lender] = kept
                here += [slot.index for slot in state.jobs[lender].slots[len(kept) :] if slot.node == name]
        own = [slot.index for slot in elsewhere if slot.node == name]
        taken = by_name[name].node.instance_type.one_per_gpu(here, held=own)[:gpus]
        if len(taken) < gpus:
            return None
        slots[job] = (*elsewhere, *(GpuSlot(name, index) for index in taken))
        free[name] = [index for index in here if index not in taken]
        gaps[name] -= gpus
    return _Moved(slots=slots, takers=[by_name[name] for name in free]) if free else None


def _elsewhere(
    state: ClusterState, job: JobId, giver: _Shared, lent_widths: Mapping[JobId, Width]
) -> tuple[GpuSlot, ...]:
    """Return the planned slots of a job on other nodes."""
    held, planned = state.jobs[job].slots, lent_widths.get(job)
    kept = held if planned is None else held[: planned.gpus]
    return tuple(slot for slot in kept if slot.node != giver.node.id)


def _lenders(
    state: ClusterState, node: _Shared, lent_widths: Mapping[JobId, Width]
) -> Iterator[tuple[JobId, tuple[GpuSlot, ...]]]:
    """Yield the jobs that could make room on a node, each with the slots that it would keep."""
    for job in node.planned:
        if job in lent_widths:
            held = state.jobs[job].slots
            if all(slot.node == node.node.id for slot in held):
                yield job, held[: lent_widths[job].gpus]


def _pays(state: ClusterState, giver: _Shared, moved: _Moved, node_prices: NodePrices, worth: float) -> bool:
    """Return whether giving the node back is worth the moves."""

    def left(job: JobId) -> float:
        return job_hours_left(state, state.jobs[job].job, node_prices)

    stays = min(max(left(job) for job in taker.planned) for taker in moved.takers)
    gain = worth * min(stays, max(left(job) for job in giver.planned))
    kind = giver.node.instance_type.gpu_type
    together = {*giver.planned}.union(*(taker.planned for taker in moved.takers))
    cost = sum(
        node_prices.hours_lost(
            _job(state, job),
            Width(kind, len(slots)),
            hours_left=left(job),
            back_in_hours=max((left(other) for other in together if other != job), default=0.0),
        )
        for job, slots in moved.slots.items()
    )
    return gain > LEAST_RETURN * cost


def _job(state: ClusterState, name: JobId) -> Job:
    return state.jobs[name].job
