"""May cut launches, and change what jobs wait for: no type is asked for while every offer of it is closed.

Cost: O(offers) for each type that is wanted, and O(jobs) where one is closed.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite

from boa_daemon.tick.draft import Draft
from boa_daemon.tick.launches import cut
from boa_daemon.tick.offers import Cooldown, RefusalKind, closed_until
from boa_daemon.tick.state import ClusterState, WaitReason
from policies.quick import replace

_WAITS: Mapping[RefusalKind, WaitReason] = {
    "no-capacity": "out-of-stock",
    "busy": "out-of-stock",
    "quota": "quota",
    "denied": "denied",
    "throttled": "throttled",
    "bad-request": "bad-request",
    "no-price": "no-price",
}
"""What a job waits for while every offer of its type is closed."""


def check_stock(state: ClusterState, draft: Draft) -> Draft:
    """Return the draft with launches of types that may be asked for now, and a wake-up for the others."""
    plan = draft.plan
    if not state.offers and not state.cooldowns:
        return draft
    closed = {name: rest for name in plan.launches if (rest := _closed(state, name)) is not None}
    if closed:
        again = (rest.until for rest in closed.values() if isfinite(rest.until))
        plan = cut(plan, dict.fromkeys(closed, 0)).looked_at_by(*again)
    if plan.waiting and not draft.has_fixed_fleet:
        kinds = draft.rules.instance_types
        wanted = {plan.widths[job].gpu_type for job in plan.waiting}
        why = {kind: _WAITS[rest.kind] for kind in wanted if (rest := _closed(state, kinds[kind].name))}
        if why:
            waiting = {
                job: why.get(plan.widths[job].gpu_type, reason) for job, reason in plan.waiting.items()
            }
            plan = replace(plan, waiting=waiting)
    return draft if plan is draft.plan else replace(draft, plan=plan)


def _closed(state: ClusterState, name: str) -> Cooldown | None:
    """Return why no offer of an instance type may be asked for now; None where one may."""
    return closed_until(name, state.offers, state.cooldowns, now=state.now)
