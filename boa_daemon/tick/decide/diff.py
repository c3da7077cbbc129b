"""Turn the difference between the observed cluster and the plan into ordered actions.

The order is: give up jobs and end hung generations, stop jobs, give nodes back, start jobs, rent nodes. So
releases never wait for launches, and a GPU is free before its next job starts. Cost: O(what changes).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice

from boa_daemon.tick.explain.headline import why_moved, why_stopped
from boa_daemon.tick.facts.actions import (
    Action,
    EndGeneration,
    GiveUpJob,
    LaunchNodes,
    StartJob,
    StopJob,
    TerminateNode,
)
from boa_daemon.tick.facts.offers import Market, Offer, open_offers
from boa_daemon.tick.facts.plan import Plan
from boa_daemon.tick.facts.state import ClusterState, JobState
from boa_daemon.tick.facts.warm_pool import PoolStarts
from boa_daemon.units import counted, format_hours
from policies.model import GpuSlot, InstanceType, JobId, Width

NAMED_JOBS = 4
"""How many of the jobs that a node is rented for are named in its launch."""


def diff(state: ClusterState, plan: Plan) -> tuple[Action, ...]:
    """Return the actions that turn the observed cluster into the planned one, in the order to do them."""
    held = {held.what: held.why for held in plan.held} if plan.held else {}
    jobs = state.all_jobs
    orders: list[Action] = []
    # Skipped when empty: most plans have orders of only one or two kinds.
    if plan.jobs.given_up or plan.jobs.ends:
        orders += _ends(state, plan)
    for job in plan.jobs.stops:
        orders.append(_stop(state, jobs[job], why_stopped(state, plan, job)))
    for job in plan.jobs.slots:
        if jobs[job].slots:
            orders.append(_stop(state, jobs[job], why_moved(state, plan, job)))
    for node in plan.releases:
        orders.append(_terminate(state, plan, node, held.get(f"node {node}", "") if held else ""))
    for node in plan.forced:
        orders.append(
            _terminate(state, plan, node, held.get(f"node {node}") or _why_forced(state, node, held))
        )
    for job, slots in plan.jobs.slots.items():
        orders.append(_start(state, plan, job, slots))
    if plan.launches:
        orders += _launches(state, plan)
    return tuple(orders)


def _ends(state: ClusterState, plan: Plan) -> Iterator[Action]:
    """Yield the orders to give up jobs and to end hung generations."""
    jobs = state.all_jobs
    for job, why in plan.jobs.given_up.items():
        yield GiveUpJob(id=f"t{state.tick}-give-up-{job}", job=job, code=why.code, reason=why.reason)
    for job, reason in plan.jobs.ends.items():
        generation = jobs[job].generation
        yield EndGeneration(id=f"t{state.tick}-end-{job}", job=job, generation=generation, reason=reason)


def _stop(state: ClusterState, seen: JobState, reason: str) -> StopJob:
    job = seen.job.id
    return StopJob(id=f"t{state.tick}-stop-{job}", job=job, generation=seen.generation, reason=reason)


def _why_forced(state: ClusterState, node: str, held: Mapping[str, str]) -> str:
    """Return why a node ends under its jobs: a limit of one of them."""
    jobs = (job for job in dict.fromkeys(state.nodes[node].gpus) if job is not None)
    found = next((held[f"job {job}"] for job in jobs if f"job {job}" in held), None)
    return found or "its jobs were told to stop, and a cap could break before they have"


def _terminate(state: ClusterState, plan: Plan, node: str, held: str) -> TerminateNode:
    """Return the order to give a node back; `held` is the reason if it is not idleness."""
    order, seen = f"t{state.tick}-terminate-{node}", state.nodes[node]
    stops = node in plan.stopping
    if held:
        return TerminateNode(id=order, node=node, reason=held, stops=stops)
    if seen.phase == "stopped":
        hours = format_hours((state.now - seen.launched_at) / 3600.0)
        return TerminateNode(id=order, node=node, reason=f"stopped for {hours}, and not worth its disk")
    idle_since = seen.idle_since
    idle = state.now - (state.now if idle_since is None else idle_since)
    return TerminateNode(id=order, node=node, reason=_why_idle(idle, stops=stops), stops=stops)


@lru_cache(maxsize=64)
def _why_idle(seconds: float, *, stops: bool) -> str:
    """Return the reason for giving an idle node back; cached, because the nodes of a job share it."""
    reason = "no job is left on it, and none needs it"
    if seconds >= 1.0:
        reason = f"idle for {format_hours(seconds / 3600.0)}, and no job needs it"
    return f"{reason}: stopped, for the warm pool" if stops else reason


def _start(state: ClusterState, plan: Plan, job: JobId, slots: tuple[GpuSlot, ...]) -> StartJob:
    width = plan.jobs.widths[job]
    return StartJob(
        id=f"t{state.tick}-start-{job}",
        job=job,
        generation=state.jobs[job].generation + 1,
        width=width,
        slots=slots,
        reason=_why_start(
            width.gpu_type, width.gpus, 1 if len(slots) == 1 else len({slot.node for slot in slots})
        ),
    )


@lru_cache(maxsize=4096)
def _why_start(gpu_type: str, gpus: int, nodes: int) -> str:
    """Return the reason for a start; cached, because thousands of jobs share it."""
    return f"{Width(gpu_type, gpus)} planned, free on {counted(nodes, 'node')}"


def _launches(state: ClusterState, plan: Plan) -> list[Action]:
    """Return the orders to rent: one per gang, and one for all other nodes of a type and an offer."""
    orders: list[Action] = []
    pool = PoolStarts(state, plan)
    for name, count in plan.launches.items():
        instance_type = plan.instance_types[name]
        reason = _launch_reason(plan, instance_type, count)
        for_jobs = _waiting_for(state, plan, instance_type)
        gangs = plan.gangs.get(name, ())
        groups = [(size, True) for size in gangs]
        if count > sum(gangs):
            groups.append((count - sum(gangs), False))
        taken: dict[tuple[Market, str], int] = {}
        for size, is_gang in groups:
            offers = _open_offers(state, plan, name, pool, together=size if is_gang else 1)
            for offer, part in _shares(offers, taken, size, is_gang=is_gang):
                orders.append(
                    LaunchNodes(
                        id=f"t{state.tick}-launch-{name}-{len(orders)}",
                        instance_type=instance_type,
                        count=part,
                        is_gang=is_gang,
                        offer=offer if state.offers else None,
                        reason=reason,
                        for_jobs=for_jobs,
                        starts=pool.take(offer, part),
                    )
                )
    return orders


def _waiting_for(
    state: ClusterState, plan: Plan, instance_type: InstanceType
) -> tuple[tuple[JobId, int], ...]:
    """Return the first jobs that wait for a type, each with the generation that would start."""
    waiting = (job for job in plan.jobs.waiting if _wants(plan, job, instance_type))
    return tuple((job, state.jobs[job].generation + 1) for job in islice(waiting, NAMED_JOBS))


def _wants(plan: Plan, job: JobId, instance_type: InstanceType) -> bool:
    """Return whether a job is planned on a type; a job left out by a ceiling is planned on none."""
    width = plan.jobs.widths.get(job)
    return width is not None and width.gpu_type == instance_type.gpu_type


def _open_offers(
    state: ClusterState, plan: Plan, name: str, pool: PoolStarts, *, together: int
) -> list[Offer]:
    """Return the open offers of a type, cheapest first; on demand first if a date needs it.

    Among equal prices, offers where a stopped node can be started come first.
    """
    found = pool.first(open_offers(name, state.offers, state.cooldowns, now=state.now, together=together))
    firm = (job for job, note in plan.jobs.dates.items() if note.is_firm and job in plan.jobs.waiting)
    if any(_wants(plan, job, plan.instance_types[name]) for job in firm):
        found.sort(key=lambda offer: offer.market == "spot")
    return found


def _shares(
    offers: Sequence[Offer], taken: dict[tuple[Market, str], int], size: int, *, is_gang: bool
) -> Iterator[tuple[Offer, int]]:
    """Yield how many nodes to request of each offer, cheapest first, and add them to `taken`.

    A gang goes to one offer whole, or is not requested. All offers of a pool share its quota.
    """
    for offer in offers:
        so_far = taken.get((offer.market, offer.pool), 0)
        part = size if offer.nodes_left is None else min(size, offer.nodes_left - so_far)
        if part < 1 or (is_gang and part < size):
            continue
        if offer.nodes_left is not None:
            taken[offer.market, offer.pool] = so_far + part
        yield offer, part
        size -= part


def _launch_reason(plan: Plan, instance_type: InstanceType, count: int) -> str:
    """Return why nodes of a type are rented, with the numbers."""
    waiting = [plan.jobs.widths[job] for job in plan.jobs.waiting if _wants(plan, job, instance_type)]
    gpus = sum(width.gpus for width in waiting)
    if not waiting:
        return f"{count} more {instance_type.name} planned than present"
    jobs = f"{counted(len(waiting), 'job')} wait{'s' if len(waiting) == 1 else ''}"
    return f"{jobs} for {counted(gpus, 'GPU')} of {instance_type.gpu_type}: {count} more {instance_type.name}"
