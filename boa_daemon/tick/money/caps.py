"""Hard caps on a plan: nothing is launched or kept that could break one.

For the day and the month (UTC) the ledger is projected: final bills, and every node that may exist, be it
running, booting, ending or only requested, up to the latest instant at which it may cost:

    given back now     now + refusals + one tick + the shutdown (and the minimum billing in any case)
    jobs told to stop  a checkpoint and one tick more
    kept               one tick more again: the next tick can still stop it in time
    not listed yet     as kept, counted from the latest instant at which a listing shows it

A tick counts as long as a late one (`Caps.gap_seconds`). A kept node costs its current price; on the spot
market up to its type's price, the most that a request without a limit pays. If that could break a cap, nodes
are given back until none can break: first idle nodes, then booting ones, then those whose jobs lose least per
dollar, which are the jobs with the most work left per weight (Smith's rule: delay hurts short and heavy jobs
most). Their jobs are told to stop and the node ends once they have; if there is no time left for that, the
node ends under them. New nodes are allowed only if everything could run for `Caps.launch_seconds`.

The purses of teams are checked first, job by job (`boa_daemon.tick.money.team_caps`).

Cost: O(nodes), and O(nodes log nodes) if something is given back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from math import floor, inf

from boa_daemon.tick.facts.limits import Caps, Held
from boa_daemon.tick.facts.offers import most_usd_per_hour, whole_gangs
from boa_daemon.tick.facts.plan import Plan
from boa_daemon.tick.facts.reasons import CapCode, WaitReason
from boa_daemon.tick.facts.state import ClusterState, JobState, NodeState, Rules
from boa_daemon.tick.money.cap_projection import CapProjection
from boa_daemon.tick.money.team_caps import judge_teams, with_verdict
from boa_daemon.tick.room.launches import cut_launches, is_coming, launches_left
from boa_daemon.tick.room.service_order import waiting_in_order
from policies.fast_dataclasses import replace
from policies.model import JobId, NodeId

_Rank = tuple[int, float, float, NodeId]
_IDLE, _EMPTYING, _BOOTING, _WORKING = range(4)


def within_instances(rules: Rules) -> Rules:
    """Return the rules with the limit on nodes at or below the hard cap on instances."""
    most = None if rules.caps is None else rules.caps.instances
    if most is None or (rules.max_nodes is not None and rules.max_nodes <= most):
        return rules
    return replace(rules, max_nodes=most)


def within_caps(state: ClusterState, plan: Plan, rules: Rules) -> Plan:
    """Return the plan without anything that could break a cap, and with what must end to keep it."""
    if rules.caps is None:
        return plan
    if state.teams:
        plan = _within_teams(state, plan, rules.caps)
    projection = CapProjection(state, rules.caps, ending=plan.releases)
    code = projection.broken
    if code is None:
        again = projection.dry_at
        plan = _fewer_launches(state, plan, projection)
    else:
        plan = _wound_down(state, plan, projection, code)
        again = projection.dry_at
    opens_at = projection.opens_at({held.code for held in plan.held}, is_moving=bool(plan.launches))
    return plan.looked_at_by(again, opens_at)


def _within_teams(state: ClusterState, plan: Plan, caps: Caps) -> Plan:
    """Return the plan in which no job starts or runs on that could break a cap of its team."""
    verdict = judge_teams(state, plan, caps)
    if not (verdict.stops or verdict.waits or verdict.forced):
        return plan
    plan = hold_back(state, plan, {*verdict.stops, *verdict.waits}, letting_go=frozenset(verdict.stops))
    return with_verdict(plan, verdict)


def hold_back(
    state: ClusterState, plan: Plan, jobs: set[JobId], *, letting_go: frozenset[JobId] = frozenset()
) -> Plan:
    """Return the plan in which the given jobs start nowhere now.

    A running one keeps its GPUs, unless it is `letting_go`; jobs that were to get those GPUs are held back
    too.
    """
    starting = plan.jobs.slots
    takers = {slot: job for job, taken in starting.items() for slot in taken}
    queue, cut = sorted(jobs & starting.keys()), set[JobId]()
    while queue:
        job = queue.pop()
        if job in cut:
            continue
        cut.add(job)
        if job not in letting_go:
            queue += [takers[slot] for slot in state.jobs[job].slots if slot in takers]
    return plan.with_jobs(plan.jobs.held_back(cut))


def _wound_down(state: ClusterState, plan: Plan, projection: CapProjection, code: CapCode) -> Plan:
    """Return the plan with nodes given back until the others break no cap, and without launches."""
    ended, emptied, stopped = _give_back(state, plan, projection)
    forced = _forced(emptied, projection)
    gone = {*ended, *emptied}
    touched = {job for job, taken in plan.jobs.slots.items() if any(slot.node in gone for slot in taken)}
    refused = {plan.instance_types[name].gpu_type for name in plan.launches}
    widths, waiting = plan.jobs.widths, plan.jobs.waiting
    late = {job for job, width in widths.items() if width.gpu_type in refused and job in waiting}
    cut = hold_back(state, plan, touched | stopped, letting_go=frozenset(stopped))
    jobs = state.all_jobs
    held = (
        *(
            projection.held(f"job {job}", code, usd_per_hour=_price(state, jobs[job]))
            for job in sorted(stopped)
        ),
        *(
            projection.held(f"node {node}", code, usd_per_hour=state.nodes[node].usd_per_hour)
            for node in sorted(gone)
        ),
        *(
            projection.held(f"{n} {name}", code, usd_per_hour=_price_of_next(state, plan, name))
            for name, n in plan.launches.items()
        ),
    )
    stops = [job for job in sorted(stopped) if not jobs[job].is_stopping]
    waits = dict.fromkeys((job for job in widths if job in touched | stopped | late), code)
    return replace(
        cut,
        releases=tuple(dict.fromkeys((*plan.releases, *ended))),
        forced=tuple(dict.fromkeys((*plan.forced, *forced))),
        launches={},
        gangs={},
        jobs=cut.jobs.stopping(stops).waiting_for(waits),
        held=(*plan.held, *held),
    )


def _give_back(
    state: ClusterState, plan: Plan, projection: CapProjection
) -> tuple[list[NodeId], list[NodeId], set[JobId]]:
    """Return the nodes to end now, those to end once their jobs have stopped, and these jobs."""
    stopped: set[JobId] = set()
    phases = ("ready", "requested", "stopped")
    kept = [node for node in state.nodes.values() if node.is_listed and node.phase in phases]
    present = state.all_jobs
    queue = [_rank(present, node, stopped) for node in kept if node.id not in plan.releases]
    heapify(queue)
    ended: list[NodeId] = []
    emptied: list[NodeId] = []
    seen: set[NodeId] = set()
    while queue and projection.broken:
        name = heappop(queue)[-1]
        if name in seen:
            continue
        seen.add(name)
        jobs = {job for job in state.nodes[name].gpus if job is not None}
        if not jobs:
            ended.append(name)
            projection.end(name)
            continue
        emptied.append(name)
        projection.stop(name)
        for job in jobs - stopped:
            stopped.add(job)
            slots = present[job].slots if job in present else ()
            others = {slot.node for slot in slots} - seen
            for other in others & state.nodes.keys():
                heappush(queue, _rank(present, state.nodes[other], stopped))
    return ended, emptied, stopped & present.keys()


def _rank(present: Mapping[JobId, JobState], node: NodeState, stopped: set[JobId]) -> _Rank:
    """Return a node's place in the order of giving back: what is lost, then the youngest first."""
    jobs = {job for job in node.gpus if job is not None}
    if not jobs:
        return (_BOOTING if node.phase == "requested" else _IDLE, 0.0, -node.launched_at, node.id)
    staying = [present[job].job for job in jobs - stopped if job in present and not present[job].is_stopping]
    if not staying:
        return (_EMPTYING, 0.0, -node.launched_at, node.id)
    loss = sum(
        job.weight / job.remaining_gpu_hours if job.remaining_gpu_hours > 0 else inf for job in staying
    )
    return (_WORKING, loss, -node.launched_at, node.id)


def _forced(emptied: list[NodeId], projection: CapProjection) -> tuple[NodeId, ...]:
    """Return the nodes that cannot wait for their jobs, because the next tick would be too late."""
    for name in emptied:
        projection.wait(name)
    forced: list[NodeId] = []
    for name in emptied:
        if not projection.is_overspent:
            break
        projection.end(name)
        forced.append(name)
    return tuple(forced)


def _fewer_launches(state: ClusterState, plan: Plan, projection: CapProjection) -> Plan:
    """Return the plan with as many of its launches as every cap leaves room for."""
    if not plan.launches:
        return plan
    projection.look_ahead()
    allowed: dict[str, int] = {}
    held: list[Held] = []
    codes: dict[str, CapCode] = {}
    for name, count in plan.launches.items():
        price = _price_of_next(state, plan, name)
        fits, code = projection.room_for(price)
        allowed[name] = count if fits >= count else floor(fits)
        left = launches_left(plan, name, allowed[name])
        if left < count:
            gpu_type = plan.instance_types[name].gpu_type
            codes[gpu_type] = code
        if left:
            # What is said of the cap counts the nodes that are launched.
            projection.add(price, left)
        if left < count:
            together = _least_cut(plan, name, allowed[name])
            held.append(projection.held(f"{count - left} {name}", code, usd_per_hour=together * price))
    if not held:
        return plan
    cut = cut_launches(plan, allowed)
    jobs = plan.jobs.waiting_for(_waiting(state, cut, codes))
    return replace(cut, jobs=jobs, held=(*plan.held, *held))


def _least_cut(plan: Plan, name: str, allowed: int) -> int:
    """Return how many nodes of a type that is cut would have to be launched together at least."""
    gangs = plan.gangs.get(name, ())
    kept = whole_gangs(gangs, allowed)
    single = plan.launches[name] - sum(gangs) > launches_left(plan, name, allowed) - sum(kept)
    return 1 if single else min((Counter(gangs) - Counter(kept)).elements(), default=1)


def _price_of_next(state: ClusterState, plan: Plan, name: str) -> float:
    """Return the most that the next node of a type may cost per hour."""
    return most_usd_per_hour(plan.instance_types[name], state.offers)


def _price(state: ClusterState, job: JobState) -> float:
    """Return the cost per hour of the nodes that a job is on."""
    names = {slot.node for slot in job.slots} & state.nodes.keys()
    return sum(state.nodes[name].usd_per_hour for name in names)


def _waiting(state: ClusterState, cut: Plan, codes: Mapping[str, CapCode]) -> Mapping[JobId, WaitReason]:
    """Return what jobs wait for whose GPU types lost launches; the first ones have the nodes that come."""
    found: dict[JobId, WaitReason] = {}
    left = {kind: _coming_gpus(state, cut, kind) for kind in codes}
    waiting = cut.jobs.waiting
    in_order = dict.fromkeys((*waiting_in_order(state, cut), *cut.order, *waiting))
    for job in in_order:
        code, width = waiting.get(job), cut.jobs.widths.get(job)
        if code is None or width is None or width.gpu_type not in codes:
            continue
        if code == "nodes-to-come" and width.gpus <= left[width.gpu_type]:
            left[width.gpu_type] -= width.gpus
        else:
            found[job] = codes[width.gpu_type]
    return found


def _coming_gpus(state: ClusterState, cut: Plan, gpu_type: str) -> int:
    """Return the GPUs of a type on nodes that boot or are launched."""
    booting = (node for node in state.nodes.values() if is_coming(node))
    names = {name: kind.gpus for name, kind in cut.instance_types.items() if kind.gpu_type == gpu_type}
    gpus = sum(names.get(node.instance_type.name, 0) for node in booting)
    return gpus + sum(names.get(name, 0) * count for name, count in cut.launches.items())
