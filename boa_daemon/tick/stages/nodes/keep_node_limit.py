"""May change widths, slots, launches and wait reasons: hold no more nodes than the site allows.

Before any job is turned down, all jobs with lent GPUs go back to their planned widths. Then jobs are admitted
in the order of service. No job overtakes the first that has no room, so a wide job is served as soon as
enough GPUs are free. Nothing is rented for that job before all of it fits, but idle nodes of its type are
kept for it, unless there are several zones and they may be in the wrong one. No other job waits for a job
that can never fit under the limit.

Cost: O(jobs + nodes), and the placer's cost on the nodes with room, if the limit binds.
"""

from __future__ import annotations

from collections.abc import Mapping

from boa_daemon.tick.facts.draft import Draft, shrinks
from boa_daemon.tick.facts.needs import only_with
from boa_daemon.tick.facts.placeable_nodes import PlaceableNodes
from boa_daemon.tick.facts.state import ClusterState, Rules
from boa_daemon.tick.room.launches import blank_nodes, coming_nodes, cut_launches, gangs_of, within_node_limit
from boa_daemon.tick.stages.nodes.rent import rent
from boa_daemon.tick.stages.places.place import place
from policies.fast_dataclasses import replace
from policies.model import JobId, Node, NodeId, Width


@only_with("limits")
def keep_node_limit(state: ClusterState, draft: Draft) -> Draft:
    """Return the draft with no more launches than the limit on nodes allows."""
    launches = draft.plan.launches
    allowed = within_node_limit(state, launches, draft.rules) if launches else launches
    if allowed == launches:
        return draft
    if draft.room is None or draft.has_fixed_fleet:
        none = dict.fromkeys(launches, 0)
        return replace(draft, plan=cut_launches(draft.plan, {**none, **allowed}))
    kept = {job: planned for job, planned in draft.lent.items() if job not in draft.changes.wishes}
    if kept:
        again = replace(
            draft.giving_back(kept),
            plan=replace(draft.plan, launches={}, gangs={}, jobs=draft.plan.jobs.only_waiting({})),
            lent={},
            claimed=frozenset(),
        )
        return keep_node_limit(state, rent(state, place(state, again)))
    return _admitted(state, draft, draft.room, allowed)


def _admitted(state: ClusterState, draft: Draft, room: PlaceableNodes, allowed: Mapping[str, int]) -> Draft:
    """Return the draft with GPUs and nodes for the admitted jobs; all others wait."""
    changes = draft.changes
    blank = {
        node.id: node
        for kind in draft.rules.instance_types.values()
        for node in blank_nodes(kind, 0, allowed.get(kind.name, 0))
    }
    extra = [*coming_nodes(state), *blank.values()]
    admitted, blocked = _who(state, changes.wishes, room, extra, draft.rules)
    fitting = room.place(admitted, extra=extra)
    used = {slot.node for taken in fitting.values() for slot in taken}
    kept = {
        node.id
        for node in state.nodes.values()
        if blocked is not None and node.instance_type.gpu_type == blocked.gpu_type and not room.has_zones
    }
    placed = replace(
        place(state, replace(draft, changes=replace(changes, wishes=admitted))),
        changes=changes,
        claimed=frozenset(used | kept),
        is_at_node_limit=True,
    )
    plan = replace(
        placed.plan,
        launches=_count(used, blank),
        gangs=gangs_of(fitting, {name: node.instance_type.name for name, node in blank.items()}),
        jobs=placed.plan.jobs.only_waiting(
            {job: "nodes-to-come" if job in fitting else "node-limit" for job in placed.unplaced}
        ),
    )
    return replace(placed, plan=plan)


def _who(
    state: ClusterState, wishes: Mapping[JobId, Width], room: PlaceableNodes, extra: list[Node], rules: Rules
) -> tuple[dict[JobId, Width], Width | None]:
    """Return the wishes to try, and the width of the first job that has to wait for room."""
    future = room.place(wishes, extra=extra)
    admitted: dict[JobId, Width] = {}
    blocked: Width | None = None
    for job, width in wishes.items():
        holds = state.jobs[job].job.width
        if blocked is None and holds is None and job not in future:
            most_gpus = (rules.max_nodes or 0) * rules.instance_types[width.gpu_type].whole_gpus
            blocked = width if width.gpus <= most_gpus else None
        if blocked is None or shrinks(holds, width):
            admitted[job] = width
    return admitted, blocked


def _count(used: set[NodeId], blank: Mapping[NodeId, Node]) -> dict[str, int]:
    """Return how many of the new nodes are used, by instance type."""
    launches: dict[str, int] = {}
    for name in sorted(used & blank.keys()):
        kind = blank[name].instance_type.name
        launches[kind] = launches.get(kind, 0) + 1
    return launches
