"""Progress is liveness: a job that runs and makes no step for long is stalled, whatever its processes say.

How long is long follows from the job's own steps, many of them, and never less than a generous floor: a
checkpoint, a data set that is read again or a compiler takes its time. A job that has never reported a step
is not judged by its steps; it may have a time for the first one. What was seen before a restart of the daemon
is not known, so the time begins anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from boa_daemon.store.records import JobRecord
from boa_daemon.tick.ports import RunReport
from boa_daemon.tick.retries import Silence
from boa_daemon.units import SECONDS_PER_HOUR
from policies.model import JobId

MANY_STEPS = 20.0
"""So many of its own steps without one, and a job is stalled, if the floor is passed as well."""
STALL_END_FACTOR = 1.5
"""So many times that long, and it is ended."""
FEWEST_LOOKS = 3
"""A job is never ended before so many looks in a row have found it stalled."""
SILENT_HOURS = 2.0
"""A job that says that it reports is ended after so long without a step and without a printed line."""


def first_report_limit(job: JobRecord) -> tuple[float, str] | None:
    """Return the hours that a job has for its first step, and what else it must not have done in them.

    None where it has no limit: what never said that it reports may be silent.
    """
    said = job.content.get("first_report_hours")
    if said is not None:
        return float(said), ""
    return None if job.is_rigid else (SILENT_HOURS, " and printed nothing")


def first_report_silence(job: JobRecord, report: RunReport, *, now: float) -> Silence | None:
    """Return since when a generation has not reported its first step, where it has a limit for that."""
    limit = first_report_limit(job)
    if limit is None or report.step is not None or job.started_at is None:
        return None
    (hours, also), since = limit, job.started_at
    if not also:
        return Silence(kind="no-report", since=since, limit_seconds=hours * SECONDS_PER_HOUR)
    if report.quiet_seconds is None or report.phase != "running":
        return None
    since = max(since, now - report.quiet_seconds)
    return Silence(kind="no-report-no-print", since=since, limit_seconds=hours * SECONDS_PER_HOUR)


@dataclass(slots=True)
class _Seen:
    """The last step of a generation, since when it stands there, and how often it was found stalled."""

    generation: int
    step: int | None
    since: float
    limit_seconds: float
    looks: int = 0


@dataclass(slots=True)
class Liveness:
    """Watches the steps of jobs. `floor_seconds` is the least time without a step that counts as a stall."""

    floor_seconds: float = 600.0
    _seen: dict[JobId, _Seen] = field(default_factory=dict)

    def take(self, report: RunReport, *, begun_step: int | None, now: float) -> float | None:
        """Take a report in; return since when the job stands still, where that is a stall, else None.

        `begun_step` is the step that its generation began after, None of a job that never reported one.
        """
        seen = self._seen.get(report.job)
        if seen is None or (seen.generation, seen.step) != (report.generation, report.step):
            limit = max(self.floor_seconds, MANY_STEPS * _step_seconds(report, begun_step or 0))
            self._seen[report.job] = _Seen(report.generation, report.step, now, limit)
            return None
        if report.phase != "running" or (report.step is None and begun_step is None):
            seen.since, seen.looks = now, 0
            return None
        if now - seen.since < seen.limit_seconds:
            return None
        seen.looks += 1
        return seen.since

    def silence(self, job: JobId) -> Silence:
        """Return for how long a stalled job may be so, and at how many looks more it has to be seen so."""
        seen = self._seen[job]
        return Silence(
            kind="no-step",
            since=seen.since,
            limit_seconds=STALL_END_FACTOR * seen.limit_seconds,
            looks_left=max(FEWEST_LOOKS - seen.looks, 0),
        )

    def forget(self, job: JobId) -> None:
        """Leave a generation that has ended out."""
        self._seen.pop(job, None)


def _step_seconds(report: RunReport, begun_step: int) -> float:
    """Return what a step of this generation takes on average; 0 where it made none."""
    if report.step is None or report.seconds is None or report.step <= begun_step:
        return 0.0
    return report.seconds / (report.step - begun_step)
