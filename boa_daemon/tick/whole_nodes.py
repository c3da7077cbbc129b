"""Following the plan with whole nodes: count on GPUs that fall free, start narrow meanwhile, hold idle nodes.

What each of these is worth comes from the policy (`policies.online.node_prices`); one that does not know
sizes and speeds gives no node prices, and then the site's rules hold. Cost: O(running jobs) where somebody
waits, O(idle nodes) otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from boa_daemon.tick.room import Room
from boa_daemon.tick.state import ClusterState, NodeState, Plan, Rules
from boa_daemon.units import SECONDS_PER_HOUR
from policies.answer import NodePrices
from policies.model import Job, JobId, NodeId, Width

OVERDUE = 2.0
"""A job that has waited this many times as long as it should counts on nobody: the forecasts were wrong."""
SOON_SECONDS = 1.0
"""Where this decision makes the next one necessary, that follows so soon."""


def about_to_end(
    state: ClusterState, node_prices: NodePrices | None, waiting: Mapping[JobId, Width]
) -> frozenset[JobId]:
    """Return the jobs whose GPUs fall free sooner than it pays to rent nodes for those who wait."""
    if node_prices is None or not waiting:
        return frozenset()
    patience = {kind: node_prices.patience_hours(kind) for kind in {w.gpu_type for w in waiting.values()}}
    for job_id, width in waiting.items():
        job, limit = state.jobs[job_id], OVERDUE * patience[width.gpu_type] * SECONDS_PER_HOUR
        if not job.slots and state.now - job.job.arrived_at > limit:
            return frozenset()
    return frozenset(
        job_id
        for job_id, job in state.jobs.items()
        if job.job.width is not None
        and job_id not in waiting
        and job_hours_left(state, job.job, node_prices) < patience.get(job.job.width.gpu_type, 0.0)
    )


def job_hours_left(state: ClusterState, job: Job, node_prices: NodePrices) -> float:
    """Return how long a job runs on from now, whenever its work was counted."""
    hours, counted_at = node_prices.hours_left(job), job.counted_at
    return hours if counted_at is None else hours + (counted_at - state.now) / SECONDS_PER_HOUR


def with_head_starts(
    state: ClusterState,
    plan: Plan,
    node_prices: NodePrices | None,
    room: Room,
    *,
    minimum_hold_seconds: float = 0.0,
) -> Plan:
    """Return the plan with waiting jobs started on what is free, where that pays for the restart later.

    None starts where the rules against flapping would hold it at its narrow width beyond the wait: its nodes
    would come, find nobody to claim them and go back.
    """
    waiting = [] if node_prices is None else [job for job in plan.waiting if not state.jobs[job].slots]
    if node_prices is None or not waiting:
        return plan
    left = room.after(plan.slots)
    free = left.free_gpus()
    wait_hours = _wait_hours(state, plan, node_prices)
    if wait_hours * SECONDS_PER_HOUR < minimum_hold_seconds:
        return plan
    widths, slots, starts = dict(plan.widths), dict(plan.slots), dict[JobId, Width]()
    for job in waiting:
        then = widths[job]
        most = free.get(then.gpu_type, 0)
        now = (
            node_prices.head_start(state.jobs[job].job, then, most_gpus=most, wait_hours=wait_hours)
            if most
            else None
        )
        placed = {} if now is None else left.place({job: now})
        if now is not None and job in placed:
            widths[job], slots[job], starts[job] = now, placed[job], then
            free[then.gpu_type] -= now.gpus
            left = left.after(placed)
    if not starts:
        return plan
    still = {job: why for job, why in plan.waiting.items() if job not in slots}
    return replace(plan, widths=widths, slots=slots, waiting=still, head_starts=starts)


def _wait_hours(state: ClusterState, plan: Plan, node_prices: NodePrices) -> float:
    """Return how long nodes take to come: a boot for new ones, what is left of it for those that boot."""
    if plan.launches:
        return node_prices.boot_hours
    booting = (
        node_prices.boot_hours - (state.now - node.launched_at) / SECONDS_PER_HOUR
        for node in state.nodes.values()
        if node.phase == "requested"
    )
    return max(booting, default=0.0)


def with_idle_nodes(
    state: ClusterState,
    rules: Rules,
    plan: Plan,
    *,
    claimed: set[NodeId],
    node_prices: NodePrices | None,
    hold: bool = True,
) -> Plan:
    """Return the plan with idle nodes released when their hold is over, and a wake-up for the next.

    Without `hold`, those that nobody claims go back at once.
    """
    releases: list[NodeId] = []
    wake_at = plan.wake_at
    for node, hold_seconds in _held_idle(state, rules, claimed, node_prices):
        release_at = (node.idle_since or 0.0) + (hold_seconds if hold and node.ends_by is None else 0.0)
        if release_at <= state.now:
            releases.append(node.id)
        elif wake_at is None or release_at < wake_at:
            wake_at = release_at
    if not releases and wake_at == plan.wake_at:
        return plan
    if releases and not hold:
        # The cap had no room for a node; now it has.
        wake_at = state.now + SOON_SECONDS
    return replace(plan, releases=tuple(releases), wake_at=wake_at)


def looked_at_soon(state: ClusterState, plan: Plan) -> Plan:
    """Return the plan with a wake-up at once where its moves leave a node empty.

    The node is to be given back, or its hold to begin; the next job may come or end in hours only.
    """
    soon = state.now + SOON_SECONDS
    if (plan.wake_at is not None and plan.wake_at <= soon) or not _empties_a_node(state, plan):
        return plan
    return replace(plan, wake_at=soon)


def _empties_a_node(state: ClusterState, plan: Plan) -> bool:
    """Return whether jobs that move by the plan leave a node on which nobody is then."""
    moving = {job for job in plan.slots if not state.jobs[job].is_stopping}
    left = {slot.node for job in moving for slot in state.jobs[job].slots}
    if not left:
        return False
    left -= {slot.node for slots in plan.slots.values() for slot in slots}
    return any(
        name in state.nodes and all(job is None or job in moving for job in state.nodes[name].gpus)
        for name in left
    )


def _held_idle(
    state: ClusterState, rules: Rules, claimed: set[NodeId], node_prices: NodePrices | None
) -> Iterator[tuple[NodeState, float]]:
    """Yield the idle nodes that nobody claims, each with the seconds that it may be held."""
    idle = [
        node
        for node in state.nodes.values()
        if node.idle_since is not None and node.phase == "ready" and node.id not in claimed
    ]
    if node_prices is None:
        yield from ((node, rules.idle_hold_seconds) for node in idle)
        return
    kept: dict[str, int] = {}
    # Those that fell idle last stay: the others were not wanted for longer.
    for node in sorted(idle, key=lambda node: -(node.idle_since or 0.0)):
        kind = node.instance_type.gpu_type
        worth, before = node_prices.hold(kind), kept.get(kind, 0)
        kept[kind] = before + 1
        seconds = worth.seconds if before < worth.nodes else 0.0
        yield (
            node,
            seconds if rules.longest_hold_seconds is None else min(seconds, rules.longest_hold_seconds),
        )
