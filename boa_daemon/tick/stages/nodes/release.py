"""May change releases: give idle, unclaimed nodes back when their hold is over.

The policy says how long a node is worth holding (`policies.online.node_prices`); if it does not know, the
site's rule applies. Cost: O(nodes).
"""

from __future__ import annotations

from collections.abc import Iterator

from boa_daemon.tick.facts.draft import SOON_SECONDS, Draft, with_plan
from boa_daemon.tick.facts.plan import Plan
from boa_daemon.tick.facts.state import ClusterState, NodeState
from policies.fast_dataclasses import field_replacer
from policies.model import NodeId

_releasing = field_replacer(Plan, "releases")


def release(state: ClusterState, draft: Draft) -> Draft:
    """Return the draft with idle nodes released when their hold is over, and a wake-up for the next.

    If jobs wait at the limit on nodes, unclaimed nodes go back at once.
    """
    if draft.has_fixed_fleet:
        return draft
    idle = [node for node in state.nodes_with_gaps.values() if node.idle_since is not None]
    if not idle:
        return draft
    plan, holds = draft.plan, not draft.is_at_node_limit
    releases: list[NodeId] = []
    wakes: list[float] = []
    for node, hold_seconds in _held_idle(idle, draft):
        release_at = (node.idle_since or 0.0) + (hold_seconds if holds and node.ends_by is None else 0.0)
        if release_at <= state.now:
            releases.append(node.id)
        else:
            wakes.append(release_at)
    if releases and not holds:
        # The limit on nodes now has room again.
        wakes.append(state.now + SOON_SECONDS)
    if wakes:
        plan = plan.looked_at_by(*wakes)
    if releases:
        plan = _releasing(plan, tuple(releases))
    return draft if plan is draft.plan else with_plan(draft, plan)


def _held_idle(idle: list[NodeState], draft: Draft) -> Iterator[tuple[NodeState, float]]:
    """Yield the ready, unclaimed ones of idle nodes, each with the seconds that it may be held."""
    rules, node_prices = draft.rules, draft.allocation.node_prices
    used = draft.plan.jobs.start_nodes | draft.claimed
    idle = [node for node in idle if node.phase == "ready" and node.id not in used]
    if not idle:
        return
    if node_prices is None:
        yield from ((node, rules.idle_hold_seconds) for node in idle)
        return
    kinds = rules.instance_types.keys() & {node.instance_type.gpu_type for node in idle}
    holds = {kind: node_prices.hold(kind) for kind in kinds}
    kept: dict[str, int] = {}
    # Keep the nodes that became idle last: the others have been unused for longer.
    for node in sorted(idle, key=lambda node: -(node.idle_since or 0.0)):
        kind = node.instance_type.gpu_type
        if kind not in holds:
            # The settings no longer name this type, so no job is planned on it any more.
            yield node, 0.0
            continue
        worth, before = holds[kind], kept.get(kind, 0)
        kept[kind] = before + 1
        seconds = worth.seconds if before < worth.nodes else 0.0
        yield (
            node,
            seconds if rules.longest_hold_seconds is None else min(seconds, rules.longest_hold_seconds),
        )
