"""Delete old rows: jobs that are over, their generations, and settled intents.

Bills, purses and decisions have their own retention. A job that an active one waits for is kept.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from sqlalchemy import delete, select

from boa_daemon.store.database import Database
from boa_daemon.store.queue import JobQueue
from boa_daemon.store.sql import OPEN
from boa_daemon.store.tables import GENERATIONS, INTENTS, JOBS
from policies.model import JobId

_DIGEST = re.compile(r'"digest":"([0-9a-f]{64})"')
"""A code digest in a stored job; user text that matches merely keeps an archive."""


def jobs_over_before(queue: JobQueue, instant: float, *, limit: int) -> list[JobId]:
    """Return jobs that were over before an instant, the oldest first."""
    awaited = {
        str(text).partition(":")[0]
        for job in list(queue.active.values())
        for text in job.content.get("after", ())
    }
    query = select(JOBS.c.id).where(JOBS.c.ended_at < instant).order_by(JOBS.c.ended_at)
    with queue.database.read() as connection:
        found = connection.scalars(query.limit(limit + len(awaited)))
        return [name for name in found if name not in awaited and name not in queue.active][:limit]


def drop_jobs(database: Database, names: Sequence[JobId]) -> None:
    """Delete jobs that are over, with their generations, in one transaction."""
    with database.write() as connection:
        connection.execute(delete(GENERATIONS).where(GENERATIONS.c.job.in_(names)))
        connection.execute(delete(JOBS).where(JOBS.c.id.in_(names), JOBS.c.ended_at.is_not(None)))


def code_in_use(database: Database) -> set[str]:
    """Return the digests of code that stored jobs name."""
    with database.read() as connection:
        specs = connection.scalars(select(JOBS.c.spec).where(JOBS.c.spec.contains('"digest":"')))
        return {digest for spec in specs for digest in _DIGEST.findall(spec)}


def drop_intents(database: Database, before: float, *, keep: Collection[str] = ()) -> int:
    """Delete intents from before an instant whose outcome is known; return their number."""
    with database.write() as connection:
        is_old = (INTENTS.c.at < before) & (INTENTS.c.status != OPEN)
        return int(connection.execute(delete(INTENTS).where(is_old, INTENTS.c.id.not_in(keep))).rowcount)
