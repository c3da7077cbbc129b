"""The order in which jobs send on a shared link of a node, by the service that each job has left.

Shortest remaining service first (arXiv 2002.10105): a job that is nearly done sends before one that has long
to go, because the first soon leaves the link to the others. Service is the remaining work, in GPU-hours on
one reference GPU, over the job's weight. Only jobs that span nodes send; a link with one such job needs no
order. Cost: O(GPUs held).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from boa_daemon.tick.facts.state import ClusterState
from policies.model import GpuSlot, Job, JobId, NodeId
from policies.placement.lwf import senders


def rank(job: Job) -> tuple[float, float, JobId]:
    """Return the sort key: remaining service over weight, then arrival, then id; the lowest sends first."""
    return job.remaining_gpu_hours / job.weight, job.arrived_at, job.id


def link_order(
    state: ClusterState, starting: Mapping[JobId, Sequence[GpuSlot]]
) -> dict[NodeId, tuple[JobId, ...]]:
    """Return the order on every link that two or more jobs use, once the starting jobs are placed."""
    slots = {
        job_id: starting.get(job_id, job.slots)
        for job_id, job in state.jobs.items()
        if job.slots or job_id in starting
    }
    above = {name: node.tiers for name, node in state.nodes.items() if node.tiers}
    return {
        node: tuple(sorted(jobs, key=lambda job_id: rank(state.jobs[job_id].job)))
        for node, jobs in senders(slots, above).items()
        if len(jobs) > 1
    }
