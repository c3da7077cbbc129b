"""May cut launches and add releases: drop nodes that the policy's hourly spending ceiling does not cover.

Nodes that no job may use go back at once. Cost: O(nodes) if there is a ceiling; nothing otherwise.
"""

from __future__ import annotations

from math import floor

from boa_daemon.tick.facts.draft import SOON_SECONDS, Draft
from boa_daemon.tick.facts.plan import Plan
from boa_daemon.tick.facts.reasons import WaitReason
from boa_daemon.tick.facts.state import ClusterState
from boa_daemon.tick.money.spending import SLACK, live_nodes, price_of_next
from boa_daemon.tick.room.launches import cut_launches, launches_left
from policies.fast_dataclasses import replace
from policies.model import JobId

LOOK_AGAIN_SECONDS = 300.0
"""Seconds to the next tick under a policy's ceiling, while jobs wait or anything is rented."""


def keep_spend_ceiling(state: ClusterState, draft: Draft) -> Draft:
    """Return the draft without nodes above the policy's ceiling, and with the jobs that wait for it."""
    plan, ceiling = draft.plan, draft.allocation.most_usd_per_hour
    if draft.left_out:
        plan = plan.with_jobs(plan.jobs.waiting_for(draft.left_out))
    if ceiling is not None:
        plan = _within(state, plan, ceiling, may_use=draft.allocation.above_ceiling == "use")
        unpaid = {job: width for job, width in draft.unpaid.items() if plan.jobs.waiting.get(job) == "budget"}
        plan = replace(plan, accrual=draft.allocation.accrual, jobs=replace(plan.jobs, unpaid=unpaid))
    if draft.set_aside:
        plan = plan.with_jobs(plan.jobs.waiting_for(draft.set_aside))
    return draft if plan is draft.plan else replace(draft, plan=plan)


def _within(state: ClusterState, plan: Plan, ceiling: float, *, may_use: bool) -> Plan:
    """Return the plan under a ceiling; above it idle nodes are given back unless jobs may use them."""
    present = sum(node.usd_per_hour for node in live_nodes(state))
    plan = _fewer_launches(state, plan, ceiling - present)
    if present > ceiling * SLACK and not may_use:
        plan = _idle_ones_released(state, plan, present - ceiling)
    if not plan.jobs.waiting and present == 0.0:
        return plan
    # A vacated node goes back as soon as it is empty.
    return plan.looked_at_by(state.now + (SOON_SECONDS if plan.jobs.stops else LOOK_AGAIN_SECONDS))


def _fewer_launches(state: ClusterState, plan: Plan, left: float) -> Plan:
    """Return the plan with the launches that the money left pays for, and with the reason of waiting jobs."""
    allowed: dict[str, int] = {}
    short: set[str] = set()
    for name, count in plan.launches.items():
        price = price_of_next(state, name, plan.instance_types[name].usd_per_hour)
        allowed[name] = max(floor(left * SLACK / price + 1e-9), 0)
        if allowed[name] < count:
            short.add(plan.instance_types[name].gpu_type)
        left -= launches_left(plan, name, allowed[name]) * price
    if not short:
        return plan
    held: dict[JobId, WaitReason] = {
        job: "budget"
        for job, reason in plan.jobs.waiting.items()
        if reason == "nodes-to-come" and job in plan.jobs.widths and plan.jobs.widths[job].gpu_type in short
    }
    return cut_launches(plan, allowed).with_jobs(plan.jobs.waiting_for(held))


def _idle_ones_released(state: ClusterState, plan: Plan, excess: float) -> Plan:
    """Return the plan with idle nodes given back until the excess is gone."""
    used = plan.jobs.start_nodes
    releases = list(plan.releases)
    excess -= sum(state.nodes[name].usd_per_hour for name in releases)
    for node in state.nodes.values():
        if excess > 1e-9 and node.is_idle and node.id not in used and node.id not in releases:
            releases.append(node.id)
            excess -= node.usd_per_hour
    return replace(plan, releases=tuple(releases))
