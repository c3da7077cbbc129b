"""Narrow jobs at a cap: choose the widths with the least waiting, and the order of service.

If the planned widths of all present jobs exceed a cap, `policies.online.scarce_room` decides which jobs are
narrow and which wait. A cap may be on nodes of any type, on dollars per hour, or on the nodes of one type
whose quota or stock is used up. If several caps bind, they are applied one after the other. A running job's
GPUs beyond its new width become lent: the job releases them when another job waits, not before. Jobs that
may not change their width now (`Allocation.stay`) keep what they hold, and the others share the rest.

Every width that a cap changes gets a reason that names the cap, with the numbers.

Cost: O(jobs + nodes) per tick if there is a cap; O(widths log widths) if one binds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf

from boa_daemon.tick.facts.offers import closed_until, room_to_rent
from boa_daemon.tick.facts.plan import stay_reason
from boa_daemon.tick.facts.room_caps import (
    NARROWS,
    RoomCap,
    RoomCode,
    ceiling_name,
    gpu_counts,
    node_limit_name,
)
from boa_daemon.tick.facts.state import ClusterState, Rules
from boa_daemon.units import counted
from policies.answer import Allocation
from policies.capacity_claims import Claims
from policies.model import InstanceType, JobId, Width
from policies.online.scarce_room import RoomShares, shares

BY_VALUE = "GPUs go first where they save the most waiting for their money, not by order of arrival"
"""The rule of service where jobs compete for room (docs/explanation/at-a-cap.md)."""


def caps_on_room(state: ClusterState, allocation: Allocation, rules: Rules) -> tuple[RoomCap, ...]:
    """Return the caps on the room for all widths; none where the policy says nothing about narrower ones."""
    if allocation.node_prices is None or allocation.nodes is not None:
        return ()
    return tuple(_caps(state, rules))


def shared_room(state: ClusterState, allocation: Allocation, caps: Iterable[RoomCap]) -> Allocation:
    """Return the allocation with widths that fit under the given caps, and with the order of service."""
    for cap in caps:
        if not cap.holds(allocation.widths.values()):
            allocation = _shared(state, allocation, cap)
    return allocation


def _shared(state: ClusterState, allocation: Allocation, cap: RoomCap) -> Allocation:
    """Return the allocation with the room of a cap shared among the jobs that need it."""
    assert allocation.node_prices is not None
    asked = {job: width for job, width in allocation.widths.items() if width.gpu_type in cap.node_sizes}
    fixed = (
        {job: _kept(state, job, width) for job, width in asked.items() if job in allocation.stay}
        if allocation.stay
        else {}
    )
    claims, left = _claims(state, allocation, cap, asked, fixed)
    if fixed and left < _least_room(claims):
        # The cap itself shrank: nobody may keep more than there is.
        fixed = {}
        claims, left = _claims(state, allocation, cap, asked, fixed)
    found = shares(claims, left)
    # A waiting job asks for its most efficient width, after the others.
    narrow = [menu.widths[menu.corners[0]] for menu in claims.menus]
    names = [job.id for job in claims.jobs]
    least = {job: narrow[number] for job, number in zip(names, claims.menu.tolist(), strict=True)}
    widths = {**least, **found.widths, **fixed}
    changed = {
        job: width for job, width in widths.items() if width != asked[job] or _waits(job, found, fixed)
    }
    before = [job for job in allocation.order if job not in asked]
    why = _Why(cap=cap, asked=asked, found=found, fixed=fixed)
    return allocation.with_widths(changed, why, order=(*before, *fixed, *found.order), order_rule=BY_VALUE)


def _kept(state: ClusterState, job: JobId, width: Width) -> Width:
    """Return what a job that stays holds, or is to hold once it has moved."""
    seen = state.jobs[job]
    held = width if job in state.claims and seen.is_stopping else seen.job.width
    return width if held is None or held.gpu_type != width.gpu_type else held


def _claims(
    state: ClusterState,
    allocation: Allocation,
    cap: RoomCap,
    asked: Mapping[JobId, Width],
    fixed: Mapping[JobId, Width],
) -> tuple[Claims, float]:
    """Return the claims of the jobs that are not fixed, and the room for them."""
    assert allocation.node_prices is not None
    rest = {job: width for job, width in asked.items() if job not in fixed} if fixed else asked
    claims = allocation.node_prices.claims(
        [state.jobs[job].job for job in rest],
        list(rest.values()),
        size_per_gpu={kind: cap.size_per_gpu(kind) for kind in cap.node_sizes},
        now=state.now,
    )
    used = frozenset(width.gpu_type for menu in claims.menus for width in menu.widths)
    used |= {width.gpu_type for width in fixed.values()}
    taken = sum(cap.size_per_gpu(width.gpu_type) * width.gpus for width in fixed.values())
    return claims, (cap.of_gpus(used) if used else 0.0) - taken


def _least_room(claims: Claims) -> float:
    """Return the room that the narrowest widths of the running jobs take."""
    menus = [claims.menus[number] for number in claims.menu.tolist()]
    least: float = sum(
        size * menu.gpus[0]
        for job, menu, size in zip(claims.jobs, menus, claims.size_per_gpu.tolist(), strict=True)
        if job.width is not None
    )
    return least


def _waits(job: JobId, found: RoomShares, fixed: Mapping[JobId, Width]) -> bool:
    """Return whether a job gets no room now."""
    return job not in found.widths and job not in fixed


@dataclass(frozen=True, slots=True, kw_only=True)
class _Why:
    """Writes the reason of a width under a cap, or why a job waits for room."""

    cap: RoomCap
    asked: Mapping[JobId, Width]
    found: RoomShares
    fixed: Mapping[JobId, Width]
    known: dict[str, str] = field(default_factory=dict)

    @property
    def full(self) -> str:
        """What the cap cannot hold; written once for all jobs."""
        if "full" not in self.known:
            need = " + ".join(
                str(Width(kind, gpus)) for kind, gpus in gpu_counts(self.asked.values()).items()
            )
            jobs = counted(len(self.asked), "job")
            self.known["full"] = f"{self.cap.name} {NARROWS} the {need} that {jobs} would have without it"
        return self.known["full"]

    def __call__(self, job: JobId) -> str:
        planned = self.asked[job]
        if job in self.fixed:
            return stay_reason(self.fixed[job], planned)
        full = self.full
        if job in self.found.widths:
            return f"{full}, of which {planned} for this one: {BY_VALUE}"
        place = self.found.order.index(job) + 1
        order = f"number {place} of {len(self.found.order)} in the order of service"
        return f"{full}; it is {order}: {BY_VALUE}"


def _caps(state: ClusterState, rules: Rules) -> Iterator[RoomCap]:
    """Yield the caps, first those on single types."""
    kinds = rules.instance_types
    gpus = {name: kind.gpus for name, kind in kinds.items()}
    for name, kind in kinds.items():
        most = _most_nodes(state, kind)
        if most is not None:
            code, why = _why_short(state, kind)
            yield RoomCap(
                code=code,
                name=f"{why} of {kind.name} ({counted(most, 'node')} at most)",
                size=float(most),
                node_sizes={name: 1.0},
                gpus=gpus,
            )
    if rules.max_nodes is not None:
        yield RoomCap(
            code="node-limit",
            name=node_limit_name(rules.max_nodes),
            size=float(rules.max_nodes),
            node_sizes=dict.fromkeys(kinds, 1.0),
            gpus=gpus,
        )
    ceiling = None if rules.caps is None else rules.caps.usd_per_hour
    if ceiling is not None:
        yield RoomCap(
            code="cap-hour",
            name=ceiling_name(ceiling),
            size=ceiling,
            node_sizes={name: kind.usd_per_hour for name, kind in kinds.items()},
            gpus=gpus,
        )


def _most_nodes(state: ClusterState, kind: InstanceType) -> int | None:
    """Return the most nodes of a type by quota and stock; None if neither is known."""
    if not state.offers and not state.cooldowns:
        return None
    more, _ = room_to_rent(kind.name, state.offers, state.cooldowns, now=state.now)
    if more == inf:
        return None
    present = (node for node in state.nodes.values() if node.instance_type.name == kind.name)
    return int(more) + sum(node.phase in ("ready", "requested") and node.ends_by is None for node in present)


def _why_short(state: ClusterState, kind: InstanceType) -> tuple[RoomCode, str]:
    """Return what limits the nodes of a type: stock, quota, or that no launch is accepted now."""
    known, rests, now = state.offers, state.cooldowns, state.now
    closed = closed_until(kind.name, known, rests, now=now)
    more, together = room_to_rent(kind.name, known, rests, now=now)
    if closed is None and more < room_to_rent(kind.name, known, {}, now=now)[0]:
        # The quota alone would leave more: a refusal of wide orders is the limit.
        closed = closed_until(kind.name, known, rests, now=now, together=int(together) + 1)
    code = "quota" if closed is None else closed.kind
    if code == "quota":
        return "quota", "the account's quota"
    if code == "no-capacity" or code == "busy":  # noqa: PLR1714 - mypy narrows each comparison
        return "out-of-stock", "the cloud's stock"
    return code, "what the cloud accepts now"
