"""May change widths and slots of jobs that hold lent GPUs: return lent GPUs to waiting jobs.

GPUs are called back only if the waiting job then fits. Jobs that give the most are asked first. Cost: O(jobs
that wait x jobs that hold lent GPUs).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from boa_daemon.tick.facts.draft import Draft
from boa_daemon.tick.facts.state import ClusterState
from boa_daemon.tick.stages.places.place import place
from policies.model import JobId, Width


def call_back(state: ClusterState, draft: Draft) -> Draft:
    """Return the draft with lent GPUs given to waiting jobs that can then start at once."""
    if draft.room is None or not draft.lent or draft.has_fixed_fleet:
        return draft
    waiting = draft.unplaced
    if not waiting:
        return draft
    free = draft.room.after(draft.plan.jobs.slots).free_gpus()
    givers = _givers(state, draft.lent, waiting.values(), free)
    return place(state, draft.giving_back(givers)) if givers else draft


def _givers(
    state: ClusterState, lent: Mapping[JobId, Width], waiting: Iterable[Width], free: Mapping[str, int]
) -> dict[JobId, Width]:
    """Return the jobs that shrink to their planned widths, so that waiting jobs, in order, fit at once."""
    givers: dict[JobId, Width] = {}
    left = dict(free)
    gives = {job: len(state.jobs[job].slots) - planned.gpus for job, planned in lent.items()}
    order = sorted(gives, key=lambda job: -gives[job])
    for width in waiting:
        missing = width.gpus - left.get(width.gpu_type, 0)
        asked: list[JobId] = []
        for job in order:
            if missing <= 0:
                break
            if job not in givers and lent[job].gpu_type == width.gpu_type:
                asked.append(job)
                missing -= gives[job]
        if missing <= 0:
            left[width.gpu_type] = -missing
            givers |= {job: lent[job] for job in asked}
    return givers
