"""Progress is liveness: a job that runs and makes no step for long is stalled, whatever its processes say.

How long is long follows from the job's own steps, many of them, and never less than a generous floor: a
checkpoint, a data set that is read again or a compiler takes its time. A job that has never reported a step
is
not judged. What was seen before a restart of the daemon is not known, so the time begins anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from boa_daemon.tick.ports import RunReport
from policies.model import JobId

MANY_STEPS = 20.0
"""So many of its own steps without one, and a job is stalled, if the floor is passed as well."""
HOPELESS = 1.5
"""So many times that long, and it is ended."""
FEWEST_LOOKS = 3
"""A job is never ended before so many looks in a row have found it stalled."""


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

    def is_hopeless(self, job: JobId, *, now: float) -> bool:
        """Return whether a stalled job has been so for long, and at several looks."""
        seen = self._seen[job]
        return seen.looks >= FEWEST_LOOKS and now - seen.since >= HOPELESS * seen.limit_seconds

    def forget(self, job: JobId) -> None:
        """Leave a generation that has ended out."""
        self._seen.pop(job, None)


def _step_seconds(report: RunReport, begun_step: int) -> float:
    """Return what a step of this generation takes on average; 0 where it made none."""
    if report.step is None or report.seconds is None or report.step <= begun_step:
        return 0.0
    return report.seconds / (report.step - begun_step)
