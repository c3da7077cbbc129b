"""Less room than planned: at the cap on nodes, widths are cut by what that costs, and nobody is left out.

Where the planned widths of all who are present take more than `max_nodes`, `policies.online.narrowing` cuts
the widths whose loss is least first, down to the narrowest. What running jobs hold beyond that is lent: they
let go of it when somebody waits, not before. Jobs for which there is no room even at the narrowest wait in
order of arrival. A job grows again where that pays for the restart.

Cost: O(jobs) per tick where there is a cap; O(widths log widths) where it binds.
"""

from __future__ import annotations

from dataclasses import replace

from boa_daemon.tick.state import ClusterState, Rules
from boa_daemon.tick.whole_nodes import job_hours_left
from policies.model import Allocation, JobId, Width
from policies.online.narrowing import Choice, narrowed


def within_room(state: ClusterState, allocation: Allocation, rules: Rules) -> Allocation:
    """Return the allocation with widths that the cap on nodes has room for."""
    node_prices = allocation.node_prices
    if node_prices is None or rules.max_nodes is None or allocation.nodes is not None:
        return allocation
    sizes = {kind: machine.gpus for kind, machine in rules.instance_types.items()}
    wanted = dict.fromkeys(sizes, 0)
    for width in allocation.widths.values():
        wanted[width.gpu_type] += width.gpus
    if sum(-(-gpus // sizes[kind]) for kind, gpus in wanted.items()) <= rules.max_nodes:
        return allocation
    # The last node of each further type may be full in part only.
    room = rules.max_nodes - sum(gpus > 0 for gpus in wanted.values()) + 1
    choices = {
        job: [
            Choice(width=width, size=width.gpus / sizes[width.gpu_type], hours=hours)
            for width, hours in node_prices.narrower(state.jobs[job].job, planned)
        ]
        for job, planned in allocation.widths.items()
    }
    cut = narrowed(choices, float(room))
    kept = {job: _worth_it(state, allocation, job, width) for job, width in cut.items()}
    return replace(allocation, widths=kept)


def _worth_it(state: ClusterState, allocation: Allocation, job_id: JobId, then: Width) -> Width:
    """Return the width, or the narrower one that is held where growing does not pay for the restart."""
    node_prices, job = allocation.node_prices, state.jobs[job_id].job
    held = job.width
    if node_prices is None or held is None or held.gpu_type != then.gpu_type or held.gpus >= then.gpus:
        return then
    if job_id in allocation.stay:
        return held
    left = job_hours_left(state, job, node_prices)
    found = node_prices.stretch(job, held, most_gpus=then.gpus, hours_left=left)
    return held if found is None else found.width
