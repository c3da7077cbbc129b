"""Launches: how many nodes a limit allows, coming nodes as a placer sees them, and cutting launches.

Only `cut_launches` takes launches out of a plan because of a count. It keeps all or none of the nodes that a
job needs together. Cost: O(nodes).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from boa_daemon.tick.facts.offers import whole_gangs
from boa_daemon.tick.facts.placeable_nodes import Slots
from boa_daemon.tick.facts.plan import Plan
from boa_daemon.tick.facts.state import ClusterState, NodeState, Rules
from policies.fast_dataclasses import replace
from policies.model import InstanceType, Node, NodeId


def launches_left(plan: Plan, name: str, allowed: int) -> int:
    """Return how many launches of a type remain within `allowed`; no gang is launched in part."""
    count, tied = plan.launches[name], plan.gangs.get(name, ())
    if allowed >= count:
        return count
    kept = sum(whole_gangs(tied, allowed))
    return kept + min(count - sum(tied), allowed - kept)


def cut_launches(plan: Plan, allowed: Mapping[str, int]) -> Plan:
    """Return the plan with no more launches than allowed; types that are not named stay unchanged."""
    launches: dict[str, int] = {}
    gangs: dict[str, tuple[int, ...]] = {}
    for name, count in plan.launches.items():
        most = allowed.get(name, count)
        left = launches_left(plan, name, most)
        if left:
            launches[name] = left
            tied = plan.gangs.get(name, ())
            if kept := tied if most >= count else whole_gangs(tied, most):
                gangs[name] = kept
    return replace(plan, launches=launches, gangs=gangs)


def without_gangs(plan: Plan, closed: Collection[tuple[str, int]]) -> Plan:
    """Return the plan without the gangs whose (type, size) is closed."""
    kept = {
        name: tuple(size for size in sizes if (name, size) not in closed)
        for name, sizes in plan.gangs.items()
    }
    if kept == plan.gangs:
        return plan
    launches = {
        name: count - sum(plan.gangs.get(name, ())) + sum(kept.get(name, ()))
        for name, count in plan.launches.items()
    }
    return replace(
        plan,
        launches={name: count for name, count in launches.items() if count},
        gangs={name: sizes for name, sizes in kept.items() if sizes},
    )


def within_node_limit(state: ClusterState, launches: Mapping[str, int], rules: Rules) -> dict[str, int]:
    """Return as many of the launches, in order, as the limit on nodes allows."""
    if rules.max_nodes is None:
        return dict(launches)
    left = rules.max_nodes - sum(count_by_type(state.nodes.values()).values())
    allowed: dict[str, int] = {}
    for name, count in launches.items():
        if left > 0:
            allowed[name] = min(count, left)
            left -= allowed[name]
    return allowed


def count_by_type(nodes: Iterable[NodeState]) -> dict[str, int]:
    """Return how many nodes of each instance type are ready or requested."""
    counts: dict[str, int] = {}
    for node in nodes:
        if node.phase in ("ready", "requested"):
            counts[node.instance_type.name] = counts.get(node.instance_type.name, 0) + 1
    return counts


def is_coming(node: NodeState) -> bool:
    """Return whether a node is requested and is to stay."""
    return node.phase == "requested" and node.ends_by is None


def coming_nodes(state: ClusterState) -> list[Node]:
    """Return the requested nodes as if they were ready."""
    return [
        Node(id=node.id, instance_type=node.instance_type, is_ready=True)
        for node in state.passing_nodes
        if is_coming(node)
    ]


def blank_nodes(instance_type: InstanceType, first: int, last: int) -> list[Node]:
    """Return placeholder nodes that are not requested yet."""
    return [
        Node(id=f"new-{instance_type.name}-{number}", instance_type=instance_type, is_ready=True)
        for number in range(first, last)
    ]


def gangs_of(placed: Slots, blank: Mapping[NodeId, str]) -> dict[str, tuple[int, ...]]:
    """Return the sizes of the groups of new nodes that jobs tie together, by instance type."""
    if len(blank) < 2:
        return {}
    if len(placed) == 1:
        (taken,) = placed.values()
        tied = [name for name in dict.fromkeys([slot.node for slot in taken]) if name in blank]
        return {blank[tied[0]]: (len(tied),)} if len(tied) > 1 else {}
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
    sizes: dict[NodeId, int] = {}
    for name in map(leader, blank):
        sizes[name] = sizes.get(name, 0) + 1
    gangs: dict[str, tuple[int, ...]] = {}
    for name, size in sizes.items():
        if size > 1:
            gangs[blank[name]] = (*gangs.get(blank[name], ()), size)
    return gangs
