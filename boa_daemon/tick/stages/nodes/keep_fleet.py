"""May change launches and releases: hold the number of nodes that the policy sets, if it sets one.

Idle nodes beyond that number go back at once, the youngest first. Cost: O(nodes).
"""

from __future__ import annotations

from collections import Counter

from boa_daemon.tick.facts.draft import Draft
from boa_daemon.tick.facts.state import ClusterState
from boa_daemon.tick.room.launches import count_by_type
from policies.fast_dataclasses import replace
from policies.model import NodeId


def keep_fleet(state: ClusterState, draft: Draft) -> Draft:
    """Return the draft with as many nodes as the policy wants; unplaced jobs wait for GPUs of others."""
    wanted, plan = draft.allocation.nodes, draft.plan
    if wanted is None:
        return draft
    present = count_by_type(node for node in state.nodes.values() if node.ends_by is None)
    surplus = Counter({name: count - wanted.get(name, 0) for name, count in present.items()})
    used = plan.jobs.start_nodes
    releases: list[NodeId] = []
    for node in reversed(list(state.nodes.values())):
        name = node.instance_type.name
        if node.is_idle and node.id not in used and (node.ends_by is not None or surplus[name] > 0):
            surplus[name] -= node.ends_by is None
            releases.append(node.id)
    launches = {
        name: count - present.get(name, 0) for name, count in wanted.items() if count > present.get(name, 0)
    }
    return replace(
        draft,
        plan=replace(
            plan,
            launches=launches,
            releases=tuple(releases),
            jobs=plan.jobs.only_waiting(dict.fromkeys(draft.unplaced, "fleet-full")),
        ),
    )
