"""May cut launches and change wait reasons: request no nodes while all their offers are closed.

An offer may be closed entirely, or only to orders of many nodes together. Cost: O(offers) for each wanted
type and size of order, and O(jobs) if one is closed.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite

from boa_daemon.tick.facts.draft import Draft
from boa_daemon.tick.facts.needs import only_with
from boa_daemon.tick.facts.offers import Cooldown, RefusalKind, closed_until
from boa_daemon.tick.facts.plan import Plan
from boa_daemon.tick.facts.reasons import WaitReason
from boa_daemon.tick.facts.state import ClusterState
from boa_daemon.tick.room.launches import cut_launches, without_gangs
from policies.fast_dataclasses import replace
from policies.model import JobId

_WAITS: Mapping[RefusalKind, WaitReason] = {
    "no-capacity": "out-of-stock",
    "busy": "out-of-stock",
    "quota": "quota",
    "denied": "denied",
    "throttled": "throttled",
    "bad-request": "bad-request",
    "no-price": "no-price",
}
"""The wait reason of a job while every offer of its type is closed."""


@only_with("market")
def check_stock(state: ClusterState, draft: Draft) -> Draft:
    """Return the draft without launches of closed types, and with a wake-up for when they open."""
    plan = draft.plan
    if not state.offers and not state.cooldowns:
        return draft
    wanted = {(name, size) for name in plan.launches for size in (1, *plan.gangs.get(name, ()))}
    if state.cooldowns or any(offer.nodes_left is not None for offer in state.offers):
        to_come = (job for job, reason in plan.jobs.waiting.items() if reason == "nodes-to-come")
        wanted |= {_order_of(draft, plan, job) for job in to_come}
    closed = {one: rest for one in sorted(wanted) if (rest := _closed(state, *one)) is not None}
    if closed:
        again = (rest.until for rest in closed.values() if isfinite(rest.until))
        plan = cut_launches(plan, {name: 0 for name, size in closed if size == 1})
        plan = without_gangs(plan, closed).looked_at_by(*again)
    if plan.jobs.waiting and not draft.has_fixed_fleet:
        why = _reasons(state, replace(draft, plan=plan), closed)
        if why:
            plan = plan.with_jobs(plan.jobs.waiting_for(why))
    return draft if plan is draft.plan else replace(draft, plan=plan)


def _reasons(
    state: ClusterState, draft: Draft, closed: Mapping[tuple[str, int], Cooldown]
) -> dict[JobId, WaitReason]:
    """Return the jobs whose type is closed, entirely or to as many nodes as they span."""
    plan, kinds = draft.plan, draft.rules.instance_types
    names = {kinds[plan.jobs.widths[job].gpu_type].name for job in plan.jobs.waiting}
    whole = {name: rest for name in names if (rest := _closed(state, name, 1)) is not None}
    why: dict[JobId, WaitReason] = {}
    for job in plan.jobs.waiting:
        kind = kinds[plan.jobs.widths[job].gpu_type]
        rest = whole.get(kind.name) or closed.get(_order_of(draft, plan, job))
        if rest is None and plan.jobs.waiting[job] == "nodes-to-come" and not _comes(state, plan, kind.name):
            # It counted on nodes that were to come for wider jobs.
            rest = next((rest for (name, _), rest in closed.items() if name == kind.name), None)
        if rest is not None:
            why[job] = _WAITS[rest.kind]
    return why


def _order_of(draft: Draft, plan: Plan, job: JobId) -> tuple[str, int]:
    """Return the instance type of a job's width, and how many nodes it spans."""
    width = plan.jobs.widths[job]
    machine = draft.rules.instance_types[width.gpu_type]
    return machine.name, -(-width.gpus // machine.gpus)


def _comes(state: ClusterState, plan: Plan, name: str) -> bool:
    """Return whether a node of a type boots or is asked for."""
    booting = (node.instance_type.name for node in state.passing_nodes if node.phase == "requested")
    return bool(plan.launches.get(name)) or name in booting


def _closed(state: ClusterState, name: str, together: int) -> Cooldown | None:
    """Return why no offer of a type accepts an order of this size now; None if one does."""
    return closed_until(name, state.offers, state.cooldowns, now=state.now, together=together)
