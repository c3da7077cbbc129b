"""Claims: a job between its stop and its start stands before every later arrival, on the GPUs it was told.

A move is a stop followed by a start, and a stop takes up to the job's whole grace. From the order to stop
until the start, the job claims the width and the GPUs that it was told to move to (`ClusterState.claims`).
The free GPUs among them are shown to all stages as if the job held them already: no arrival takes them, and
their nodes are not idle. While other jobs have yet to leave some of its GPUs, it is shown as stopping.
Once all are free, it is shown as running on them: caps and rules against flapping treat it as they treat any
running job. If the plan then leaves it alone, it starts there; if the plan changes it, it starts at its new
place without a second stop.

A claim whose GPUs are gone, as after an interruption, reserves nothing, but its job is served first.

Cost: O(nodes + jobs) per tick if there are claims; nothing otherwise.
"""

from __future__ import annotations

from collections.abc import Container

from boa_daemon.tick.facts.plan import Plan
from boa_daemon.tick.facts.state import ClusterState, NodeState
from policies.fast_dataclasses import replace
from policies.model import GpuSlot, JobId, Width


def with_claims_held(state: ClusterState, aside: Container[JobId]) -> ClusterState:
    """Return the state in which jobs hold what they claim; jobs in `aside` claim nothing."""
    if not state.claims:
        return state
    nodes, jobs = dict(state.nodes), dict(state.jobs)
    for name, claim in state.claims.items():
        seen = jobs.get(name)
        if seen is None or name in aside or (seen.slots and not seen.is_stopping):
            continue
        if seen.terms.ordered_gpus not in (None, claim.width.gpus):
            continue
        free = [slot for slot in claim.slots if _is_free(nodes.get(slot.node), slot)]
        to_come = sum(_is_being_left(state, slot) for slot in claim.slots)
        is_whole = len(free) + to_come == len(claim.slots)
        if not claim.slots or not (is_whole or seen.slots):
            continue
        for slot in free:
            node = nodes[slot.node]
            gpus = (*node.gpus[: slot.index], name, *node.gpus[slot.index + 1 :])
            nodes[slot.node] = replace(node, gpus=gpus, idle_since=None)
        if not seen.slots:
            jobs[name] = replace(
                seen,
                job=replace(seen.job, width=claim.width),
                slots=tuple(free),
                is_stopping=to_come > 0,
            )
    return replace(state, nodes=nodes, jobs=jobs)


def _is_free(node: NodeState | None, slot: GpuSlot) -> bool:
    """Return whether a job can start on a GPU now."""
    return (
        node is not None
        and node.phase == "ready"
        and node.ends_by is None
        and slot.index < len(node.gpus)
        and node.gpus[slot.index] is None
    )


def _is_being_left(state: ClusterState, slot: GpuSlot) -> bool:
    """Return whether a job that stops holds a GPU."""
    node = state.nodes.get(slot.node)
    if node is None or node.phase != "ready" or node.ends_by is not None or slot.index >= len(node.gpus):
        return False
    holder = state.all_jobs.get(node.gpus[slot.index] or "")
    return holder is not None and holder.is_stopping


def served_first(state: ClusterState) -> tuple[JobId, ...]:
    """Return the jobs that stopped without a fault of theirs, and have no GPUs to go to."""
    present = ((name, state.jobs.get(name)) for name in state.claims)
    return tuple(name for name, job in present if job is not None and job.job.width is None)


def with_claims_started(state: ClusterState, seen: ClusterState, plan: Plan) -> Plan:
    """Return the plan in which jobs shown as running on what they claim start there.

    `state` is the observed state, `seen` the one of `with_claims_held`, which the plan was made for.
    """
    if seen is state:
        return plan
    shown = [name for name in state.claims if name in state.jobs and _is_shown(state, seen, name)]
    if not shown:
        return plan
    slots: dict[JobId, tuple[GpuSlot, ...]] = {}
    started: dict[JobId, Width | None] = {}
    intended = dict(plan.jobs.intended)
    leaving, jobs = {*plan.releases, *plan.forced}, plan.jobs
    for name in shown:
        held = seen.jobs[name]
        planned = jobs[name]
        if planned.stops or planned.slots is not None or any(slot.node in leaving for slot in held.slots):
            continue
        width = held.job.width
        assert width is not None
        if planned.width != width:
            started[name] = width
            if planned.width is not None:
                intended[name] = planned.width
        slots[name] = held.slots
    reasons = jobs.reasons

    def why(job: JobId) -> str:
        return f"it finishes the move that it was told to make; {reasons.get(job, 'by the policy')}"

    # A job that is shown as running holds nothing yet that it could be told to leave.
    stops = tuple(job for job in jobs.stops if job not in shown)
    jobs = jobs.with_widths(started, why).moving(jobs.slots, stops).starting(slots)
    return plan.with_jobs(replace(jobs, intended=intended))


def _is_shown(state: ClusterState, seen: ClusterState, name: JobId) -> bool:
    """Return whether a job that waits is shown as running."""
    return not state.jobs[name].slots and bool(seen.jobs[name].slots) and not seen.jobs[name].is_stopping
