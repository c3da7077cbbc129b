"""The page's document of one job: widths over time, progress, the curve of its class, and reasons."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import select

from boa_daemon.daemon.service.service import Service
from boa_daemon.dashboard.overview import why
from boa_daemon.store.tables import GENERATIONS
from boa_daemon.tick.facts.ports import ArtifactStore
from policies.model import JobId

MOST_GENERATIONS = 500


def job_document(service: Service, name: JobId, *, may_read: Callable[[str], bool]) -> dict[str, Any]:
    """Return a job with its starts, its progress and the speedups of its class.

    Raises:
        InputError: when there is no such job.
    """
    job = service.job(name, may_read=may_read)
    explained = service.explain(name, may_read=may_read)
    class_name = str(job["class"]).partition("[")[0]
    own = [one for one in service.classes()["classes"] if one["name"] == class_name]
    return {
        **job,
        "why": why(service, name),
        **_orders(service, name),
        "is_readable": may_read(str(job["user"])),
        "has_files": isinstance(service.daemon.world.runner, ArtifactStore),
        "text": explained["text"],
        "reason": explained["reason"],
        "generations": _generations(service, name),
        "trail": service.daemon.work.progress.of(name),
        "speedups": own[0]["speedups"] if own else [],
    }


def _orders(service: Service, name: JobId) -> dict[str, Any]:
    """Return the weight of a job, and who ordered that it waits."""
    storage = service.daemon.storage
    found = None if storage is None else storage.queue.active.get(name)
    content = {} if found is None else found.content
    return {"weight": content.get("weight"), "held_by": content.get("held_by", "")}


def _generations(service: Service, name: JobId) -> list[dict[str, Any]]:
    """Return the newest starts of a job, oldest first."""
    storage = service.daemon.storage
    if storage is None:
        return []
    columns = GENERATIONS.c
    query = (
        select(columns.generation, columns.gpu_type, columns.gpus, columns.started_at, columns.ended_at)
        .add_columns(columns.end)
        .where(columns.job == name)
        .order_by(columns.generation.desc())
        .limit(MOST_GENERATIONS)
    )
    with storage.store.database.read() as connection:
        return [dict(row._mapping) for row in connection.execute(query)][::-1]
