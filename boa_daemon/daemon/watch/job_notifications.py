"""Notify users about their own jobs: starts, ends, failures, moves and long waits, as their files ask.

Each look compares the jobs with the previous look, so no other code has to report events. Messages go over
the channels in `[users.NAME]`; an address in a job file would let a user make the daemon contact any machine.
A group gets one message per event: one start, one wait, one failure, and the end of all its jobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from boa_daemon.daemon.settings.config import Settings, UserSettings
from boa_daemon.daemon.watch.alerts import Alerts
from boa_daemon.inputs.job_file import Event
from boa_daemon.store.groups import find_group, member_statuses
from boa_daemon.store.queue import JobQueue
from boa_daemon.store.records import JobRecord
from boa_daemon.units import SECONDS_PER_HOUR, counted, dollars, format_hours
from policies.model import JobId
from policies.money_text import in_dollars

_NOBODY = UserSettings()


class JobNotifier:
    """Notifies users about their jobs; a job without notifications costs one lookup in its file."""

    def __init__(self, queue: JobQueue, alerts: Alerts, settings: Callable[[], Settings]) -> None:
        self._queue, self._alerts, self._settings = queue, alerts, settings
        # The previous process reported earlier events.
        self._seen: dict[JobId, JobRecord] = {job.id: job for job in self._asked_for()}

    def look(self, now: float) -> None:
        """Notify users of changes since the previous look."""
        active = set()
        for job in self._asked_for():
            active.add(job.id)
            before, self._seen[job.id] = self._seen.get(job.id), job
            if before is not job or not job.generation:
                for event, sentence in self._changes(before, job, now):
                    self._tell(job, event, sentence, now)
        for name in [name for name in self._seen if name not in active]:
            del self._seen[name]
            ended = None if name in self._queue.active else self._queue.job(name)
            if ended is not None:
                self._tell_end(ended, now)

    def _asked_for(self) -> Iterator[JobRecord]:
        """Yield the active jobs that have notifications."""
        told = {name: user.notify for name, user in self._settings().users.items()}
        for job in list(self._queue.active.values()):
            said = job.content.get("notify")
            # As `_events`, without a call for each of thousands of waiting jobs.
            if said or (said is None and told.get(job.user, _NOBODY.notify)):
                yield job

    def _changes(self, before: JobRecord | None, job: JobRecord, now: float) -> Iterator[tuple[Event, str]]:
        """Yield the events of a job that is not over, as (event, sentence)."""
        began, failed = (0, 0) if before is None else (before.generation, before.failures)
        if job.failures > failed:
            yield "failure", f"job {job.id} failed and is tried again: {job.cause}"
        if job.slots and job.generation > began:
            nodes = len({slot.node for slot in job.slots})
            on = f"{counted(len(job.slots), 'GPU')} on {counted(nodes, 'node')}"
            if job.generation == 1:
                yield "start", f"job {job.id} starts with {on}"
            else:
                yield "move", f"job {job.id} goes on with {on}, from step {job.begun_step}"
        if job.generation or "waiting" not in _events(job, self._settings().users):
            return
        waited = (now - max(job.arrived_at, job.not_before)) / SECONDS_PER_HOUR
        if waited > self._settings().alerts.long_wait_hours:
            said = f"job {job.id} has waited {format_hours(waited)} for GPUs; `boa explain {job.id}` says why"
            if self._alerts.once(f"waiting:{job.group or job.id}", said, at=now):
                yield "waiting", said

    def _tell_end(self, job: JobRecord, now: float) -> None:
        usd, hours = dollars(job.micro_dollars), format_hours(job.ran_seconds / SECONDS_PER_HOUR)
        cause = f": {job.cause}" if job.status == "failed" else ""
        sentence = f"job {job.id} {job.status}{cause}; {hours} on GPUs, {in_dollars(usd)}"
        if job.status == "failed" and (job.group or "end" not in _events(job, self._settings().users)):
            self._tell(job, "failure", sentence, now)
        if not job.group:
            self._tell(job, "end", sentence, now)
            return
        group = find_group(self._queue, job.group)
        ends = Counter() if group is None else Counter(member_statuses(self._queue, group).values())
        if group is not None and not ends["queued"] and not ends["running"]:
            counts = ", ".join(f"{number} {status}" for status, number in ends.items())
            self._tell(job, "end", f"group {group.id} is over: {counts}", now)

    def _tell(self, job: JobRecord, event: Event, sentence: str, now: float) -> None:
        """Notify a job's user of an event, if the user asked for it; once per group."""
        if event not in _events(job, self._settings().users) or (job.group and event == "move"):
            return
        of_group = job.group and event != "waiting"
        if of_group and not self._alerts.once(f"{event}:{job.group}", sentence, at=now):
            return
        self._alerts.tell(self._settings().users.get(job.user, _NOBODY), sentence, whose=job.user)


def _events(job: JobRecord, users: Mapping[str, UserSettings]) -> list[Event]:
    """Return the events that a job's user wants to hear of: the job's file, else the user's settings."""
    said: list[Event] | None = job.content.get("notify")
    return users.get(job.user, _NOBODY).notify if said is None else said
