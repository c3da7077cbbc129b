"""What we have, what we want -> ordered actions.

First jobs let go (stops), then nodes are given back, then jobs start, then nodes are rented: releases never
wait for launches, and a GPU is free before its next job starts. Cost: O(what changes).
"""

from __future__ import annotations

from boa_daemon.actions import Action, LaunchNode, StartJob, StopJob, TerminateNode
from boa_daemon.state import ClusterState, Plan
from boa_daemon.units import format_hours
from policies.model import GpuSlot, InstanceType, JobId, Width


def diff(state: ClusterState, plan: Plan) -> tuple[Action, ...]:
    """Return the actions that turn the observed cluster into the planned one, in the order to do them."""
    return (
        *(_stop(state, job, "the plan gives it no GPUs now") for job in plan.stops),
        *(
            _stop(state, job, f"moves from {state.jobs[job].job.width} to {plan.widths[job]}")
            for job in plan.slots
            if state.jobs[job].slots
        ),
        *(_terminate(state, node) for node in plan.releases),
        *(_start(state, plan, job, slots) for job, slots in plan.slots.items()),
        *_launches(state, plan),
    )


def _stop(state: ClusterState, job: JobId, reason: str) -> StopJob:
    """Return the order to stop the generation that runs."""
    generation = state.jobs[job].generation
    return StopJob(id=f"t{state.tick}-stop-{job}", job=job, generation=generation, reason=reason)


def _terminate(state: ClusterState, node: str) -> TerminateNode:
    """Return the order to give a node back."""
    idle_since = state.nodes[node].idle_since
    idle = state.now - (state.now if idle_since is None else idle_since)
    reason = f"idle for {format_hours(idle / 3600.0)}, and no job needs it"
    return TerminateNode(id=f"t{state.tick}-terminate-{node}", node=node, reason=reason)


def _start(state: ClusterState, plan: Plan, job: JobId, slots: tuple[GpuSlot, ...]) -> StartJob:
    """Return the order to start the next generation of a job."""
    width, nodes = plan.widths[job], len({slot.node for slot in slots})
    return StartJob(
        id=f"t{state.tick}-start-{job}",
        job=job,
        generation=state.jobs[job].generation + 1,
        width=width,
        slots=slots,
        reason=f"{width} planned, free on {nodes} node{'s' if nodes > 1 else ''}",
    )


def _launches(state: ClusterState, plan: Plan) -> list[Action]:
    """Return one order per node to rent."""
    orders: list[Action] = []
    for name, count in plan.launches.items():
        instance_type = plan.instance_types[name]
        reason = _launch_reason(plan, instance_type, count)
        orders += (
            LaunchNode(id=f"t{state.tick}-launch-{name}-{number}", instance_type=instance_type, reason=reason)
            for number in range(count)
        )
    return orders


def _launch_reason(plan: Plan, instance_type: InstanceType, count: int) -> str:
    """Return why nodes of a type are rented, with the numbers."""
    waiting: list[Width] = [
        plan.widths[job] for job in plan.waiting if plan.widths[job].gpu_type == instance_type.gpu_type
    ]
    gpus = sum(width.gpus for width in waiting)
    jobs = f"{len(waiting)} job{'s' if len(waiting) != 1 else ''}"
    if not waiting:
        return f"{count} more {instance_type.name} planned than present"
    return f"{jobs} wait for {gpus} GPUs of {instance_type.gpu_type}: {count} more {instance_type.name}"
