"""The page's overview: burn rate, caps, queue, fleet, alerts, in one document from memory.

Nodes are compact rows, because there may be thousands. Jobs are the first hundreds of the queue, with counts
of all.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from boa_daemon.daemon.service.service import Service
from boa_daemon.store.records import JobRecord
from boa_daemon.tick.decide.decision import Decision
from boa_daemon.tick.facts.reasons import JOB_REASON_TEXTS, REASON_TEXTS, WAIT_REASON_TEXTS
from boa_daemon.tick.facts.state import JobState
from boa_daemon.units import SECONDS_PER_HOUR, counted
from boa_daemon.version import __version__
from policies.model import JobId, NodeId, Width

MOST_JOBS = 200
NODE_COLUMNS = ("id", "type", "phase", "zone", "market", "gpus", "used", "usd_per_hour", "jobs")
JOB_COLUMNS = ("id", "user", "class")


def standing_document(service: Service) -> dict[str, Any]:
    """Return of when the figures of every view are, and what is wrong: what stands above each."""
    return {
        **service.condition(),
        "tick_every_seconds": service.daemon.settings.daemon.tick_seconds,
        "version": __version__,
    }


def overview_document(service: Service) -> dict[str, Any]:
    """Return the daemon's status, the head of its queue, its nodes and its newest alerts."""
    decision, storage = service.daemon.standing.decision, service.daemon.storage
    held: Mapping[NodeId, Mapping[int, JobId]] = {} if storage is None else storage.queue.holders()
    active = [] if storage is None else list(storage.queue.active.values())
    running = sum(1 for job in active if job.slots)
    return {
        **service.status(),
        # The counts after the starts of the last tick, not before.
        "gpus_used": sum(map(len, held.values())),
        "running": running,
        "waiting": len(active) - running,
        "tick_every_seconds": service.daemon.settings.daemon.tick_seconds,
        "version": __version__,
        "provider": service.daemon.settings.cloud.provider,
        "queue": queue_rows(service, decision),
        "why": _why(decision),
        "fleet": _fleet(decision, held, active),
        "alerts": [] if storage is None else service.alerts(10)["alerts"],
    }


def queue_rows(service: Service, decision: Decision | None, most: int = MOST_JOBS) -> list[dict[str, Any]]:
    """Return rows of running jobs by expected end, then of waiting jobs in the order of service.

    Waiting jobs that are in no queue, such as those that rest, come last, by arrival.

    If there are many of both, each has half of the `most` rows. O(jobs); sentences only for the rows.
    """
    if service.daemon.storage is None:
        return []
    active = list(service.daemon.storage.queue.active.values())
    left = {job.id: _left(decision, job) for job in active if job.slots}
    running = sorted((job for job in active if job.slots), key=lambda job: (left[job.id], job.seq))
    places, finishes = service.outlook.places(), service.outlook.finishes()
    waiting = sorted(
        (job for job in active if not job.slots), key=lambda job: (places.get(job.id, math.inf), job.seq)
    )
    half = max(most // 2, most - len(waiting))
    now = service.daemon.world.clock.now()
    lag = 0.0 if decision is None else now - decision.state.now
    rows = []
    for job in [*running[:half], *waiting[: most - min(half, len(running))]]:
        seconds = left[job.id] - lag if job.slots else _left(decision, job)
        rows.append(
            {
                "id": job.id,
                "user": job.user,
                "class": job.class_name.partition("[")[0],
                "status": "cancelling" if job.is_cancelled else "running" if job.slots else "waiting",
                "gpus": len(job.slots),
                "gpu_type": None if job.width is None else job.width.gpu_type,
                "nodes": len({slot.node for slot in job.slots}),
                "why": _sentence(decision, job, places.get(job.id)),
                "place_in_queue": None if job.slots else places.get(job.id),
                "starts_at": None if job.slots or (end := finishes.get(job.id)) is None else end.starts_at,
                "seconds_left": None if math.isinf(seconds) else max(seconds, 0.0),
                "waited_seconds": now - job.arrived_at,
                "stalled_since": job.stalled_since,
            }
        )
    return rows


def why(service: Service, name: JobId) -> str | None:
    """Return the sentence of a job's row in the queue; None for a job that is over."""
    storage, decision = service.daemon.storage, service.daemon.standing.decision
    job = None if storage is None else storage.queue.active.get(name)
    if job is None:
        return None
    places = service.outlook.places()
    return _sentence(decision, job, places.get(name))


def _sentence(decision: Decision | None, job: JobRecord, place: int | None) -> str:
    """Return why a job has its GPUs, or what it waits for and its place in the queue."""
    plan = None if decision is None else decision.plan
    planned = None if plan is None else plan.jobs[job.id]
    width, reason = (None, None) if planned is None else (planned.width, planned.waits_for)
    if job.slots:
        said = f"{job.width} on {counted(len({slot.node for slot in job.slots}), 'node')}"
        if reason is not None and width is not None and width != job.width:
            said += f"; {width} planned: {WAIT_REASON_TEXTS[reason]}"
        elif planned is not None and width == job.width and planned.changed_reason is not None:
            said += f": {planned.changed_reason}"
        return said
    if decision is None:
        return JOB_REASON_TEXTS["new"]
    said = REASON_TEXTS[decision.reason(job.id, holds_gpus=False)]
    if place is not None:
        said = f"number {place} in the queue: {said}"
    return said if reason is None or width is None else f"{said} ({width} planned)"


def _left(decision: Decision | None, job: JobRecord) -> float:
    """Return the seconds from the last tick until a job ends; infinite if unknown."""
    seen = None if decision is None else decision.state.jobs.get(job.id)
    if decision is None or seen is None:
        return math.inf
    return _seconds_left(decision, seen, decision.plan.jobs[job.id].width)


def _seconds_left(decision: Decision, job: JobState, planned: Width | None) -> float:
    """Return the seconds until a job ends at its present width, or else at its planned width."""
    prices = decision.plan.node_prices
    width = job.job.width or planned
    if prices is None or width is None:
        return math.inf
    try:
        hours = prices.hours_left(job.job if job.job.width == width else replace(job.job, width=width))
    except KeyError:
        # The policy in use does not know the class yet.
        return math.inf
    counted_at = job.job.counted_at
    return hours * SECONDS_PER_HOUR + (0.0 if counted_at is None else counted_at - decision.state.now)


def _why(decision: Decision | None) -> list[dict[str, Any]]:
    """Return the reasons why jobs wait, most frequent first."""
    if decision is None:
        return []
    counts = Counter(decision.plan.jobs.waiting.values())
    return [
        {"code": code, "jobs": count, "said": WAIT_REASON_TEXTS[code]} for code, count in counts.most_common()
    ]


def _fleet(
    decision: Decision | None, held: Mapping[NodeId, Mapping[int, JobId]], active: Sequence[JobRecord]
) -> dict[str, Any]:
    """Return a row for each node, and its GPUs' jobs: places in a list of jobs, -1 where free."""
    jobs = [job for job in active if job.slots]
    place = {job.id: number for number, job in enumerate(jobs)}
    rows = []
    for node in () if decision is None else decision.state.nodes.values():
        own = held.get(node.id, {})
        rows.append(
            (
                node.id,
                node.instance_type.name,
                "booting" if node.phase == "requested" else node.phase,
                node.zone,
                node.market,
                len(node.gpus),
                len(own),
                round(node.usd_per_hour, 4),
                [place.get(own[gpu], -1) if gpu in own else -1 for gpu in range(len(node.gpus))],
            )
        )
    return {
        "columns": NODE_COLUMNS,
        "rows": rows,
        "job_columns": JOB_COLUMNS,
        "jobs": [(job.id, job.user, job.class_name.partition("[")[0]) for job in jobs],
    }
