"""What would hold a waiting job next if the limit that it waits for were gone.

A tick names the first limit that stops a job. Where a second one would stop it as well, whoever raises the
first one gains nothing. So the same decision is made again without the limits that are named so far, until
the job waits for none. Cost: a decision for each limit, kept for all jobs of the tick.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from boa_daemon.tick.facts.offers import RefusalKind
from boa_daemon.tick.facts.plan import Plan
from boa_daemon.tick.facts.reasons import WaitReason
from boa_daemon.tick.facts.room_caps import NARROWS, RoomCap
from boa_daemon.tick.facts.state import ClusterState, Rules
from policies.fast_dataclasses import replace
from policies.model import JobId

Limits: TypeAlias = frozenset[WaitReason]
_Site: TypeAlias = tuple[ClusterState, Rules]


def _without_cap(**change: None) -> Callable[[ClusterState, Rules], _Site]:
    def lift(state: ClusterState, rules: Rules) -> _Site:
        if rules.caps is None:
            return state, rules
        changed: dict[str, Any] = {**change}
        return state, replace(rules, caps=replace(rules.caps, **changed))

    return lift


def _without_refusal(kind: RefusalKind) -> Callable[[ClusterState, Rules], _Site]:
    def lift(state: ClusterState, rules: Rules) -> _Site:
        rests = {scope: rest for scope, rest in state.cooldowns.items() if rest.kind != kind}
        return replace(state, cooldowns=rests), rules

    return lift


def _without_node_limit(state: ClusterState, rules: Rules) -> _Site:
    caps = None if rules.caps is None else replace(rules.caps, instances=None)
    return state, replace(rules, max_nodes=None, caps=caps)


def _without_quota(state: ClusterState, rules: Rules) -> _Site:
    state, rules = _without_refusal("quota")(state, rules)
    return replace(state, offers=tuple(replace(offer, nodes_left=None) for offer in state.offers)), rules


def _with_prices(state: ClusterState, rules: Rules) -> _Site:
    prices = {kind.name: kind.usd_per_hour for kind in rules.instance_types.values()}
    offers = (
        replace(offer, usd_per_hour=prices.get(offer.instance_type)) if offer.usd_per_hour is None else offer
        for offer in state.offers
    )
    return replace(state, offers=tuple(offers)), rules


def _without_user_caps(state: ClusterState, rules: Rules) -> _Site:
    return replace(state, users={}), rules


def _without_team(**change: None) -> Callable[[ClusterState, Rules], _Site]:
    def lift(state: ClusterState, rules: Rules) -> _Site:
        changed: dict[str, Any] = {**change}
        teams = {team: replace(money, **changed) for team, money in state.teams.items()}
        return replace(state, teams=teams), rules

    return lift


_LIFTS: Mapping[WaitReason, Callable[[ClusterState, Rules], _Site]] = MappingProxyType(
    {
        "cap-day": _without_cap(usd_per_day=None),
        "cap-month": _without_cap(usd_per_month=None),
        "cap-hour": _without_cap(usd_per_hour=None),
        "cap-instances": _without_node_limit,
        "node-limit": _without_node_limit,
        "quota": _without_quota,
        "out-of-stock": _without_refusal("no-capacity"),
        "denied": _without_refusal("denied"),
        "throttled": _without_refusal("throttled"),
        "bad-request": _without_refusal("bad-request"),
        "no-price": _with_prices,
        "user-day-cap": _without_user_caps,
        "team-day-cap": _without_team(day_cap_usd=None),
        "team-month-cap": _without_team(month_cap_usd=None),
        "team-share": _without_team(ahead_usd=None),
    }
)
"""How the state and the rules look without a limit that a job may wait for."""


def site_without(state: ClusterState, rules: Rules, limits: Limits) -> _Site:
    """Return the state and the rules without some limits."""
    for limit in sorted(limits):
        state, rules = _LIFTS[limit](state, rules)
    return state, rules


def narrowed_next(job: JobId, plan: Plan, plan_without: Callable[[Limits], Plan]) -> tuple[str, ...]:
    """Return the names of the limits that would narrow a job without the one that its width is told by.

    It is empty if no limit narrows it, or if it would be wider without that one.
    """
    named, found = list[WaitReason](), list[str]()
    first, seen = plan.jobs.widths.get(job), plan
    while first is not None and (cap := _narrowing(job, seen)) is not None and cap.code not in named:
        if named:
            found.append(cap.name)
        if cap.code not in _LIFTS:
            break
        named.append(cap.code)
        seen = plan_without(frozenset(named))
        width = seen.jobs.widths.get(job)
        if width is None or width.gpu_type != first.gpu_type or width.gpus > first.gpus:
            break
    return tuple(found)


def _narrowing(job: JobId, plan: Plan) -> RoomCap | None:
    """Return the limit that the reason of a job's width names."""
    why = plan.jobs.reasons.get(job, "")
    return next((cap for cap in plan.room_caps if f"{cap.name} {NARROWS}" in why), None)


def held_next(job: JobId, plan: Plan, plan_without: Callable[[Limits], Plan]) -> tuple[WaitReason, ...]:
    """Return what a job would wait for, one after another, without the limits that come before it.

    It is empty if the job waits for no limit, or if it would wait for none without that one.
    """
    named, found = list[WaitReason](), list[WaitReason]()
    code = plan.jobs.waiting.get(job)
    while code is not None and code in _LIFTS and code not in named:
        named.append(code)
        code = plan_without(frozenset(named)).jobs.waiting.get(job)
        if code is not None and (code in _LIFTS or code == "budget") and code not in named:
            found.append(code)
    return tuple(found)
