"""May take waiting jobs out of the decision: those that are not to start yet.

They rest after a failure, their file names an instant (`not_before`) or another job (`after`), or their
user's money is spent. No policy is asked about them, and no later stage gives them GPUs. Jobs that run go on.
The plan says why they wait, and looks again when a rest is over or a new day (UTC) begins. Cost: O(jobs).
"""

from __future__ import annotations

from dataclasses import replace

from boa_daemon.tick.draft import Draft
from boa_daemon.tick.limits import Held, day_of
from boa_daemon.tick.state import ClusterState, WaitReason
from policies.model import JobId


def set_aside(state: ClusterState, draft: Draft) -> Draft:
    """Return the draft that knows which waiting jobs have no part in this decision, and why."""
    spent = {name for name, money in state.users.items() if money.is_spent}
    aside: dict[JobId, WaitReason] = {}
    for name, job in state.jobs.items():
        if job.slots:
            continue
        if job.waits_for is not None:
            aside[name] = "after"
        elif job.rests_until is not None and job.rests_until > state.now:
            aside[name] = "resting" if job.failures else "not-before"
        elif spent and job.user in spent:
            aside[name] = "user-day-cap"
    if not aside:
        return draft
    rests = (state.jobs[name].rests_until for name, why in aside.items() if why in ("resting", "not-before"))
    broke = sorted({state.jobs[name].user for name, why in aside.items() if why == "user-day-cap"})
    held = tuple(
        Held(
            what=f"user {name}",
            code="user-day-cap",
            numbers={"spent_usd": state.users[name].spent_usd, "cap_usd": state.users[name].cap_usd},
        )
        for name in broke
    )
    plan = replace(draft.plan, held=held).looked_at_by(*rests, day_of(state.now).ends_at if broke else None)
    return replace(draft, set_aside=aside, plan=plan)
