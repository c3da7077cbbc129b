"""May change which jobs are to move, start or stop: find the jobs that do not hold their width.

A job that holds its width keeps the same GPUs, unless its node ends. Shrinking jobs come first: they always
fit where they are, and make room. Jobs that stopped to move and lost their next GPUs come before all others
that wait. The others follow in the order of service, and then in order of arrival. A job that moves to
another market keeps none of its GPUs, but holds them until the new nodes are there. Cost: O(jobs + nodes).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import attrgetter

from boa_daemon.tick.facts.claims import served_first
from boa_daemon.tick.facts.draft import NO_CHANGES, Changes, Draft, shrinks, with_plan
from boa_daemon.tick.facts.placeable_nodes import LatestRoom, PlaceableNodes
from boa_daemon.tick.facts.plan import Plan
from boa_daemon.tick.facts.state import ClusterState, Rules
from policies.fast_dataclasses import field_replacer
from policies.memo import LatestMemo
from policies.model import InstanceType, JobId, Width

LEAVE_SECONDS = 120.0
"""A job releases a node that ends within this time, even with no other place: its progress is then safe."""
_by_name: LatestMemo[Rules, Mapping[str, InstanceType]] = LatestMemo(attrgetter("by_name"))
_to_change = field_replacer(Plan, "jobs", "order", "order_rule", "instance_types")
_latest_room = LatestRoom()
_with_changes = field_replacer(Draft, "changes", "lent", "room", "plan")


def find_changes(state: ClusterState, draft: Draft) -> Draft:
    """Return the draft with the wanted changes, and a wake-up for when jobs must leave an ending node."""
    allocation, plan = draft.allocation, draft.plan
    changes = _changes(state, draft)
    if not changes.wishes and not changes.stops and not draft.has_fixed_fleet:
        if plan.jobs.widths is allocation.widths and not allocation.order:
            return draft
        return with_plan(draft, _with_answer(draft, plan.jobs.stops))
    lent = draft.lent
    if lent:
        lent = {job: planned for job, planned in lent.items() if job not in changes.wishes}
    room = _room(state, draft, changes, lent) if changes.wishes else None
    plan = _with_answer(draft, changes.stops)
    return _with_changes(draft, changes, lent, room, plan.looked_at_by(_alarm(state)))


def _with_answer(draft: Draft, stops: tuple[JobId, ...]) -> Plan:
    """Return the plan with the widths and the order of service that the allocation has by now, and stops."""
    plan, allocation = draft.plan, draft.allocation
    jobs = plan.jobs.placed(allocation, plan.jobs.slots, stops)
    return _to_change(plan, jobs, allocation.order, allocation.order_rule, _by_name(draft.rules))


def _changes(state: ClusterState, draft: Draft) -> Changes:
    widths, order = draft.allocation.widths, draft.allocation.order
    dying = draft.other_market | state.jobs_on_ending_nodes
    soon = [
        n for n in state.passing_nodes if n.ends_by is not None and n.ends_by - state.now <= LEAVE_SECONDS
    ]
    urgent = {job for node in soon for job in node.gpus}
    wishes: dict[JobId, Width] = {}
    shrinking: dict[JobId, Width] = {}
    stops: list[JobId] = []
    wanted, jobs = widths.get, state.jobs
    first = served_first(state) if state.claims else ()
    for job_id in dict.fromkeys((*first, *order, *jobs)) if order or first else jobs:
        job, width = jobs[job_id], wanted(job_id)
        holds = job.job.width
        # Compare by value only if the job holds GPUs: most of a queue holds none, and comparing takes time.
        is_same = width is holds or (holds is not None and width == holds)
        if is_same and job_id not in dying:
            continue
        if job.is_stopping:
            continue
        if width is None:
            if job.slots:
                stops.append(job_id)
        elif holds is not None and shrinks(holds, width) and job_id not in dying:
            shrinking[job_id] = width
        else:
            wishes[job_id] = width
    if not (wishes or shrinking or stops):
        return NO_CHANGES
    leaving = tuple(job for job in wishes if job in urgent) if urgent else ()
    return Changes(wishes=shrinking | wishes, stops=tuple(stops), leaving=leaving)


def _room(state: ClusterState, draft: Draft, changes: Changes, lent: Iterable[JobId]) -> PlaceableNodes:
    """Return where jobs may be placed: on free GPUs, and on GPUs of jobs that may move."""
    stops = frozenset(changes.stops).union(changes.leaving)
    left = {slot.node for job in draft.other_market for slot in state.jobs[job].slots}
    return _latest_room.of(
        state,
        leaving=[*changes.wishes, *stops, *lent],
        stopped=stops,
        closed=left,
        placer=draft.placer,
        compact=draft.allocation.compact,
    )


def _alarm(state: ClusterState) -> float | None:
    """Return when jobs next have to leave a node whose end is announced."""
    alarms = [node.ends_by - LEAVE_SECONDS for node in state.passing_nodes if node.ends_by is not None]
    return min([at for at in alarms if at > state.now], default=None)
