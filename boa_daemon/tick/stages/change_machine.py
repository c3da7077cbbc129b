"""May change widths: where several machines carry one GPU, a job goes to what can be had of them, at once.

A job that waits for a machine without stock or quota gets the next best width by the plan's own prices among
those with room: free GPUs, nodes to come, and what may be launched. A job that runs on another machine of the
GPU than the policy names stays there while that is out of stock, and until the change saves more than it
costs. Where each GPU has one machine, nothing is changed.

Cost: O(nodes + jobs), and O(phases x widths) for each job that is looked at.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import inf

from boa_daemon.tick.draft import Draft
from boa_daemon.tick.launches import is_coming
from boa_daemon.tick.offers import open_offers
from boa_daemon.tick.state import ClusterState, JobState, Rules
from policies.links.machines import siblings
from policies.model import JobId, Width
from policies.online.next_best import next_best
from policies.online.node_prices import WholeNodes
from policies.quick import replace


def change_machine(state: ClusterState, draft: Draft) -> Draft:
    """Return the draft in which no job waits for a machine that is out of stock while another is there."""
    wanted, prices = draft.allocation, draft.allocation.node_prices
    family = siblings(draft.rules.instance_types)
    if not family or draft.has_fixed_fleet or not isinstance(prices, WholeNodes):
        return draft
    room = _room_by_kind(state, draft.rules)
    changed: dict[JobId, Width] = {}
    notes: dict[JobId, str] = {}
    for name, job in state.jobs.items():
        width, holds = wanted.widths.get(name), _kept(state, job)
        if width is None or width == holds or width.gpu_type not in family or job.is_stopping:
            continue
        kinds = family[width.gpu_type]
        found = _width_for(job, width, holds, prices=prices, room=room, kinds=kinds)
        if found != width:
            changed[name] = found
            is_there = width.gpus <= room.get(width.gpu_type, 0.0)
            notes[name] = _note(width, found, is_held=found == holds, is_there=is_there)
        if found != holds:
            grown = holds.gpus if holds is not None and holds.gpu_type == found.gpu_type else 0
            room[found.gpu_type] = room.get(found.gpu_type, 0.0) - found.gpus + grown
    if not changed:
        return draft
    widths, reasons = {**wanted.widths, **changed}, {**draft.plan.reasons, **notes}
    return replace(
        draft,
        allocation=replace(wanted, widths=widths, reasons=reasons),
        plan=replace(draft.plan, widths=widths, reasons=reasons),
    )


def _width_for(
    job: JobState,
    width: Width,
    holds: Width | None,
    *,
    prices: WholeNodes,
    room: Mapping[str, float],
    kinds: Collection[str],
) -> Width:
    """Return what a job should have that does not hold the width that the policy named."""
    if holds is not None and (holds.gpu_type == width.gpu_type or holds.gpu_type not in kinds):
        return width
    has_room = width.gpus <= room.get(width.gpu_type, 0.0)
    if has_room and holds is None:
        return width
    if holds is not None and not has_room:
        return holds
    best = next_best(
        job.job,
        prices.columns[job.job.class_name],
        multiplier=prices.multiplier,
        room=room,
        holds=holds,
        gpus=job.terms.ordered_gpus,
    )
    if holds is not None:
        return holds if best == holds else width
    return best or width


def _room_by_kind(state: ClusterState, rules: Rules) -> dict[str, float]:
    """Return by GPU type how many more GPUs can be had: free, to come, and to be launched."""
    room: dict[str, float] = {}
    for kind, machine in rules.instance_types.items():
        offers = open_offers(machine.name, state.offers, state.cooldowns, now=state.now)
        nodes = sum(inf if offer.nodes_left is None else offer.nodes_left for offer in offers)
        room[kind] = nodes * machine.gpus
    for node in state.nodes.values():
        kind = node.instance_type.gpu_type
        if kind in room and (is_coming(node) or (node.phase == "ready" and node.ends_by is None)):
            room[kind] += node.gpus.count(None)
    return room


def _kept(state: ClusterState, job: JobState) -> Width | None:
    """Return what a job holds and may keep; None where it holds nothing, or a node of it ends."""
    if any(state.nodes[slot.node].ends_by is not None for slot in job.slots if slot.node in state.nodes):
        return None
    return job.job.width if job.slots else None


def _note(width: Width, found: Width, *, is_held: bool, is_there: bool) -> str:
    """Return why a job has another width than the policy named."""
    if not is_held:
        return f"the next best width: of {width} there is no stock or no quota now"
    if is_there:
        return f"it runs on {found}: the change to {width} would cost more than it saves"
    return f"it runs on {found}: of {width} there is no stock or no quota now"
