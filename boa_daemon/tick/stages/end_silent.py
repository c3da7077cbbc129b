"""May end running jobs at once: those that make no step for longer than they are given.

One that has not reported its first step is given what its file says (`first_report_hours`), one that made
steps so many of its own (`daemon/liveness.py`). Its end counts as a failure. The plan looks again when the
next one's time is over. Cost: O(jobs).
"""

from __future__ import annotations

from boa_daemon.tick.caps import hold_back
from boa_daemon.tick.draft import Draft
from boa_daemon.tick.hung_jobs import hung_jobs
from boa_daemon.tick.state import ClusterState
from policies.fast_dataclasses import replace


def end_silent(state: ClusterState, draft: Draft) -> Draft:
    """Return the draft in which jobs that hang end, and start nowhere now."""
    ends, wakes = hung_jobs(state)
    if not ends and not wakes:
        return draft
    plan = draft.plan.looked_at_by(*wakes)
    if ends:
        plan = replace(
            hold_back(state, plan, set(ends), letting_go=frozenset(ends)),
            stops=tuple(job for job in plan.stops if job not in ends),
            ends=ends,
        )
    return replace(draft, plan=plan)
