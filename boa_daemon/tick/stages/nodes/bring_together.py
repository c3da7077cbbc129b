"""May change slots: move a job spread over nodes to one node, if its messages cost more than the move.

Jobs are placed on as few nodes as they need (`policies.placement.lwf`). But a job that found no node with
enough room is on several although one would do, and sends through their links at every step. At most one such
job per tick moves, at its width, to the fullest node in use that has room for all of it. It moves if the
messages of its remaining work cost more than twice its restart, both in hours and weighed with the money that
they take (`NodePrices`): the measure by which `empty_nodes` moves jobs. The share of time that a job waits
for messages comes from the gate's measurements or from its class; without either, the job stays. It does not
move back: on one node it sends nothing.

Cost: O(jobs + GPUs of nodes with gaps) per tick.
"""

from __future__ import annotations

from boa_daemon.tick.facts.draft import Draft, with_plan
from boa_daemon.tick.facts.state import ClusterState, JobState, NodeState
from boa_daemon.tick.room.forecasts import job_hours_left
from policies.answer import NodePrices
from policies.model import GpuSlot, JobId

LEAST_RETURN = 2.0
"""A move must save this multiple of its cost, as for `empty_nodes`."""
MOST_EXPOSED = 0.95
"""The largest part of its time that a job is assumed to wait for messages."""


def bring_together(state: ClusterState, draft: Draft) -> Draft:
    """Return the draft with the spread-out job that gains most moved to one node, if that pays."""
    prices, plan = draft.allocation.node_prices, draft.plan
    if prices is None or not draft.may_improve or plan.launches:
        return draft
    if not prices.knows_messages and (state.gate is None or not state.gate.jobs):
        return draft
    touched = plan.jobs.start_nodes | draft.claimed
    found: dict[JobId, tuple[float, tuple[GpuSlot, ...]]] = {}
    for job_id, job in state.jobs.items():
        if len(job.slots) < 2 or _is_silent(state, job, prices):
            continue
        nodes = {slot.node for slot in job.slots}
        if len(nodes) < 2 or nodes & touched or _must_stay(draft, job_id, job):
            continue
        gain = _gain(state, job, prices)
        slots = _on_one_node(state, job, touched) if gain > 0.0 else None
        if slots is not None:
            found[job_id] = gain, slots
    if not found:
        return draft
    best = max(found, key=lambda job: found[job][0])
    return with_plan(draft, plan.with_jobs(plan.jobs.starting({best: found[best][1]})))


def _is_silent(state: ClusterState, job: JobState, prices: NodePrices) -> bool:
    """Return whether nothing shows that a job sends any messages, even over slow links."""
    if state.gate is not None and job.job.id in state.gate.jobs:
        return False
    return prices.hours_sending(job.job, share=None, gigabits=1.0, hours_left=1.0) == 0.0


def _must_stay(draft: Draft, job_id: JobId, job: JobState) -> bool:
    """Return whether the plan changes the job otherwise, or the job holds lent GPUs."""
    planned = draft.plan.jobs[job_id]
    return (
        job.is_stopping
        or job.job.width is None
        or planned.slots is not None
        or planned.stops
        or planned.waits_for is not None
        or job_id in draft.lent
        or job_id in draft.allocation.stay
        or planned.width != job.job.width
    )


def _gain(state: ClusterState, job: JobState, prices: NodePrices) -> float:
    """Return by how many hours the messages of a job's remaining work cost more than its move."""
    assert job.job.width is not None
    left = job_hours_left(state, job.job, prices)
    seen = None if state.gate is None else state.gate.jobs.get(job.job.id)
    exposed = None if seen is None else seen.exposed_fraction
    share = None if exposed is None else exposed / (1.0 - min(exposed, MOST_EXPOSED))
    gigabits = min(state.nodes[slot.node].instance_type.link_gigabits_per_second for slot in job.slots)
    saved = prices.hours_sending(job.job, share=share, gigabits=gigabits, hours_left=left)
    move = prices.hours_lost(job.job, job.job.width, hours_left=left, back_in_hours=0.0)
    return saved - LEAST_RETURN * move


def _on_one_node(state: ClusterState, job: JobState, touched: set[str]) -> tuple[GpuSlot, ...] | None:
    """Return the job's slots on the fullest node in use that has room for all of them; None if none has."""
    assert job.job.width is not None

    def room(node: NodeState) -> list[int]:
        free = (at for at, on in enumerate(node.gpus) if on is None or on == job.job.id)
        return node.instance_type.one_per_gpu(free)

    fitting = [
        node
        for node in state.nodes.values()
        if node.phase == "ready"
        and node.ends_by is None
        and node.idle_since is None
        and node.id not in touched
        and node.instance_type.gpu_type == job.job.width.gpu_type
        and len(room(node)) >= job.job.width.gpus
    ]
    if not fitting:
        return None
    best = min(fitting, key=lambda node: (len(room(node)), node.id))
    return tuple(GpuSlot(best.id, at) for at in room(best)[: job.job.width.gpus])
