"""Detect stalled jobs: a job that runs and makes no step for long, whatever its processes report.

The threshold is a multiple of the job's own step time, and never less than a generous floor, because
checkpoints, rereading data and compilers take time. A job that has never reported a step is not checked for
stalls; it may have a limit for its first step. After a restart of the daemon the time starts again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from boa_daemon.store.records import JobRecord
from boa_daemon.tick.facts.ports import RunReport
from boa_daemon.tick.facts.retries import Silence
from boa_daemon.units import SECONDS_PER_HOUR
from policies.model import JobId

MANY_STEPS = 20.0
"""A job is stalled after the time of this many of its steps, and at least the floor, without a step."""
STALL_END_FACTOR = 1.5
"""A stalled job is ended after this many times the threshold."""
FEWEST_LOOKS = 3
"""Looks in a row that must find a job stalled before it is ended."""
SILENT_HOURS = 2.0
"""Hours without a step and a printed line after which a job that should report is ended."""


def first_report_limit(job: JobRecord) -> tuple[float, str] | None:
    """Return the hours that a job has for its first step, and a second condition for ending it.

    None without a limit: a rigid job without `first_report_hours` may be silent.
    """
    said = job.content.get("first_report_hours")
    if said is not None:
        return float(said), ""
    return None if job.is_rigid else (SILENT_HOURS, " and printed nothing")


def first_report_silence(job: JobRecord, report: RunReport, *, now: float) -> Silence | None:
    """Return the silence of a generation before its first step; None without a limit for it."""
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
    """The last step of a generation, the instant of that step, and how often it was found stalled."""

    generation: int
    step: int | None
    since: float
    limit_seconds: float
    looks: int = 0


@dataclass(slots=True)
class Liveness:
    """Watches the steps of jobs; `floor_seconds` is the shortest time without a step that is a stall."""

    floor_seconds: float = 600.0
    _seen: dict[JobId, _Seen] = field(default_factory=dict)

    def take(self, report: RunReport, *, begun_step: int | None, now: float) -> float | None:
        """Process a report; return since when the job is stalled, or None.

        `begun_step` is the step after which the generation began, None for a job that never reported one.
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
        """Return a stalled job's silence: its limit, and how many more looks must find it stalled."""
        seen = self._seen[job]
        return Silence(
            kind="no-step",
            since=seen.since,
            limit_seconds=STALL_END_FACTOR * seen.limit_seconds,
            looks_left=max(FEWEST_LOOKS - seen.looks, 0),
        )

    def forget(self, job: JobId) -> None:
        """Forget a job whose generation has ended."""
        self._seen.pop(job, None)


def _step_seconds(report: RunReport, begun_step: int) -> float:
    """Return the mean seconds per step of this generation; 0 without a step."""
    if report.step is None or report.seconds is None or report.step <= begun_step:
        return 0.0
    return report.seconds / (report.step - begun_step)
