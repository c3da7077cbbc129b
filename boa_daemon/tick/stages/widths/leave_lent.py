"""May change widths of jobs that hold more GPUs than planned: they keep lent GPUs until needed.

A job keeps lent GPUs only on nodes where some job also holds planned GPUs, so no node is held for lent GPUs
alone. A job that has to move takes no lent GPUs with it, for which a node might be rented elsewhere.
Cost: O(jobs).
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from boa_daemon.tick.facts.draft import Draft
from boa_daemon.tick.facts.plan import BY_POLICY, lent_reason, stay_reason
from boa_daemon.tick.facts.state import ClusterState
from policies.answer import Allocation
from policies.fast_dataclasses import replace
from policies.model import JobId, NodeId, Width


def leave_lent(state: ClusterState, draft: Draft) -> Draft:
    """Return the draft in which jobs keep their lent GPUs."""
    allocation = draft.allocation
    if allocation.node_prices is None:
        return draft
    lent = _lent(state, allocation, moving=draft.other_market | state.jobs_on_ending_nodes)
    if not lent:
        return draft
    held = {job: state.jobs[job].job.width for job in lent}
    kept = {job: width for job, width in held.items() if width is not None}
    reasons, planned_widths = allocation.reasons, allocation.widths

    def why(job: JobId) -> str:
        if job in allocation.stay:
            return stay_reason(kept[job], planned_widths[job])
        why = f"it keeps the {kept[job]} that it holds until another job needs the GPUs"
        return lent_reason(why, planned_widths[job], reasons.get(job, BY_POLICY))

    return replace(
        draft,
        allocation=allocation.with_widths(kept, why),
        planned_reasons=reasons,
        lent={job: planned for job, planned in lent.items() if job not in allocation.stay},
    )


def _lent(state: ClusterState, allocation: Allocation, *, moving: AbstractSet[JobId]) -> dict[JobId, Width]:
    """Return the planned widths of the jobs that hold more and may keep it until it is needed."""
    found: dict[JobId, Width] = {}
    for job_id, planned in allocation.widths.items():
        held = state.jobs[job_id].job.width
        if held is None or held is planned or held.gpu_type != planned.gpu_type:
            continue
        if held.gpus > planned.gpus and job_id not in allocation.exact and job_id not in moving:
            found[job_id] = planned
    if not found:
        return found
    beyond: dict[NodeId, list[JobId]] = {}
    for job_id, planned in found.items():
        for slot in state.jobs[job_id].slots[planned.gpus :]:
            beyond.setdefault(slot.node, []).append(job_id)
    for name, jobs in beyond.items():
        node = state.nodes.get(name)
        if node is None or len(node.gpus) - node.free_gpus == len(jobs):
            for job_id in jobs:
                found.pop(job_id, None)
    return found
