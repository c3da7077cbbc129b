"""May stop running jobs: stop jobs that reached the cost or run time in their files.

The limits are `max_usd` and `max_hours`. The plan wakes up when the next running job reaches its limit. Cost:
O(jobs).
"""

from __future__ import annotations

from math import inf

from boa_daemon.tick.facts.draft import Draft
from boa_daemon.tick.facts.limits import Held
from boa_daemon.tick.facts.needs import only_with
from boa_daemon.tick.facts.reasons import HeldCode
from boa_daemon.tick.facts.state import ClusterState
from boa_daemon.tick.money.caps import hold_back
from policies.fast_dataclasses import replace
from policies.model import JobId

_NEVER: tuple[float, HeldCode] = (inf, "max-hours")


@only_with("terms")
def keep_job_limits(state: ClusterState, draft: Draft) -> Draft:
    """Return the draft in which jobs at a limit of their files stop and start nowhere."""
    ends: dict[JobId, tuple[float, HeldCode]] = {}
    for name, job in state.judged_jobs.items():
        terms = job.terms
        if not job.slots or job.is_stopping:
            continue
        if terms.money_ends_at is not None:
            ends[name] = (terms.money_ends_at, "max-usd")
        if terms.hours_end_at is not None and terms.hours_end_at < ends.get(name, _NEVER)[0]:
            ends[name] = (terms.hours_end_at, "max-hours")
    if not ends:
        return draft
    over = frozenset(name for name, (at, _) in ends.items() if at <= state.now)
    plan = draft.plan.looked_at_by(*(at for name, (at, _) in ends.items() if name not in over))
    if over:
        plan = hold_back(state, plan, set(over), letting_go=over)
        held = (Held(what=f"job {name}", code=ends[name][1]) for name in sorted(over))
        plan = replace(
            plan,
            jobs=plan.jobs.stopping(sorted(over)),
            held=(*plan.held, *held),
        )
    return draft if plan is draft.plan else replace(draft, plan=plan)
