"""May change launches and wait reasons: rent nodes for jobs that the ready nodes cannot take.

Jobs that do not fit on the ready nodes are placed on those and the coming nodes together; nodes are added
until all fit. So nothing is rented twice, and the placer's rules (such as whole nodes) are respected. Nothing
is rented for jobs that should wait for GPUs that will be free soon. While the cloud refuses as many nodes
together as a job needs, the others do not count on the room beside it; while it refuses as many as several
jobs need that share nodes, the first of these get theirs.

Cost: O(jobs + nodes), and the placer's cost on the nodes with room, O(log jobs) times if it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil

from boa_daemon.errors import BoaError
from boa_daemon.tick.facts.draft import Draft
from boa_daemon.tick.facts.offers import closed_until
from boa_daemon.tick.facts.placeable_nodes import PlaceableNodes, Slots
from boa_daemon.tick.facts.plan import Plan
from boa_daemon.tick.facts.reasons import WaitReason
from boa_daemon.tick.facts.state import ClusterState, Rules
from boa_daemon.tick.room.forecasts import about_to_end
from boa_daemon.tick.room.launches import blank_nodes, coming_nodes, gangs_of, within_node_limit
from policies.fast_dataclasses import fast_init, field_replacer
from policies.model import JobId, Node, NodeId, Width

_renting = field_replacer(Plan, "launches", "gangs", "jobs")
_counting_on = field_replacer(Draft, "plan", "claimed")


def rent(state: ClusterState, draft: Draft) -> Draft:
    """Return the draft with launches of the nodes that the unplaced wishes need."""
    room = draft.room
    if room is None or draft.has_fixed_fleet:
        return draft
    waiting = draft.unplaced
    if not waiting:
        return draft
    ending = about_to_end(state, draft.allocation.node_prices, waiting)
    booting = coming_nodes(state)
    after = room.without(ending, state).after(draft.plan.jobs.slots)
    demand = _demand(state, waiting, after, draft.rules, booting)
    refused: set[JobId] = set()
    if too_wide := _too_wide(state, demand):
        refused = _refused(state, demand, waiting, draft.rules)
        tied = [
            job
            for job, width in waiting.items()
            if job not in refused and draft.rules.instance_types[width.gpu_type].name in too_wide
        ]

        def demand_of(count: int) -> _Demand:
            out = refused.union(tied[count:])
            jobs = {job: width for job, width in waiting.items() if job not in out}
            return _demand(state, jobs, after, draft.rules, booting) if jobs else _NOTHING

        demand, count = _most_accepted(state, len(tied), demand_of)
        refused.update(tied[count:])
    kinds = {node.instance_type.gpu_type for node in booting}
    if demand.launches:
        kinds |= {kind for kind, one in draft.rules.instance_types.items() if demand.launches.get(one.name)}
    why: dict[JobId, WaitReason] = {
        job: "nodes-to-come" if width.gpu_type in kinds or job in refused else "gpus-to-fall-free"
        for job, width in waiting.items()
    }
    jobs = draft.plan.jobs.only_waiting(why)
    plan = _renting(draft.plan, demand.launches, demand.gangs, jobs)
    return _counting_on(draft, plan, demand.claimed)


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class _Demand:
    """New nodes by instance type, the nodes that waiting jobs count on, and what jobs need together."""

    launches: dict[str, int]
    claimed: frozenset[NodeId]
    gangs: dict[str, tuple[int, ...]] = field(default_factory=dict)
    spans: dict[JobId, tuple[str, int]] = field(default_factory=dict)  # instance type and new nodes, from 2


_NOTHING = _Demand(launches={}, claimed=frozenset())


def _too_wide(state: ClusterState, demand: _Demand) -> set[str]:
    """Return the open instance types of which more nodes are needed together than any offer gives."""
    return {
        name
        for name, sizes in demand.gangs.items()
        if closed_until(name, state.offers, state.cooldowns, now=state.now) is None
        and any(
            closed_until(name, state.offers, state.cooldowns, now=state.now, together=size) is not None
            for size in set(sizes)
        )
    }


def _most_accepted(
    state: ClusterState, count: int, demand_of: Callable[[int], _Demand]
) -> tuple[_Demand, int]:
    """Return the demand of the most jobs that offers accept, the first ones first, and how many these are.

    Jobs that share nodes tie these together, though each of the jobs would do with fewer.
    """
    demand, accepted, too_many = demand_of(count), 0, count
    if not _too_wide(state, demand):
        return demand, count
    demand = demand_of(0)
    while too_many - accepted > 1:
        middle = (accepted + too_many) // 2
        found = demand_of(middle)
        if _too_wide(state, found):
            too_many = middle
        else:
            demand, accepted = found, middle
    return demand, accepted


def _refused(
    state: ClusterState, demand: _Demand, waiting: Mapping[JobId, Width], rules: Rules
) -> set[JobId]:
    """Return the jobs that need more new nodes together than any offer accepts now."""
    return {
        job
        for job, (name, nodes) in demand.spans.items()
        if waiting[job].gpus > rules.instance_types[waiting[job].gpu_type].gpus
        and closed_until(name, state.offers, state.cooldowns, now=state.now, together=nodes) is not None
    }


def _demand(
    state: ClusterState,
    rest: Mapping[JobId, Width],
    after: PlaceableNodes,
    rules: Rules,
    booting: Sequence[Node],
) -> _Demand:
    """Return how many nodes to add so that the remaining wishes fit into the room left."""
    extra = [*booting]
    launches: dict[str, int] = {}
    # A lower bound in any zones: if every type is short by it, no placer can place all wishes.
    short = after.shortfall(rest, {}, extra=extra, across_zones=True)
    is_short = min(short.values()) > 0
    if is_short and len(short) == 1:
        gpu_type, gpus = next(iter(short.items()))
        instance_type = rules.instance_types[gpu_type]
        least = {instance_type.name: ceil(gpus / instance_type.gpus)}
        if within_node_limit(state, least, rules) != least:
            # The limit allows fewer nodes than this lower bound; `keep_node_limit` decides who gets them.
            return _Demand(launches=least, claimed=frozenset())
    # Skip the first placement, which would only fail; with zones it also says which zone lacks GPUs.
    is_short = is_short and not after.has_zones
    most_launches = 4 * sum([width.gpus for width in rest.values()])
    while True:
        future = {} if is_short else after.place(rest, extra=extra, keep_movers=False)
        missing = {job: width for job, width in rest.items() if job not in future}
        if not missing:
            blank = {node.id: node.instance_type.name for node in extra if node.id not in state.nodes}
            return _Demand(
                launches=launches,
                claimed=frozenset([slot.node for taken in future.values() for slot in taken]),
                gangs=(gangs := gangs_of(future, blank)),
                spans=_spans(future, blank) if gangs else {},
            )
        if not is_short:
            short = after.shortfall(rest, future, extra=extra)
        is_short = False
        for gpu_type, gpus in short.items():
            instance_type = rules.instance_types[gpu_type]
            count = max(1, ceil(gpus / instance_type.gpus))
            so_far = launches.get(instance_type.name, 0)
            launches[instance_type.name] = so_far + count
            extra += blank_nodes(instance_type, so_far, so_far + count)
        if sum(launches.values()) > most_launches:
            raise BoaError(f"the placer leaves jobs out of empty nodes: {', '.join(sorted(missing)[:5])}")


def _spans(placed: Slots, blank: Mapping[NodeId, str]) -> dict[JobId, tuple[str, int]]:
    """Return the instance type and the number of new nodes of each job on several of them."""
    found = {}
    for job, taken in placed.items():
        new = {slot.node for slot in taken} & blank.keys()
        if len(new) > 1:
            found[job] = blank[min(new)], len(new)
    return found
