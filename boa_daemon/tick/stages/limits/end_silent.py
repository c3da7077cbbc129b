"""May end running jobs at once: end jobs that make no step for longer than allowed.

Before its first step a job has the time in its file (`first_report_hours`), afterwards a multiple of its own
step time (`daemon/jobs/liveness.py`). Its end counts as a failure. The plan wakes up when the next job's time
is over. Cost: O(jobs).
"""

from __future__ import annotations

from boa_daemon.tick.facts.draft import Draft
from boa_daemon.tick.facts.needs import only_with
from boa_daemon.tick.facts.state import ClusterState
from boa_daemon.tick.money.caps import hold_back
from boa_daemon.tick.room.hung_jobs import hung_jobs
from policies.fast_dataclasses import replace


@only_with("terms")
def end_silent(state: ClusterState, draft: Draft) -> Draft:
    """Return the draft in which hung jobs end, and start nowhere now."""
    ends, wakes = hung_jobs(state)
    if not ends and not wakes:
        return draft
    plan = draft.plan.looked_at_by(*wakes)
    if ends:
        plan = hold_back(state, plan, set(ends), letting_go=frozenset(ends))
        plan = plan.with_jobs(plan.jobs.ending(ends))
    return replace(draft, plan=plan)
