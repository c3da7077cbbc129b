"""May change widths: move a job to another machine or market with its GPU if its own is unavailable.

A job that waits for a machine without stock or quota gets the next best width by the plan's own prices among
those with room: free GPUs, coming nodes, and possible launches. What a job's checkpoint costs on its way to a
far machine, and the time that takes, count with each start there. A running job on another machine of the GPU
than the policy names stays there while that machine is out of stock, and until the change saves more than it
costs. If each GPU has one machine, nothing changes, unless the nodes that a job spans were not available
together: then the job is narrower for a while.

Cost: O(nodes + jobs), and O(phases x widths) for each job that is considered.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from boa_daemon.tick.facts.draft import Draft
from boa_daemon.tick.facts.needs import only_with
from boa_daemon.tick.facts.offers import closes_wide_orders, room_to_rent
from boa_daemon.tick.facts.state import ClusterState, JobState, Rules, Transfer
from boa_daemon.tick.room.launches import is_coming
from boa_daemon.units import format_hours
from policies.fast_dataclasses import replace
from policies.links.gpu_kinds import siblings
from policies.memo import LatestMemo
from policies.model import JobId, Width
from policies.online.fallback_width import fallback_width
from policies.online.node_prices import WholeNodePrices

_families = LatestMemo(siblings)


@only_with("machines", "market")
def change_machine(state: ClusterState, draft: Draft) -> Draft:
    """Return the draft in which no job waits for something out of stock while an alternative exists."""
    wanted, prices = draft.allocation, draft.allocation.node_prices
    family = _families(draft.rules.instance_types)
    if closes_wide_orders(state.cooldowns):
        family = {kind: (kind,) for kind in draft.rules.instance_types} | family
    if not family or draft.has_fixed_fleet or not isinstance(prices, WholeNodePrices):
        return draft
    room = _RentableGpus(state, draft.rules)
    changed: dict[JobId, Width] = {}
    notes: dict[JobId, str] = {}
    for name, job in state.jobs.items():
        width, holds = wanted.widths.get(name), _kept(state, job)
        if width is None or width == holds or width.gpu_type not in family or job.is_stopping:
            continue
        kinds = family[width.gpu_type]
        most = room.most_gpus()
        begins = _begins(job, draft.rules)
        found = _width_for(job, width, holds, prices=prices, room=most, kinds=kinds, begins=begins)
        if found != width:
            changed[name] = found
            is_there = width.gpus <= most.get(width.gpu_type, 0.0)
            notes[name] = _note(width, found, is_held=found == holds, is_there=is_there)
            if found != holds:
                notes[name] += _transfer_note(job, draft.rules.transfers.get(found.gpu_type))
        if found != holds:
            grown = holds.gpus if holds is not None and holds.gpu_type == found.gpu_type else 0
            room.take(found.gpu_type, found.gpus - grown)
    if not changed:
        return draft
    return replace(
        draft,
        allocation=wanted.with_widths(changed, notes.__getitem__),
        plan=draft.plan.with_widths(changed, notes.__getitem__),
    )


def _width_for(
    job: JobState,
    width: Width,
    holds: Width | None,
    *,
    prices: WholeNodePrices,
    room: Mapping[str, float],
    kinds: Collection[str],
    begins: Mapping[str, tuple[float, float]],
) -> Width:
    """Return the width for a job that does not hold the width that the policy named."""
    if holds is not None and (holds.gpu_type == width.gpu_type or holds.gpu_type not in kinds):
        return width
    has_room = width.gpus <= room.get(width.gpu_type, 0.0)
    if has_room and holds is None:
        return width
    if holds is not None and not has_room:
        return holds
    best = fallback_width(
        job.job,
        prices.columns[job.job.class_name],
        multiplier=prices.multiplier,
        room=room,
        holds=holds,
        gpus=job.terms.ordered_gpus,
        begins=begins,
    )
    if holds is not None:
        return holds if best == holds else width
    return best or width


class _RentableGpus:
    """How many more GPUs are available by GPU type: to rent in all and in one order, and in each zone.

    The GPUs in a zone are those that are free or coming. A job is inside one zone; nodes that are not
    requested yet belong to no zone.
    """

    def __init__(self, state: ClusterState, rules: Rules) -> None:
        """Count the available GPUs."""
        zones = {*(node.zone for node in state.nodes.values()), *(offer.zone for offer in state.offers)}
        self.has_zones = len(zones) > 1
        self.in_all: dict[str, float] = {}
        self.in_one_order: dict[str, float] = {}
        self.in_zones: dict[str, dict[str, float]] = {kind: {} for kind in rules.instance_types}
        for kind, machine in rules.instance_types.items():
            nodes, together = room_to_rent(machine.name, state.offers, state.cooldowns, now=state.now)
            self.in_all[kind], self.in_one_order[kind] = nodes * machine.gpus, together * machine.gpus
        for node in state.nodes.values():
            here = self.in_zones.get(node.instance_type.gpu_type)
            if here is not None and (is_coming(node) or (node.phase == "ready" and node.ends_by is None)):
                zone = node.zone if self.has_zones else ""
                here[zone] = here.get(zone, 0.0) + node.gpus.count(None)

    def most_gpus(self) -> dict[str, float]:
        """Return how many GPUs one job can have, by GPU type."""
        found = {}
        for kind, here in self.in_zones.items():
            new, held = min(self.in_all[kind], self.in_one_order[kind]), max(here.values(), default=0.0)
            found[kind] = max(new, held) if self.has_zones else new + held
        return found

    def take(self, kind: str, gpus: float) -> None:
        """Assign GPUs to a job: from the fullest zone that has room for it, or else new ones."""
        here = self.in_zones.get(kind, {})
        fits = [zone for zone, free in here.items() if free >= gpus]
        zone = min(fits, key=lambda zone: here[zone]) if fits else ""
        held = min(gpus, here.get(zone, 0.0)) if fits or not self.has_zones else 0.0
        if held:
            here[zone] -= held
        if kind in self.in_all:
            self.in_all[kind] -= gpus - held


def _kept(state: ClusterState, job: JobState) -> Width | None:
    """Return the width that a job holds and may keep; None if it has none, or one of its nodes ends."""
    if any(state.nodes[slot.node].ends_by is not None for slot in job.slots if slot.node in state.nodes):
        return None
    return job.job.width if job.slots else None


def _begins(job: JobState, rules: Rules) -> Mapping[str, tuple[float, float]]:
    """Return the hours and dollars that a job's checkpoint takes to each far machine, by GPU type."""
    size = job.terms.checkpoint_gb
    return {kind: (far.hours(size), far.usd_per_gb * size) for kind, far in rules.transfers.items() if size}


def _transfer_note(job: JobState, far: Transfer | None) -> str:
    """Return what a job's checkpoint takes to a far machine, in words; empty if nothing."""
    size = job.terms.checkpoint_gb
    if far is None or not size:
        return ""
    return (
        f"; its checkpoint of {size:.3g} GB comes from {far.source} for ${far.usd_per_gb * size:.2f}, in "
        f"about {format_hours(far.hours(size))}"
    )


def _note(width: Width, found: Width, *, is_held: bool, is_there: bool) -> str:
    """Return why a job has another width than the policy named."""
    if not is_held:
        return f"the next best width: {width} has no stock or no quota now"
    if is_there:
        return f"it runs on {found}: the change to {width} would cost more than it saves"
    return f"it runs on {found}: {width} has no stock or no quota now"
