"""Groups of jobs in the database; the jobs of a group have consecutive numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import func, select

from boa_daemon.store.queue import JobQueue
from boa_daemon.store.records import JobRecord, JobStatus, first_of_group
from boa_daemon.store.tables import GENERATIONS, JOBS
from policies.model import JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class JobGroup:
    """Jobs that one file submitted: `size` jobs from number `first` on, which share `max_usd` dollars."""

    id: str
    name: str
    user: str
    first: int
    size: int
    max_usd: float | None

    @property
    def last(self) -> int:
        """The number of the last job."""
        return self.first + self.size - 1


def find_group(queue: JobQueue, name: str) -> JobGroup | None:
    """Return the group with an id, or None."""
    first = first_of_group(name)
    if first is None:
        return None
    with queue.database.read() as connection:
        found = connection.scalar(select(JOBS.c.id).where(JOBS.c.seq == first))
    job = None if found is None else queue.job(found)
    return None if job is None or job.group != name else group_of(job)


def group_of(job: JobRecord) -> JobGroup:
    """Return the group of a job that is in one."""
    place, most = job.content["group"], job.content.get("max_usd")
    return JobGroup(
        id=job.group,
        name=job.name,
        user=job.user,
        first=job.seq - int(place["index"]),
        size=int(place["size"]),
        max_usd=None if most is None else float(most),
    )


def member_statuses(queue: JobQueue, group: JobGroup) -> Mapping[JobId, JobStatus]:
    """Return the status of each job of a group, in order."""
    query = select(JOBS.c.id, JOBS.c.status).where(JOBS.c.seq.between(group.first, group.last))
    with queue.database.read() as connection:
        return {row.id: row.status for row in connection.execute(query.order_by(JOBS.c.seq))}


def settled_micro_dollars(queue: JobQueue, group: JobGroup) -> int:
    """Return the micro-dollars that the ended generations of a group's jobs have cost."""
    query = (
        select(func.sum(GENERATIONS.c.micro_dollars))
        .join(JOBS, JOBS.c.id == GENERATIONS.c.job)
        .where(JOBS.c.seq.between(group.first, group.last))
    )
    with queue.database.read() as connection:
        return int(connection.scalar(query) or 0)
