"""Convert jobs and nodes to database rows and back."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from boa_daemon.store.records import InstanceRecord, JobRecord
from boa_daemon.tick.facts.codec import loads
from policies.model import GpuSlot

MOST_KNOWN_SLOTS = 50_000
"""Largest number of starts whose GPUs are cached."""


@lru_cache(maxsize=MOST_KNOWN_SLOTS)
def slots_of(text: str) -> tuple[GpuSlot, ...]:
    """Return the GPUs of a start; cached, because they never change and are read often."""
    found: tuple[GpuSlot, ...] = loads(text)
    return found


_IN_SPEC = (
    "content", "size_gpu_hours", "failures", "starts", "micro_dollars",
    "begun_step", "lost_steps", "settled_generation", "failed", "not_before", "exit_code", "last_lines",
    "first_started_at", "ran_seconds", "lost_gpu_hours", "has_reported", "width_before",
    "checkpoint_bytes",
)  # fmt: skip


_COLUMNS = (
    "id", "seq", "class_name", "status", "arrived_at", "remaining_gpu_hours", "generation", "started_at",
    "ended_at", "step", "cause", "is_cancelled",
)  # fmt: skip
"""Fields of a job that have a column of the same name."""


def row_of(job: JobRecord) -> dict[str, Any]:
    """Return the row of a job."""
    spec = json.dumps({name: getattr(job, name) for name in _IN_SPEC}, separators=(",", ":"))
    columns = {name: getattr(job, name) for name in _COLUMNS}
    return {**columns, "name": job.name, "user_name": job.user, "team_name": job.team, "spec": spec}


def job_of(row: Any) -> JobRecord:
    """Return the job of a row, without the GPUs that it holds."""
    spec: dict[str, Any] = json.loads(row.spec)
    for name in ("starts", "last_lines"):
        spec[name] = tuple(spec[name])
    spec["failed"] = tuple(map(tuple, spec["failed"]))
    if spec.get("width_before") is not None:
        spec["width_before"] = tuple(spec["width_before"])
    columns = {name: getattr(row, name) for name in _COLUMNS}
    columns["is_cancelled"] = bool(row.is_cancelled)
    return JobRecord(user=row.user_name, **columns, **spec)


def instance_of(row: Any) -> InstanceRecord:
    """Return the node of a row."""
    return InstanceRecord(
        node=loads(row.node),
        ready_at=row.ready_at,
        idle_since=row.idle_since,
        was_used=bool(row.was_used),
        last_seen_at=row.last_seen_at,
    )
