"""May stop returned nodes instead of ending them, and may end stopped nodes.

No disk is kept that a cap could not pay for, and a node that a launch is about to start stays. Cost: O(nodes)
if there is a pool or a stopped node; nothing otherwise.
"""

from __future__ import annotations

from collections import Counter
from math import floor, inf

from boa_daemon.tick.facts.draft import Draft
from boa_daemon.tick.facts.needs import only_with
from boa_daemon.tick.facts.offers import most_usd_per_hour
from boa_daemon.tick.facts.plan import Plan
from boa_daemon.tick.facts.state import ClusterState, NodeState, Rules
from boa_daemon.tick.facts.warm_pool import (
    PoolWorth,
    disk_extras,
    may_stop,
    stopped_node_expiries,
    stopped_nodes,
)
from boa_daemon.tick.money.cap_projection import CapProjection
from policies.fast_dataclasses import replace
from policies.model import NodeId


@only_with("pool")
def keep_warm(state: ClusterState, draft: Draft) -> Draft:
    """Return the draft with returned nodes stopped, and stopped nodes not worth their disks ended."""
    plan, pool = draft.plan, draft.rules.warm_pool
    stopped = [node for node in stopped_nodes(state) if node.id not in plan.releases]
    if pool is None and not stopped:
        return draft
    worth = PoolWorth.of(draft.rules, draft.allocation.node_prices)
    wanted = _wanted(plan, stopped)
    rest = [node for node in stopped if node not in wanted]
    kept = Counter(node.instance_type.name for node in wanted)
    ending, wakes = [], []
    for node, until in stopped_node_expiries(rest, worth, now=state.now, kept=kept):
        if until <= state.now:
            ending.append(node.id)
        else:
            kept[node.instance_type.name] += 1
            wakes.append(until)
    plan = replace(plan, releases=(*plan.releases, *ending)) if ending else plan
    plan = _with_stops(state, plan, draft.rules, worth, kept)
    return replace(draft, plan=plan.looked_at_by(*wakes))


def _wanted(plan: Plan, stopped: list[NodeState]) -> list[NodeState]:
    """Return the stopped nodes that the launches of the plan may start."""
    left = dict(plan.launches)
    wanted = []
    for node in stopped:
        name = node.instance_type.name
        if left.get(name, 0) > 0:
            left[name] -= 1
            wanted.append(node)
    return wanted


def _with_stops(state: ClusterState, plan: Plan, rules: Rules, worth: PoolWorth, kept: Counter[str]) -> Plan:
    """Return the plan with returned nodes stopped if they are worth a disk and the caps allow it."""
    candidates = [state.nodes[name] for name in plan.releases if may_stop(state.nodes[name])]
    if not candidates or worth.pool.nodes <= sum(kept.values()):
        return plan
    room = _room(state, plan, rules, worth)
    stops: list[NodeId] = []
    for node in candidates:
        name = node.instance_type.name
        disk = sum(usd for _, usd in disk_extras(node.extras, otherwise=worth.pool.disk_usd_per_hour))
        hold = worth.hold(node.instance_type, disk)
        if kept[name] < hold.nodes and sum(kept.values()) < worth.pool.nodes and len(stops) < room:
            kept[name] += 1
            stops.append(node.id)
            plan = plan.looked_at_by(state.now + hold.seconds)
    return replace(plan, stopping=tuple(stops)) if stops else plan


def _room(state: ClusterState, plan: Plan, rules: Rules, worth: PoolWorth) -> float:
    """Return how many more disks the dollar caps pay for beside all that runs and is launched."""
    if rules.caps is None:
        return inf
    # A stopped node is not a running instance and costs less per hour than before: those caps hold anyway.
    caps = replace(rules.caps, instances=None, usd_per_hour=None)
    projection = CapProjection(state, caps, ending=plan.releases)
    if projection.broken is not None:
        return 0.0
    projection.look_ahead()
    for name, count in plan.launches.items():
        projection.add(most_usd_per_hour(plan.instance_types[name], state.offers), count)
    dearest = max(
        (disk_extras(state.nodes[name].extras, otherwise=worth.pool.disk_usd_per_hour)[0][1])
        for name in plan.releases
    )
    return float(floor(min(projection.room_for(max(dearest, 1e-6))[0], float(len(plan.releases)))))
