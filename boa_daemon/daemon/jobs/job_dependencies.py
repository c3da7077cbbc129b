"""Dependencies between jobs: the state of the jobs that a job has to wait for."""

from __future__ import annotations

from boa_daemon.store.groups import find_group, member_statuses
from boa_daemon.store.queue import JobQueue
from boa_daemon.store.records import ACTIVE, JobRecord, JobStatus
from policies.model import JobId


class JobDependencies:
    """Looks up the jobs in `after` of a job file; the status of a job that is over is cached."""

    def __init__(self, queue: JobQueue) -> None:
        self._queue = queue
        self._ended_as: dict[JobId, JobStatus] = {}

    def by(self, job: JobRecord) -> tuple[JobId, JobStatus] | None:
        """Return the first job, with its status, that keeps this one from starting; None when none does.

        That is a job that is not over, or one that ended badly while this one requires success.
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
        """Return the status of a job, or of a group's first member that is active or else unsuccessful."""
        job = self._queue.active.get(name) or self._queue.job(name)
        group = None if job is not None else find_group(self._queue, name)
        if group is None:
            return "failed" if job is None else job.status
        found = member_statuses(self._queue, group).values()
        ends = [status for status in found if status not in ACTIVE and status != "finished"]
        return next((status for status in found if status in ACTIVE), ends[0] if ends else "finished")
