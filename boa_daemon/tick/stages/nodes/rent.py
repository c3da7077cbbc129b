"""May change launches and wait reasons: rent nodes for jobs that the ready nodes cannot take.

Jobs that do not fit on the ready nodes are placed on those and the coming nodes together; nodes are added
until all fit. So nothing is rented twice, and the placer's rules (such as whole nodes) are respected. Nothing
is rented for jobs that should wait for GPUs that will be free soon.

Cost: O(jobs + nodes), and the placer's cost on the nodes with room.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil

from boa_daemon.errors import BoaError
from boa_daemon.tick.facts.draft import Draft
from boa_daemon.tick.facts.placeable_nodes import PlaceableNodes
from boa_daemon.tick.facts.plan import Plan
from boa_daemon.tick.facts.state import ClusterState, Rules, WaitReason
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
    kinds = {node.instance_type.gpu_type for node in booting}
    if demand.launches:
        kinds |= {kind for kind, one in draft.rules.instance_types.items() if demand.launches.get(one.name)}
    why: dict[JobId, WaitReason] = {
        job: "nodes-to-come" if width.gpu_type in kinds else "gpus-to-fall-free"
        for job, width in waiting.items()
    }
    jobs = draft.plan.jobs.only_waiting(why)
    plan = _renting(draft.plan, demand.launches, demand.gangs, jobs)
    return _counting_on(draft, plan, demand.claimed)


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class _Demand:
    """New nodes by instance type, and the nodes that waiting jobs count on."""

    launches: dict[str, int]
    claimed: frozenset[NodeId]
    gangs: dict[str, tuple[int, ...]] = field(default_factory=dict)


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
                gangs=gangs_of(future, blank),
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
