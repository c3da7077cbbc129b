"""Jobs that are to run after others: how those are."""

from __future__ import annotations

from boa_daemon.store.groups import find_group, member_statuses
from boa_daemon.store.queue import JobQueue
from boa_daemon.store.records import ACTIVE, JobRecord, JobStatus
from policies.model import JobId


class JobDependencies:
    """Looks the jobs up that `after` of a job file names; one that is over stays as it is."""

    def __init__(self, queue: JobQueue) -> None:
        self._queue = queue
        self._ended_as: dict[JobId, JobStatus] = {}

    def by(self, job: JobRecord) -> tuple[JobId, JobStatus] | None:
        """Return the first job that has to end before this one may start, and how it is; None for none.

        One that is over and did not end as it should is returned as well.
        """
        for text in job.content.get("after", ()):
            name, _, how = str(text).partition(":")
            status = self._ended_as.get(name) or self._status_of(name)
            if status in ACTIVE:
                return name, status
            self._ended_as[name] = status
            if status != "finished" and how != "end":
                return name, status
        return None

    def _status_of(self, name: str) -> JobStatus:
        """Return how a job is, or a group: as its first member that is not over, or has not ended well."""
        job = self._queue.active.get(name) or self._queue.job(name)
        group = None if job is not None else find_group(self._queue, name)
        if group is None:
            return "failed" if job is None else job.status
        found = member_statuses(self._queue, group).values()
        ends = [status for status in found if status not in ACTIVE and status != "finished"]
        return next((status for status in found if status in ACTIVE), ends[0] if ends else "finished")
