"""May stop running jobs: those that have cost what their own files allow (`max_usd`).

The plan looks again when the next running job reaches its limit. Cost: O(jobs).
"""

from __future__ import annotations

from dataclasses import replace

from boa_daemon.tick.caps import hold_back
from boa_daemon.tick.draft import Draft
from boa_daemon.tick.limits import Held
from boa_daemon.tick.state import NO_TERMS, ClusterState


def keep_job_limits(state: ClusterState, draft: Draft) -> Draft:
    """Return the draft in which jobs that have cost what their files allow stop and start nowhere."""
    ends = {
        name: job.terms.money_ends_at
        for name, job in state.jobs.items()
        if job.terms is not NO_TERMS
        and job.terms.money_ends_at is not None
        and job.slots
        and not job.is_stopping
    }
    if not ends:
        return draft
    over = frozenset(name for name, at in ends.items() if at <= state.now)
    plan = draft.plan.looked_at_by(*(at for name, at in ends.items() if name not in over))
    if over:
        plan = hold_back(state, plan, set(over), letting_go=over)
        held = (Held(what=f"job {name}", code="max-usd") for name in sorted(over))
        plan = replace(
            plan,
            stops=tuple(dict.fromkeys((*plan.stops, *sorted(over)))),
            held=(*plan.held, *held),
        )
    return draft if plan is draft.plan else replace(draft, plan=plan)
