"""May change widths: move a job to another machine, market or GPU type if its own is unavailable.

A job that waits for a machine without stock or quota gets the next best width by the plan's own prices among
those with room: free GPUs, coming nodes, and possible launches. What a job's checkpoint costs on its way to a
far machine, and the time that takes, count with each start there. A running job on another machine of the GPU
than the policy names stays there while that machine is out of stock, and until the change saves more than it
costs. A waiting job takes another GPU type if its class has a curve for it: in any case where its own type
was denied or has no quota, else if that is better than to wait for stock. Where the nodes that a job spans
were not available together, the job is narrower for a while.

Cost: O(nodes + jobs), and O(phases x widths) for each job that is considered.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from types import MappingProxyType

from boa_daemon.tick.facts.draft import Draft
from boa_daemon.tick.facts.needs import only_with
from boa_daemon.tick.facts.offers import (
    OF_PEOPLE,
    RefusalKind,
    closed_until,
    closes_wide_orders,
    room_to_rent,
)
from boa_daemon.tick.facts.state import ClusterState, JobState, Rules, Transfer
from boa_daemon.tick.room.launches import is_coming
from boa_daemon.units import format_hours
from policies.fast_dataclasses import replace
from policies.links.gpu_kinds import siblings
from policies.memo import LatestMemo
from policies.model import JobId, Width
from policies.money_text import in_dollars
from policies.online.fallback_width import fallback_width
from policies.online.node_prices import WholeNodePrices

_families = LatestMemo(siblings)
_LACKS: Mapping[RefusalKind | None, str] = MappingProxyType(
    {
        "denied": "is denied to the account",
        "bad-request": "is refused as it is asked for",
        "no-price": "has no price",
        "throttled": "cannot be asked for yet",
        "busy": "cannot be asked for yet",
    }
)
"""What a width lacks that is not stock or quota."""


@only_with("machines", "market")
def change_machine(state: ClusterState, draft: Draft) -> Draft:
    """Return the draft in which no job waits for something out of stock while an alternative exists."""
    wanted, prices = draft.allocation, draft.allocation.node_prices
    family = _families(draft.rules.instance_types)
    if closes_wide_orders(state.cooldowns):
        family = {kind: (kind,) for kind in draft.rules.instance_types} | family
    has_others = len(draft.rules.instance_types) > 1
    if not (family or has_others) or draft.has_fixed_fleet or not isinstance(prices, WholeNodePrices):
        return draft
    room: _RentableGpus | None = None
    changed: dict[JobId, Width] = {}
    notes: dict[JobId, str] = {}
    for name in dict.fromkeys((*wanted.order, *state.jobs)):
        job, width = state.jobs[name], wanted.widths.get(name)
        holds = _kept(state, job)
        if width is None or width == holds or job.is_stopping:
            continue
        room = room or _RentableGpus(state, draft.rules)
        found = _width_for(
            job,
            width,
            holds,
            prices=prices,
            room=room,
            now=state.now,
            kinds=family.get(width.gpu_type, ()),
            begins=_begins(job, draft.rules),
        )
        if found != width:
            changed[name] = found
            is_there = width.gpus <= room.most(width.gpu_type)
            lacks = _LACKS.get(room.refusal(width.gpu_type), "has no stock or no quota now")
            notes[name] = _note(width, found, is_held=found == holds, is_there=is_there, lacks=lacks)
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
        plan=draft.plan.with_jobs(draft.plan.jobs.with_widths(changed, notes.__getitem__)),
    )


def _width_for(
    job: JobState,
    width: Width,
    holds: Width | None,
    *,
    prices: WholeNodePrices,
    room: _RentableGpus,
    now: float,
    kinds: Collection[str],
    begins: Mapping[str, tuple[float, float]],
) -> Width:
    """Return the width for a job that does not hold the width that the policy named.

    `kinds` are the GPU's machines and markets, if there are several.
    """
    has_room = width.gpus <= room.most(width.gpu_type)
    if holds is not None and holds.gpu_type == width.gpu_type:
        return width
    if holds is None and has_room:
        return width
    columns = prices.columns[job.job.class_name]
    if holds is not None and not has_room and holds in columns.index:
        return holds
    if holds is not None and holds.gpu_type not in kinds:
        return width
    next_best = partial(
        fallback_width,
        job.job,
        columns,
        multiplier=prices.multiplier,
        holds=holds,
        gpus=job.terms.ordered_gpus,
        begins=begins,
    )
    most = room.most_gpus()
    best = next_best(room=most) if kinds else None
    if holds is not None:
        return holds if best == holds else width
    if best is not None:
        return best
    others = {kind: gpus for kind, gpus in most.items() if kind != width.gpu_type and gpus >= 1.0}
    if not others:
        return width
    waits_for = width if room.may_come(width.gpu_type) else None
    waited = (now - job.job.arrived_at) / 3600.0
    return next_best(room=others, rather_than=waits_for, waited_hours=waited) or width


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
        self._state, self._rules = state, rules
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
        return {kind: self.most(kind) for kind in self.in_zones}

    def most(self, kind: str) -> float:
        """Return how many GPUs of a type one job can have."""
        if kind not in self.in_zones:
            return 0.0
        new = min(self.in_all[kind], self.in_one_order[kind])
        held = max(self.in_zones[kind].values(), default=0.0)
        return max(new, held) if self.has_zones else new + held

    def may_come(self, kind: str) -> bool:
        """Return whether more of a GPU type may be had without that somebody changes the account."""
        return self.refusal(kind) not in OF_PEOPLE

    def refusal(self, kind: str) -> RefusalKind | None:
        """Return why nothing more of a GPU type can be had now; None if it can."""
        known, machine = self._state, self._rules.instance_types.get(kind)
        if machine is None:
            return None
        rest = closed_until(machine.name, known.offers, known.cooldowns, now=known.now)
        return None if rest is None else rest.kind

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
        f"; its checkpoint of {size:.3g} GB comes from {far.source} for "
        f"{in_dollars(far.usd_per_gb * size)}, in "
        f"about {format_hours(far.hours(size))}"
    )


def _note(width: Width, found: Width, *, is_held: bool, is_there: bool, lacks: str) -> str:
    """Return why a job has another width than the policy named; `lacks` is what that one lacks."""
    if not is_held:
        return f"the next best width: {width} {lacks}"
    if is_there:
        return f"the change to {width} would cost more than it saves"
    return f"{width} {lacks}"
