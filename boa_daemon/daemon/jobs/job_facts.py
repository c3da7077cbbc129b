"""Facts about each job for a tick: work left, GPUs held, limits, failures and silences.

This module makes no decisions; the stages of the tick do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from boa_daemon.daemon.jobs.job_dependencies import JobDependencies
from boa_daemon.daemon.jobs.job_visibility import public_cause
from boa_daemon.daemon.money.group_money import GroupMoney, usd_per_hour_of
from boa_daemon.daemon.money.job_cost import cost_of
from boa_daemon.daemon.planner.dates import due_of
from boa_daemon.engines.backoff import Backoff
from boa_daemon.learning.beliefs import RemainingWork, phase_at, remaining_work_of
from boa_daemon.store.queue import JobQueue
from boa_daemon.store.records import ACTIVE, JobRecord
from boa_daemon.tick.facts.ports import RunReport
from boa_daemon.tick.facts.retries import ANY_RETRIES, Failure, Retries, Silence
from boa_daemon.tick.facts.state import JobState, JobTerms
from boa_daemon.units import SECONDS_PER_HOUR, dollars
from policies.kinds import kind_of
from policies.memo import Memo
from policies.model import Job, JobClass, JobId, Width
from policies.online.estimates import SPREAD, mean_left

LEAST_DONE = 0.01
"""Fraction of its size that a job must have done before it says something about sizes."""
LEAST_SECONDS_LEFT = 1e-3
"""Time left below which a job has used up its hours; floating-point sums of hours are no finer."""


_Seen = tuple[JobRecord, JobClass | None, JobState, bool]
"""A waiting job, its class, its state, and whether that depends on other jobs or on money."""


class JobFacts:
    """Reads job facts from the queue; `class_of` and `spread_of` are those of `JobView`.

    `stopping` holds the jobs that were told to stop, `silences` the silences of running generations,
    `refused` the jobs that their nodes did not accept. `JobView` updates all three from reports.
    """

    def __init__(
        self,
        queue: JobQueue,
        *,
        class_of: Callable[[str], JobClass | None],
        spread_of: Callable[[str], float],
    ) -> None:
        self.stopping: set[JobId] = set()
        self.silences: dict[JobId, tuple[Silence, ...]] = {}
        self.refused = Backoff()
        self.group_money = GroupMoney(queue)
        self._queue, self._class_of, self._spread_of = queue, class_of, spread_of
        self._awaited = JobDependencies(queue)
        self._seen: dict[JobId, _Seen] = {}

    def jobs(self, now: float) -> Mapping[JobId, JobState]:
        """Return the states of waiting and running jobs, in order of arrival."""
        states: dict[JobId, JobState] = {}
        seen: dict[JobId, _Seen] = {}
        classes = Memo(self._class_of)
        for job in list(self._queue.active.values()):
            if job.slots:
                states[job.id] = self._state(job, now)
            elif not job.is_cancelled:
                # A waiting job rarely changes: reuse its state unless it is new, waits for another job, or
                # its money is used up. With ten thousand jobs this saves most of the work.
                job_class, known = classes[job.class_name], self._seen.get(job.id)
                is_as_it_was = known is not None and known[0] is job and known[1] is job_class
                if known is None or not is_as_it_was or (known[3] and self._may_differ(job, now)):
                    depends = bool(job.content.get("after")) or job.content.get("max_usd") is not None
                    known = (job, job_class, self._state(job, now), depends)
                seen[job.id] = known
                states[job.id] = known[2]
        self._seen = seen
        return states

    def done(self, job: JobRecord, hours: float) -> float:
        """Return the GPU-hours that a job has done after `hours` of its generation, by its class's curve."""
        before = job.size_gpu_hours - job.remaining_gpu_hours
        job_class = self._class_of(job.class_name)
        if job_class is None or job.width is None or job.started_at is None:
            return before
        size = job_class.size_gpu_hours * _scale(job)
        phase, _ = phase_at(job_class, size - before, size)
        curve = job_class.phases[phase].speedups.get(str(job.width.kind.on_demand))
        return before + (0.0 if curve is None else float(curve.speed_at(job.width.gpus)) * hours)

    def left_after(self, job: JobRecord, report: RunReport, now: float, kept: float) -> float:
        """Return the GPU-hours left of a job's original size; negative when the job did more.

        A generation worked for as long as it reports. `kept` is the fraction of its work that is not lost.
        """
        hours = generation_hours(job, now)
        if report.seconds is not None:
            hours = min(hours, report.seconds / SECONDS_PER_HOUR)
        did = self.done(job, hours) - (job.size_gpu_hours - job.remaining_gpu_hours)
        return job.remaining_gpu_hours - kept * did

    def done_by_class(self, now: float) -> Mapping[str, list[float]]:
        """Return by class the work of unfinished jobs over their scales: lower bounds of the class's size."""
        found: dict[str, list[float]] = {}
        for job in list(self._queue.active.values()):
            done = self.done(job, generation_hours(job, now)) if job.slots or job.generation else 0.0
            if done >= LEAST_DONE * job.size_gpu_hours:
                found.setdefault(job.class_name.partition("[")[0], []).append(done / _scale(job))
        return found

    def rest(self, job: JobRecord, job_class: JobClass, now: float) -> RemainingWork:
        """Return the expected remaining work of a job of a known class."""
        done = self.done(job, generation_hours(job, now))
        return remaining_work_of(
            job_class, scale=_scale(job), done=done, spread=self._spread_of(job.class_name)
        )

    def rests_until(self, job: JobRecord) -> float | None:
        """Return until when a job may not start, by its file or after failures; None when it may."""
        waits = not job.slots and job.is_active
        if not waits or (not job.failed and self.refused.of(job.id) is None):
            return job.not_before or None
        rests = JobTerms(
            failed=_failures(job), retries=Retries.of(job.content["retries"]), refused=self.refused.of(job.id)
        ).rests_until
        return max(job.not_before, rests or 0.0) or None

    def _is_broke(self, job: JobRecord, now: float) -> bool:
        """Return whether a waiting job, or its group, has used up its `max_usd`."""
        most = job.content.get("max_usd")
        if most is None:
            return False
        if job.group:
            return self.group_money.is_spent(job, now)
        return dollars(job.micro_dollars) >= float(most)

    def _may_differ(self, job: JobRecord, now: float) -> bool:
        """Return whether the state of an unchanged waiting job may differ by another job or by its money."""
        return bool(job.content.get("after")) or self._is_broke(job, now)

    def _money_ends_at(self, job: JobRecord, now: float) -> float | None:
        """Return when a job will have used up its `max_usd`, if it keeps its GPUs."""
        most = job.content.get("max_usd")
        if most is None:
            return None
        if not job.slots:
            # Any instant in the past: `now` may be slightly later than the tick's own clock reading.
            return job.arrived_at if self._is_broke(job, now) else None
        if job.group:
            return self.group_money.ends_at(job, now)
        left = float(most) - dollars(job.micro_dollars + cost_of(job, self._queue.instances, until=now))
        usd_per_hour = usd_per_hour_of(job, self._queue)
        if usd_per_hour > 0.0:
            return now + left / usd_per_hour * SECONDS_PER_HOUR
        return None if left > 0.0 else job.started_at

    def _hours_end_at(self, job: JobRecord, now: float) -> float | None:
        """Return when a job will have run for its `max_hours`, if it keeps running."""
        most = job.content.get("max_hours")
        if most is None:
            return None
        left = (
            float(most) * SECONDS_PER_HOUR - generation_hours(job, now) * SECONDS_PER_HOUR - job.ran_seconds
        )
        if job.slots:
            return now + left
        return job.arrived_at if left < LEAST_SECONDS_LEFT else None

    def _held_width(self, job: JobRecord) -> Width | None:
        """Return the width of a job, with the market that its nodes are now planned on."""
        known = self._queue.instances.get(job.slots[0].node) if job.slots else None
        if job.width is None or known is None:
            return job.width
        kind = known.node.instance_type.gpu_type
        is_same = kind_of(kind).on_demand == job.width.kind.on_demand
        return Width(kind, job.width.gpus) if is_same else job.width

    def _state(self, job: JobRecord, now: float) -> JobState:
        """Return the state of a job for a tick."""
        job_class, due = self._class_of(job.class_name), None
        if job_class is None:
            done = self.done(job, generation_hours(job, now))
            rest = RemainingWork(left=mean_left(job.size_gpu_hours, done, spread=SPREAD), phase=0, scale=1.0)
        else:
            rest = self.rest(job, job_class, now)
            due = due_of(job, job_class, rest, spread=self._spread_of(job.class_name))
        waits = not job.slots
        awaited = self._awaited.by(job) if waits else None
        return JobState(
            job=Job(
                id=job.id,
                class_name=job.class_name,
                arrived_at=job.arrived_at,
                phase=rest.phase,
                remaining_gpu_hours=rest.left,
                scale=rest.scale,
                weight=float(job.content["weight"]),
                draw=job.draw,
                width=self._held_width(job),
            ),
            slots=job.slots,
            generation=job.generation,
            is_stopping=job.id in self.stopping and bool(job.slots),
            lost_steps=job.lost_steps,
            terms=JobTerms(
                user=job.user,
                group=job.group,
                not_before=job.not_before or None,
                failures=job.failures,
                last_end=public_cause(job) if job.failures else "",
                failed=_failures(job) if waits else (),
                retries=Retries.of(job.content["retries"]) if waits and job.failed else ANY_RETRIES,
                refused=self.refused.of(job.id) if waits else None,
                silences=() if waits else self.silences.get(job.id, ()),
                money_ends_at=self._money_ends_at(job, now),
                hours_end_at=self._hours_end_at(job, now),
                waits_for=None if awaited is None else awaited[0],
                awaited_end="" if awaited is None or awaited[1] in ACTIVE else awaited[1],
                ordered_gpus=job.content.get("ordered_gpus"),
                held_by=job.content.get("held_by", ""),
                team=job.team,
                grace_seconds=float(job.content["stop_grace_seconds"]),
                due=due,
                checkpoint_gb=None if job.checkpoint_bytes is None else job.checkpoint_bytes / 1e9,
            ),
            is_rigid=job.is_rigid,
            began_at=job.started_at if job.slots else None,
            before=None if job.width_before is None else Width(*job.width_before),
        )


def generation_hours(job: JobRecord, now: float) -> float:
    """Return the hours since the job's present generation started."""
    return 0.0 if job.started_at is None else max(now - job.started_at, 0.0) / SECONDS_PER_HOUR


def _scale(job: JobRecord) -> float:
    """Return the size of a job over that of its class."""
    return float(job.content.get("scale", 1.0))


def _failures(job: JobRecord) -> tuple[Failure, ...]:
    return tuple(Failure(at=at, step=step, cause=cause) for at, step, cause in job.failed)
