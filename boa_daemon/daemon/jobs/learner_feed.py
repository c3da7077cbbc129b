"""Feed the learner from jobs: the speed of a class at a width, and the total work of each job."""

from __future__ import annotations

from collections.abc import Callable

from boa_daemon.daemon.jobs.job_facts import LEAST_DONE, JobFacts
from boa_daemon.learning.learner import Learner
from boa_daemon.learning.speedups import over_first_phase
from boa_daemon.store.records import JobRecord
from boa_daemon.tick.facts.ports import RunReport
from policies.model import JobClass


class LearnerFeed:
    """Passes reports and ended jobs to the learner; `class_of` is that of `JobView`."""

    def __init__(self, learner: Learner, facts: JobFacts, class_of: Callable[[str], JobClass | None]) -> None:
        self._learner, self._facts, self._class_of = learner, facts, class_of

    def take(self, job: JobRecord, report: RunReport, now: float) -> None:
        """Pass a report to the learner, for the speed of the job's class at its width."""
        if job.width is not None and report.phase != "unknown":
            job_class, factor = self._class_of(job.class_name), 1.0
            if job_class is not None and len(job_class.phases) > 1:
                factor = over_first_phase(job_class, self._facts.rest(job, job_class, now).phase, job.width)
            name = job.class_name.partition("[")[0]
            self._learner.take(report, class_name=name, width=job.width, now=now, over_first_phase=factor)

    def ended(self, job: JobRecord, now: float, *, is_whole: bool) -> None:
        """Record a job's total work, unless it did too little to be informative."""
        done = job.size_gpu_hours - job.remaining_gpu_hours
        if done < LEAST_DONE * job.size_gpu_hours and not is_whole:
            return
        self._learner.ended(
            job.id,
            class_name=job.class_name.partition("[")[0],
            work_gpu_hours=done / float(job.content.get("scale", 1.0)),
            at=now,
            is_whole=is_whole,
        )


def kept_fraction(job: JobRecord, report: RunReport) -> float:
    """Return the fraction of a generation's work that is kept: all, or that in its newest checkpoint.

    A rigid job that ended without a checkpoint starts over, so it keeps nothing.
    """
    if report.phase == "finished":
        return 1.0
    if job.is_rigid and report.manifest is None:
        return 0.0
    if report.lost_steps and report.step is not None:
        return max(1.0 - report.lost_steps / max(report.step - job.begun_step, 1), 0.0)
    return 1.0
