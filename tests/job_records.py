"""Queues, new jobs and starts for the tests of `boa_daemon/store`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from boa_daemon.inputs.sqlite_urls import sqlite_url
from boa_daemon.store.database import Database
from boa_daemon.store.database_setup import migrate, open_engine
from boa_daemon.store.queue import JobQueue, NewJob
from boa_daemon.store.records import InstanceRecord
from boa_daemon.testing import a_node
from boa_daemon.testing.daemon_in_a_folder import job_content
from boa_daemon.tick.facts.actions import StartJob
from policies.model import GpuSlot, Width


@contextmanager
def a_queue(folder: Path) -> Iterator[JobQueue]:
    """Yield the queue of a database of its own."""
    engine = open_engine(sqlite_url(folder / "boa.sqlite"))
    migrate(engine)
    database = Database(engine)
    yield JobQueue(database)
    database.close()


def a_row(name: str, **changes: Any) -> NewJob:
    """Return a new job of ann's."""
    return {**job_content(name), "stop_grace_seconds": 60.0, **changes}, "ann", "default", 1.0


def a_start(job: str, *slots: tuple[str, int], generation: int = 1) -> StartJob:
    """Return the order to start a job on GPUs, given as node and index."""
    return StartJob(
        id=f"start-{job}-{generation}",
        reason="",
        job=job,
        generation=generation,
        width=Width("gpu", len(slots)),
        slots=tuple(GpuSlot(node, index) for node, index in slots),
    )


def with_nodes(queue: JobQueue, *names: str) -> None:
    """Store nodes that are ready and idle since instant 5."""
    for name in names:
        queue.save_instance(InstanceRecord(node=a_node(name), ready_at=5.0, idle_since=5.0))
