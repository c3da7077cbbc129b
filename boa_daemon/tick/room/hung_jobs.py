"""Find running jobs that hang; used by the stage `end_silent`, and when no tick can be done."""

from __future__ import annotations

from boa_daemon.tick.facts.draft import SOON_SECONDS
from boa_daemon.tick.facts.state import ClusterState
from policies.model import JobId


def hung_jobs(state: ClusterState) -> tuple[dict[JobId, str], list[float]]:
    """Return why each hung job is to be ended, and the instants at which to check others."""
    ends: dict[JobId, str] = {}
    wakes: list[float] = []
    for name, job in state.judged_jobs.items():
        for silence in job.terms.silences:
            if silence.ends_at > state.now:
                wakes.append(silence.ends_at)
            elif silence.looks_left:
                wakes.append(state.now + SOON_SECONDS)
            else:
                ends.setdefault(name, silence.sentence(state.now))
    return ends, wakes
