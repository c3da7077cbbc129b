"""Allocate, then place: which job should hold which GPUs, and which nodes that takes.

A job that holds its width keeps its very GPUs. One that should change keeps what it has until the new width
can be placed (acquire before release). What cannot be placed on the ready nodes is placed on the ready ones
and those to come together; where even that has no room, nodes are added until it has. So nothing is rented
twice, and whatever the placer wants (whole nodes, say) is rented. Nodes that neither placement uses and that
have been idle for long enough are released.

At a cap, a policy that knows sizes and speeds says who is narrow and who waits (`boa_daemon.tick.narrowing`);
else jobs are admitted in order of arrival. None overtakes in that order: a wide job is served as soon as
enough GPUs fall free.
Cost: O(jobs + nodes), and the placer's on the nodes with room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from math import ceil, isfinite
from types import MappingProxyType

from boa_daemon.errors import BoaError
from boa_daemon.tick.affordable import paid_for, within_money
from boa_daemon.tick.emptying import emptied
from boa_daemon.tick.lending import as_held, called_back, lent, with_spare_gpus
from boa_daemon.tick.narrowing import within_room
from boa_daemon.tick.offers import Cooldown, RefusalKind, closed_until
from boa_daemon.tick.room import Room, Slots
from boa_daemon.tick.state import ClusterState, NodeState, Plan, Rules, WaitReason
from boa_daemon.tick.whole_nodes import about_to_end, with_head_starts, with_idle_nodes
from policies.answer import Allocation
from policies.model import InstanceType, JobId, Money, Node, NodeId, Width
from policies.protocols import Allocator, Placer


def make_plan(
    state: ClusterState, *, allocator: Allocator, placer: Placer, rules: Rules, money: Money | None = None
) -> Plan:
    """Return what should be, given what is and what was spent."""
    allocation = allocator.allocate([job.job for job in state.jobs.values()], now=state.now, money=money)
    allocation, waits = within_money(state, allocation, rules)
    return paid_for(state, _plan_for(state, allocation, placer, rules), allocation, waits)


def _plan_for(state: ClusterState, allocation: Allocation, placer: Placer, rules: Rules) -> Plan:
    """Return the plan for an allocation."""
    if allocation.node_prices is None:
        loans: dict[JobId, Width] = {}
    else:
        allocation = within_room(state, allocation, rules)
        loans = lent(state, allocation)
        allocation = as_held(state, allocation, loans)
        loans = {job: planned for job, planned in loans.items() if job not in allocation.stay}
    changes = _changes(state, allocation.widths, allocation.order)
    if not changes.wishes and not changes.stops and allocation.nodes is None:
        plan = Plan(widths=allocation.widths, slots={}, reasons=allocation.reasons, memory=allocation.memory)
        plan = _well_used(state, plan, allocation, loans, claimed=set())
        return with_idle_nodes(state, rules, plan, claimed=set(), node_prices=allocation.node_prices)
    changes = replace(
        changes, loans={job: planned for job, planned in loans.items() if job not in changes.wishes}
    )
    stops = frozenset(changes.stops).union(changes.leaving)
    leaving = changes.wishes.keys() | stops | changes.loans.keys()
    room = Room(state, leaving=leaving, stopped=stops, placer=placer, compact=allocation.compact)
    if allocation.nodes is not None:
        return _alarmed(state, _fixed_fleet(state, allocation, changes, room, rules))
    return _alarmed(state, _rented_fleet(state, allocation, changes, room, rules))


def _alarmed(state: ClusterState, plan: Plan) -> Plan:
    """Return the plan with a wake-up for when jobs have to leave nodes whose end is announced."""
    alarms = [node.ends_by - LEAVE_SECONDS for node in state.nodes.values() if node.ends_by is not None]
    later = [at for at in (*alarms, plan.wake_at) if at is not None and at > state.now]
    return replace(plan, wake_at=min(later)) if alarms and later else plan


LEAVE_SECONDS = 120.0
"""A job lets go of a node that ends within this time, wherever it goes: its progress is then safe."""

_WAITS: Mapping[RefusalKind, WaitReason] = {
    "no-capacity": "out-of-stock",
    "busy": "out-of-stock",
    "quota": "quota",
    "denied": "denied",
    "throttled": "throttled",
    "bad-request": "bad-request",
    "no-price": "no-price",
}
"""What a job waits for while every offer of its type is closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Changes:
    """The widths of jobs that do not hold them, and the jobs that should hold nothing.

    Those of `leaving` must let go now, whether or not there is room for them elsewhere. `loans` are the
    planned widths of jobs that hold more, and go back to that when somebody waits.
    """

    wishes: dict[JobId, Width]
    stops: tuple[JobId, ...]
    leaving: tuple[JobId, ...] = ()
    loans: Mapping[JobId, Width] = field(default_factory=lambda: MappingProxyType({}))

    def stops_beside(self, slots: Slots) -> tuple[JobId, ...]:
        """Return the jobs that should hold nothing where those of `slots` move."""
        return (*self.stops, *(job for job in self.leaving if job not in slots))


def _changes(state: ClusterState, widths: Mapping[JobId, Width], order: Sequence[JobId] = ()) -> _Changes:
    """Return what should change.

    Jobs that shrink come first: they always fit where they are, and make room. The others follow in the order
    given, and then in order of arrival.
    """
    ending = [n for n in state.nodes.values() if n.ends_by is not None or n.phase == "terminating"]
    dying = {job for node in ending for job in node.gpus if job is not None}
    urgent = {
        job
        for node in ending
        if node.ends_by is not None and node.ends_by - state.now <= LEAVE_SECONDS
        for job in node.gpus
    }
    wishes: dict[JobId, Width] = {}
    shrinking: dict[JobId, Width] = {}
    stops: list[JobId] = []
    wanted = widths.get
    for job_id in dict.fromkeys((*order, *state.jobs)) if order else state.jobs:
        job = state.jobs[job_id]
        width, holds = wanted(job_id), job.job.width
        if (width is holds or width == holds) and job_id not in dying:
            continue
        if job.is_stopping:
            continue
        if width is None:
            if job.slots:
                stops.append(job_id)
        elif _shrinks(holds, width) and job_id not in dying:
            shrinking[job_id] = width
        else:
            wishes[job_id] = width
    leaving = tuple(job for job in wishes if job in urgent)
    return _Changes(wishes=shrinking | wishes, stops=tuple(stops), leaving=leaving)


def _shrinks(holds: Width | None, width: Width) -> bool:
    """Return whether a width is part of what is held."""
    return holds is not None and holds.gpu_type == width.gpu_type and width.gpus <= holds.gpus


def _fixed_fleet(
    state: ClusterState, allocation: Allocation, changes: _Changes, room: Room, rules: Rules
) -> Plan:
    """Return the plan for a policy that says how many nodes to hold."""
    wanted = allocation.nodes or {}
    present = _count_by_type(node for node in state.nodes.values() if node.ends_by is None)
    launches = {
        name: count - present.get(name, 0) for name, count in wanted.items() if count > present.get(name, 0)
    }
    surplus = Counter({name: count - wanted.get(name, 0) for name, count in present.items()})
    slots = room.place(changes.wishes)
    used = {slot.node for taken in slots.values() for slot in taken}
    releases: list[NodeId] = []
    for node in reversed(list(state.nodes.values())):
        name = node.instance_type.name
        if node.is_idle and node.id not in used and (node.ends_by is not None or surplus[name] > 0):
            surplus[name] -= node.ends_by is None
            releases.append(node.id)
    waiting: dict[JobId, WaitReason] = {job: "fleet-full" for job in changes.wishes if job not in slots}
    launches, wake_at = _within_stock(state, _within_cap(state, launches, rules))
    return Plan(
        widths=allocation.widths,
        slots=slots,
        stops=changes.stops_beside(slots),
        launches=launches,
        instance_types=rules.by_name,
        releases=tuple(releases),
        waiting=waiting,
        reasons=allocation.reasons,
        memory=allocation.memory,
        wake_at=wake_at,
    )


def _rented_fleet(
    state: ClusterState, allocation: Allocation, changes: _Changes, room: Room, rules: Rules
) -> Plan:
    """Return the plan for a policy that rents what the widths need."""
    wishes, loans = changes.wishes, changes.loans
    slots = room.place(wishes)
    rest = {job: width for job, width in wishes.items() if job not in slots}
    if rest and loans:
        givers = called_back(state, loans, rest.values(), room.after(slots).free_gpus())
        if givers:
            wishes = givers | wishes
            allocation = replace(allocation, widths={**allocation.widths, **givers})
            slots = room.place(wishes)
            rest = {job: width for job, width in wishes.items() if job not in slots}
    ending = about_to_end(state, allocation.node_prices, rest)
    demand = _nodes_to_come(state, rest, slots, room.without(ending, state), rules)
    coming = demand.launches or any(_is_coming(node) for node in state.nodes.values())
    reason: WaitReason = "nodes-to-come" if coming or not ending else "gpus-to-fall-free"
    allowed = _within_cap(state, demand.launches, rules)
    if allowed != demand.launches:
        kept = {job: planned for job, planned in loans.items() if job not in wishes}
        if kept:
            # Before anybody is turned down at the cap, whoever was lent GPUs goes back to the plan.
            widths = {**allocation.widths, **kept}
            changes = replace(changes, wishes=kept | wishes, loans={})
            return _rented_fleet(state, replace(allocation, widths=widths), changes, room, rules)
        reason = "node-limit"
        admitted, demand = _at_the_cap(state, wishes, allowed, room, rules)
        slots = room.place(admitted)
    launches, wake_at = _within_stock(state, demand.launches)
    late = {job: width for job, width in wishes.items() if job not in slots}
    why = {kind: _why(state, rules.instance_types[kind].name, reason) for kind in _gpu_types(late)}
    waiting = {job: why[width.gpu_type] for job, width in late.items()}
    plan = Plan(
        widths=allocation.widths,
        slots=slots,
        stops=changes.stops_beside(slots),
        launches=launches,
        gangs={name: sizes for name, sizes in demand.gangs.items() if name in launches},
        instance_types=rules.by_name,
        waiting=waiting,
        reasons=allocation.reasons,
        memory=allocation.memory,
        wake_at=wake_at,
    )
    at_the_cap = reason == "node-limit"
    if not at_the_cap:
        held_seconds = 0.0 if rules.steady is None else rules.steady.minimum_hold_seconds
        plan = with_head_starts(state, plan, allocation.node_prices, room, minimum_hold_seconds=held_seconds)
        plan = _well_used(state, plan, allocation, loans, claimed=demand.claimed)
    used = {slot.node for taken in plan.slots.values() for slot in taken}
    return with_idle_nodes(
        state,
        rules,
        plan,
        claimed=used | demand.claimed,
        node_prices=allocation.node_prices,
        hold=not at_the_cap,
    )


def _well_used(
    state: ClusterState,
    plan: Plan,
    allocation: Allocation,
    loans: Mapping[JobId, Width],
    *,
    claimed: AbstractSet[NodeId],
) -> Plan:
    """Return the plan with a node emptied and spare GPUs used, where that pays."""
    if allocation.node_prices is None:
        return plan
    loans = {job: planned for job, planned in loans.items() if job not in plan.slots}
    if not plan.launches:
        plan = emptied(state, plan, allocation, loans, claimed=claimed)
    plan = with_spare_gpus(state, plan, allocation, claimed=claimed)
    stretched = {job: planned for job, planned in loans.items() if job not in plan.slots}
    for job in plan.slots:
        planned = loans.get(job, allocation.widths[job])
        if job not in plan.head_starts and plan.widths[job].gpus > planned.gpus:
            stretched[job] = planned
    return replace(plan, stretched=stretched) if stretched else plan


@dataclass(frozen=True, slots=True, kw_only=True)
class _Demand:
    """New nodes by instance type, and the nodes that waiting jobs count on."""

    launches: dict[str, int]
    claimed: set[NodeId]
    gangs: dict[str, tuple[int, ...]] = field(default_factory=dict)


def _nodes_to_come(
    state: ClusterState, rest: Mapping[JobId, Width], placed: Slots, room: Room, rules: Rules
) -> _Demand:
    """Return how many nodes to add so that the rest fits beside what is placed now."""
    if not rest:
        return _Demand(launches={}, claimed=set())
    after = room.after(placed)
    extra = [_as_ready(node) for node in state.nodes.values() if _is_coming(node)]
    launches: dict[str, int] = {}
    # Zones or not, this is the least; where every type is short of it, no placer can place all.
    short = after.shortfall(rest, {}, extra=extra, across_zones=True)
    is_short = min(short.values()) > 0
    if is_short and len(short) == 1:
        gpu_type, gpus = next(iter(short.items()))
        instance_type = rules.instance_types[gpu_type]
        least = {instance_type.name: ceil(gpus / instance_type.gpus)}
        if _within_cap(state, least, rules) != least:
            # The cap holds fewer than the least that it takes: who gets those is decided there.
            return _Demand(launches=least, claimed=set())
    # The first try would only say so, unless it may say more: which zone lacks how many.
    is_short = is_short and not room.has_zones
    while True:
        future = {} if is_short else after.place(rest, extra=extra, keep_movers=False)
        is_short = False
        missing = {job: width for job, width in rest.items() if job not in future}
        if not missing:
            blank = {node.id: node.instance_type.name for node in extra if node.id not in state.nodes}
            return _Demand(
                launches=launches,
                claimed={slot.node for taken in future.values() for slot in taken},
                gangs=_gangs(future, blank),
            )
        for gpu_type, gpus in after.shortfall(rest, future, extra=extra).items():
            instance_type = rules.instance_types[gpu_type]
            count = max(1, ceil(gpus / instance_type.gpus))
            so_far = launches.get(instance_type.name, 0)
            launches[instance_type.name] = so_far + count
            extra += _blank_nodes(instance_type, so_far, so_far + count)
        if sum(launches.values()) > 4 * sum(width.gpus for width in rest.values()):
            raise BoaError(f"the placer leaves jobs out of empty nodes: {', '.join(sorted(missing)[:5])}")


def _at_the_cap(
    state: ClusterState, wishes: Mapping[JobId, Width], allowed: Mapping[str, int], room: Room, rules: Rules
) -> tuple[dict[JobId, Width], _Demand]:
    """Return the wishes to try at the cap, and the nodes for those of them that fit under it.

    None overtakes the first waiting job that has no room. Nothing is rented for that job before all of it
    fits, but idle nodes of its type are kept for it, unless they may be in the wrong zone. A job that the cap
    never holds keeps nobody waiting.
    """
    blank = {
        node.id: node
        for kind in rules.instance_types.values()
        for node in _blank_nodes(kind, 0, allowed.get(kind.name, 0))
    }
    extra = [_as_ready(node) for node in state.nodes.values() if _is_coming(node)]
    extra += blank.values()
    future = room.place(wishes, extra=extra)
    admitted: dict[JobId, Width] = {}
    blocked: Width | None = None
    for job, width in wishes.items():
        holds = state.jobs[job].job.width
        if blocked is None and holds is None and job not in future:
            could_fit = width.gpus <= (rules.max_nodes or 0) * _type_of(width, rules).gpus
            blocked = width if could_fit else None
        if blocked is None or _shrinks(holds, width):
            admitted[job] = width
    fitting = room.place(admitted, extra=extra)
    used = {slot.node for taken in fitting.values() for slot in taken}
    kept = {
        node.id
        for node in state.nodes.values()
        if blocked is not None and node.instance_type.gpu_type == blocked.gpu_type and not room.has_zones
    }
    launches: dict[str, int] = {}
    for name in sorted(used & blank.keys()):
        kind_name = blank[name].instance_type.name
        launches[kind_name] = launches.get(kind_name, 0) + 1
    names = {name: node.instance_type.name for name, node in blank.items()}
    return admitted, _Demand(launches=launches, claimed=used | kept, gangs=_gangs(fitting, names))


def _gangs(placed: Slots, blank: Mapping[NodeId, str]) -> dict[str, tuple[int, ...]]:
    """Return by instance type the sizes of the groups of new nodes that jobs tie together."""
    if not blank:
        return {}
    leaders = {name: name for name in blank}

    def leader(name: NodeId) -> NodeId:
        while leaders[name] != name:
            name = leaders[name]
        return name

    for taken in placed.values():
        if len(taken) == 1:
            continue
        tied = [name for name in dict.fromkeys(slot.node for slot in taken) if name in blank]
        for name in tied[1:]:
            leaders[leader(name)] = leader(tied[0])
    sizes = Counter(leader(name) for name in blank)
    gangs: dict[str, tuple[int, ...]] = {}
    for name, size in sizes.items():
        if size > 1:
            gangs[blank[name]] = (*gangs.get(blank[name], ()), size)
    return gangs


def _within_cap(state: ClusterState, launches: Mapping[str, int], rules: Rules) -> dict[str, int]:
    """Return as many of the launches as the cap on nodes leaves room for, in order."""
    if rules.max_nodes is None:
        return dict(launches)
    left = rules.max_nodes - sum(_count_by_type(state.nodes.values()).values())
    allowed: dict[str, int] = {}
    for name, count in launches.items():
        if left > 0:
            allowed[name] = min(count, left)
            left -= allowed[name]
    return allowed


def _within_stock(state: ClusterState, launches: Mapping[str, int]) -> tuple[dict[str, int], float | None]:
    """Return the launches of types that may be asked for now, and when to ask for the others."""
    closed = {name: rest for name in launches if (rest := _closed(state, name)) is not None}
    allowed = {name: count for name, count in launches.items() if name not in closed}
    return allowed, min((rest.until for rest in closed.values() if isfinite(rest.until)), default=None)


def _why(state: ClusterState, name: str, otherwise: WaitReason) -> WaitReason:
    """Return what a job waits for: the reason why its type cannot be rented now, if it cannot."""
    closed = _closed(state, name)
    return otherwise if closed is None else _WAITS[closed.kind]


def _closed(state: ClusterState, name: str) -> Cooldown | None:
    """Return why no offer of an instance type may be asked for now; None where one may."""
    if not state.offers and not state.cooldowns:
        return None
    return closed_until(name, state.offers, state.cooldowns, now=state.now)


def _count_by_type(nodes: Iterable[NodeState]) -> dict[str, int]:
    """Return how many nodes of each instance type are ready or requested."""
    counts: dict[str, int] = {}
    for node in nodes:
        if node.phase in ("ready", "requested"):
            counts[node.instance_type.name] = counts.get(node.instance_type.name, 0) + 1
    return counts


def _gpu_types(widths: Mapping[JobId, Width]) -> set[str]:
    """Return the GPU types of some widths."""
    return {width.gpu_type for width in widths.values()}


def _type_of(width: Width, rules: Rules) -> InstanceType:
    """Return the instance type that a width is rented as."""
    return rules.instance_types[width.gpu_type]


def _is_coming(node: NodeState) -> bool:
    """Return whether a node was asked for and is to stay."""
    return node.phase == "requested" and node.ends_by is None


def _as_ready(node: NodeState) -> Node:
    """Return a node to come as if it were here."""
    return Node(id=node.id, instance_type=node.instance_type, is_ready=True)


def _blank_nodes(instance_type: InstanceType, first: int, last: int) -> list[Node]:
    """Return nodes that nobody has asked for yet."""
    return [
        Node(id=f"new-{instance_type.name}-{number}", instance_type=instance_type, is_ready=True)
        for number in range(first, last)
    ]
