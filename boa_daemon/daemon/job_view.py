"""The jobs as the tick sees them: the queue, with what the engine reports of the generations that run.

Reports come first, then the tick: a generation that has ended lets its GPUs go before anything is planned. A
start whose GPUs are claimed and that the engine does not know was lost with an earlier process; it is ordered
once more, which starts it at most once. An engine that does not know how a generation does is believed:
nothing happens to the job. One that runs and makes no step for long is stalled: it is said, and later it is
ended and
started again as after any failure. Steps that an end lost are work that is left again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from boa_daemon.daemon.costs import spent_today
from boa_daemon.daemon.dates import due_of
from boa_daemon.daemon.group_money import GroupMoney, usd_per_hour_of
from boa_daemon.daemon.liveness import Liveness
from boa_daemon.daemon.node_view import cost_of
from boa_daemon.daemon.progress import Progress
from boa_daemon.daemon.purses import Purses
from boa_daemon.daemon.readying import Readying
from boa_daemon.daemon.shared_gpus import on_gpus
from boa_daemon.engines.breaker import Failure, GiveUp, RestartBreaker
from boa_daemon.engines.patience import Patience
from boa_daemon.inputs.job_file import DEFAULT_RETRIES
from boa_daemon.learning.beliefs import Rest, phase_at, rest_of
from boa_daemon.learning.learner import Learner
from boa_daemon.learning.speedups import over_first_phase
from boa_daemon.store.groups import find_group, statuses
from boa_daemon.store.queue import JobQueue
from boa_daemon.store.records import ACTIVE, JobRecord, JobStatus
from boa_daemon.tick.actions import StartJob, StopJob
from boa_daemon.tick.ports import Accepted, Clock, Refused, Runner, RunReport
from boa_daemon.tick.state import JobState, JobTerms, UserMoney
from boa_daemon.tick.team_money import TeamMoney
from boa_daemon.units import SECONDS_PER_HOUR, dollars, format_hours
from policies.links.machines import off_market
from policies.model import Job, JobClass, JobId, NodeId, Width
from policies.online.estimates import SPREAD, mean_left

BREAKER_SECONDS = 30 * 86_400.0
"""Failures without a new checkpoint in between count together for a month: each of them costs money."""
MOST_FAILURES = 101
"""So many failures of a job are remembered: one more than any job file allows."""
SILENT_HOURS = 2.0
"""A job that says that it reports is ended after so long without a step and without a printed line."""
MOST_OF_GRACE = 0.7
"""A save that takes more of the grace than this may miss its end: a stop is heard a step later."""
LEAST_DONE = 0.01
"""What did less than this part of its size says nothing about it."""


def first_report_limit(job: JobRecord) -> tuple[float, str] | None:
    """Return the hours that a job has for its first step, and what else it must not have done in them.

    None where it has no limit: what never said that it reports may be silent.
    """
    said = job.content.get("first_report_hours")
    if said is not None:
        return float(said), ""
    return None if job.is_rigid else (SILENT_HOURS, " and printed nothing")


class Work:
    """Implements `JobSource` and `Engine` around the queue and a runner.

    `class_of` names the class that a job is planned by, limits on its width included; `elastic_class` names
    that of a job, by the content of its file, once it is known to be elastic. `spread_of` says how much the
    sizes of its jobs differ. `alert` is told of jobs that failed for good. `user_caps` are the dollars per
    day (UTC) of users who have a cap.
    """

    def __init__(
        self,
        queue: JobQueue,
        runner: Runner,
        clock: Clock,
        *,
        class_of: Callable[[str], JobClass | None],
        elastic_class: Callable[[Mapping[str, Any]], str] | None = None,
        spread_of: Callable[[str], float] = lambda _name: SPREAD,
        user_caps: Callable[[], Mapping[str, float]] = dict,
        teams: Callable[[Purses, float], Mapping[str, TeamMoney]] = lambda _purses, _now: {},
        alert: Callable[[str, str], None] = lambda _key, _sentence: None,
        learner: Learner | None = None,
        liveness: Liveness | None = None,
    ) -> None:
        self.learner = learner or Learner()
        self.liveness = liveness or Liveness()
        self.progress = Progress()
        self._queue, self._runner, self._clock = queue, runner, clock
        self._group_money = GroupMoney(queue)
        self._class_of, self._spread_of, self._alert = class_of, spread_of, alert
        self._user_caps, self._elastic_class = user_caps, elastic_class
        self._purses, self._teams = Purses(queue=queue), teams
        self._killed_for: dict[JobId, str] = {}
        self._refused = Patience()
        self._ended_as: dict[JobId, JobStatus] = {}
        self._stopping: set[JobId] = set()
        self._over: set[JobId] = set()
        self._readying = Readying(runner, clock, alert)
        self._seen: dict[JobId, tuple[JobRecord, JobClass | None, JobState]] = {}

    def reattach(self) -> int:
        """Tell the engine what it may have to run, find what runs already; return how many jobs do."""
        for job in self._queue.active.values():
            if job.slots:
                self._runner.admit(job.spec)
        reports = self._runner.reattach()
        self._take_in(reports)
        return sum(not report.is_over for report in reports.values())

    def look(self) -> bool:
        """Bring the queue up to what the engine reports; return whether a generation has ended."""
        # Only now is it on disk that they are over: an engine that forgets earlier would start them again.
        for name in self._over:
            self._runner.forget(name)
        self._over.clear()
        return self._take_in(self._runner.poll())

    def jobs(self) -> Mapping[JobId, JobState]:
        """Return the jobs that wait or run, in order of arrival."""
        now = self._clock.now()
        states: dict[JobId, JobState] = {}
        seen: dict[JobId, tuple[JobRecord, JobClass | None, JobState]] = {}
        for job in list(self._queue.active.values()):
            if job.slots:
                states[job.id] = self._state(job, now)
            elif not job.is_cancelled:
                # One that waits is as it was: of ten thousand only those are looked at that are new, or that
                # wait for another job.
                job_class, known = self._class_of(job.class_name), self._seen.get(job.id)
                is_as_it_was = known is not None and known[0] is job and known[1] is job_class
                if known is None or not is_as_it_was or job.content.get("after"):
                    known = (job, job_class, self._state(job, now))
                seen[job.id] = known
                states[job.id] = known[2]
        self._seen = seen
        return states

    def users(self) -> Mapping[str, UserMoney]:
        """Return what users with a cap of their own have spent today (UTC)."""
        caps = self._user_caps()
        if not caps:
            return {}
        spent = spent_today(self._queue, now=self._clock.now())
        return {name: UserMoney(cap_usd=cap, spent_usd=spent.get(name, 0.0)) for name, cap in caps.items()}

    def teams(self) -> Mapping[str, TeamMoney]:
        """Return the purses of teams as of now."""
        return self._teams(self._purses, self._clock.now())

    def awaited(self, job: JobRecord) -> tuple[JobId, JobStatus] | None:
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
                return name, self._ended_as[name]
        return None

    def _status_of(self, name: str) -> JobStatus:
        """Return how a job is, or a group: as its first member that is not over, or has not ended well."""
        job = self._queue.active.get(name) or self._queue.job(name)
        group = None if job is not None else find_group(self._queue, name)
        if group is None:
            return "failed" if job is None else job.status
        found = statuses(self._queue, group).values()
        ends = [status for status in found if status not in ACTIVE and status != "finished"]
        return next((status for status in found if status in ACTIVE), ends[0] if ends else "finished")

    def _waits_for(self, job: JobRecord) -> JobId | None:
        """Return the job that has to end before this one may start; None for none."""
        found = None if job.slots else self.awaited(job)
        return None if found is None else found[0]

    def _give_up(self, job: JobRecord, now: float) -> bool:
        """End a job that waits for what will not come: another job, or money; return whether that is so."""
        if job.content.get("after") and self._give_up_waiting(job, now):
            return True
        if not self._group_money.is_spent(job, now):
            return False
        cause = f"the max_usd of its group {job.group} is spent"
        self._queue.save(replace(job, status="failed", cause=cause, ended_at=now))
        self._alert(
            f"max-usd:{job.group}", f"group {job.group} has cost its max_usd: no more of it is started"
        )
        return True

    def _give_up_waiting(self, job: JobRecord, now: float) -> bool:
        """End a job that waits for one that has not ended well; return whether that is so."""
        found = self.awaited(job)
        if found is None or found[1] in ACTIVE:
            return False
        cause = f"it was to run after {found[0]}, which is {found[1]}"
        self._queue.save(replace(job, status="failed", cause=cause, ended_at=now))
        self._alert(f"failed:{job.id}", f"job {job.id} is not started: {cause}")
        return True

    def _take_in(self, reports: Mapping[JobId, RunReport]) -> bool:
        """Bring the queue up to reports; return whether a generation has ended."""
        now = self._clock.now()
        self._end_strays(reports)
        before = self._held()
        for job in list(self._queue.active.values()):
            try:
                if job.slots:
                    self._take_in_one(job, reports.get(job.id), now)
                elif job.is_cancelled:
                    self._queue.save(replace(job, status="cancelled", ended_at=now))
                elif not self._give_up(job, now):
                    self._settle(job, reports.get(job.id), now)
            except (SQLAlchemyError, OSError):
                raise
            except Exception as error:
                # One job that cannot be looked at keeps no other from it; it stays as it was.
                what = f"job {job.id} could not be looked at: {type(error).__name__}: {error}"
                self._alert(f"unseen:{job.id}:{job.generation}:{type(error).__name__}", what)
        return self._held() < before

    def _settle(self, job: JobRecord, report: RunReport | None, now: float) -> None:
        """Take in how a generation ended whose GPUs were let go before that, because its node had ended."""
        if report is not None and report.is_over and job.settled_generation < report.generation:
            self._queue.save(self._ended(replace(job, cause=f"{job.cause}; {report.evidence}"), report, now))

    def _held(self) -> int:
        """Return how many jobs hold GPUs."""
        return sum(bool(job.slots) for job in list(self._queue.active.values()))

    def _end_strays(self, reports: Mapping[JobId, RunReport]) -> None:
        """Stop what runs and is not in the queue, as after an old copy of the database came back."""
        for name, report in reports.items():
            if name in self._queue.active:
                continue
            if report.is_over:
                self._over.add(name)
            elif name not in self._stopping:
                self._stopping.add(name)
                self._alert(f"stray:{name}", f"job {name} runs and is not in the queue: it is stopped")
                self._runner.stop(
                    StopJob(id=f"stray-{name}", job=name, generation=report.generation, reason="stray")
                )

    def _take_in_one(self, job: JobRecord, report: RunReport | None, now: float) -> None:
        """Bring one job up to its report."""
        if report is not None and report.generation > job.generation:
            # An older copy of the database: never start a generation that was started already.
            self._runner.kill(job.id, report.generation)
            job = replace(job, generation=report.generation)
            self._let_go(job, now, end="fenced", status="queued")
        elif report is None or report.generation < job.generation:
            self._order_again(job, now)
        elif report.is_over:
            self._learn(job, report, now)
            self._stopping.discard(job.id)
            self._end(self._once_reported(job, report), report, now)
        else:
            job = self._once_reported(job, report)
            self._learn(job, report, now)
            if report.phase == "stopping":
                self._stopping.add(job.id)
            elif job.is_cancelled:
                # The flag is written before the order: a process that died between the two left it to us.
                self._order_stop(job)
            self._watch(job, report, now)
            self._warn_of_grace(job, report)

    def _once_reported(self, job: JobRecord, report: RunReport) -> JobRecord:
        """Return a job that its first step or checkpoint has shown to be elastic, and is planned as that."""
        if job.has_reported or (report.step is None and report.manifest is None):
            return job
        job = replace(job, has_reported=True)
        if not job.is_rigid and self._elastic_class is not None:
            job = replace(job, class_name=self._elastic_class(job.content))
        self._queue.save(job)
        return job

    def _watch(self, job: JobRecord, report: RunReport, now: float) -> None:
        """Note how far a job is, and whether it still gets on; end one that has not for long."""
        begun = job.begun_step if job.step is not None else None
        since = self.liveness.take(report, begun_step=begun, now=now)
        step = job.step if report.step is None else report.step
        gpus = 0 if job.width is None else job.width.gpus
        self.progress.take(job.id, at=now, step=report.step, loss=report.loss, gpus=gpus)
        if (step, since) != (job.step, job.stalled_since):
            self._queue.note(replace(job, step=step, stalled_since=since))
        self._watch_first_report(job, report, now)
        if since is None:
            return
        still = f"job {job.id} has made no step for {now - since:.0f} s"
        self._alert(f"stalled:{job.id}:{job.generation}", f"{still}, after step {step}")
        if self.liveness.is_hopeless(job.id, now=now):
            self._runner.kill(job.id, job.generation)

    def _warn_of_grace(self, job: JobRecord, report: RunReport) -> None:
        """Say that a save takes most of the grace, before a stop comes and it is too late."""
        grace = float(job.content["stop_grace_seconds"])
        if report.save_seconds is not None and report.save_seconds > MOST_OF_GRACE * grace:
            self._alert(
                f"grace:{job.id}",
                f"job {job.id} takes {report.save_seconds:.0f} s to save a checkpoint and has {grace:.0f} s "
                "when it is stopped: raise its stop_grace_seconds, or its last steps are lost",
            )

    def _watch_first_report(self, job: JobRecord, report: RunReport, now: float) -> None:
        """End a generation that has reported no step within its time; say so when half of it is over."""
        found = first_report_limit(job)
        if found is None or report.step is not None:
            return
        (most, how), hours = found, self._hours(job, now)
        if how:
            if report.quiet_seconds is None or report.phase != "running":
                return
            hours = min(hours, report.quiet_seconds / SECONDS_PER_HOUR)
        name, silent = f"silent:{job.id}:{job.generation}", f"reported no step{how} within"
        if most / 2.0 < hours <= most and how:
            ends = f"it is ended after {format_hours(most)}, if its first_report_hours does not say more"
            self._alert(name, f"job {job.id} {silent} {format_hours(most / 2.0)}: {ends}")
        if hours <= most:
            return
        why = f"{silent} {format_hours(most)} (first_report_hours)"
        if job.id not in self._killed_for:
            self._killed_for[job.id] = why
            self._alert(name, f"job {job.id} {why} and is ended")
        self._runner.kill(job.id, job.generation)

    def _learn(self, job: JobRecord, report: RunReport, now: float) -> None:
        """Let a report say how fast the job's class is at its width."""
        if job.width is not None and report.phase != "unknown":
            job_class, factor = self._class_of(job.class_name), 1.0
            if job_class is not None and len(job_class.phases) > 1:
                factor = over_first_phase(job_class, self._rest(job, job_class, now).phase, job.width)
            name = job.class_name.partition("[")[0]
            self.learner.take(report, class_name=name, width=job.width, now=now, over_first_phase=factor)

    def _order_again(self, job: JobRecord, now: float) -> None:
        """Order a start that was claimed and never reached the engine."""
        width = job.width or Width("gpu", len(job.slots))
        start = StartJob(
            id=f"again-{job.id}-{job.generation}",
            job=job.id,
            generation=job.generation,
            width=width,
            slots=job.slots,
            reason="ordered again: the engine does not know it",
        )
        self._runner.admit(job.spec)
        if isinstance(self._runner.start(self._on_gpus(start)), Refused):
            self._let_go(job, now, end="never-started", status="queued")

    def _end(self, job: JobRecord, report: RunReport, now: float) -> None:
        """A generation has ended: free its GPUs, and say what becomes of the job."""
        cause = report.evidence
        if not report.was_refused:
            self._refused.forget(job.id)
        if job.stalled_since is not None and report.cause == "killed":
            cause = f"made no step for {now - job.stalled_since:.0f} s; {cause}"
        why = self._killed_for.pop(job.id, "")
        if why and report.cause == "killed":
            cause = f"{why}; {cause}"
        job = self._ended(replace(job, cause=cause, stalled_since=None), report, now)
        if report.phase == "finished":
            self._let_go(job, now, end="finished", status="finished")
        elif job.is_cancelled:
            self._let_go(job, now, end=report.phase, status="cancelled")
        elif report.phase == "stopped":
            limit = self._limit_reached(job, now)
            if limit:
                end, of = limit.replace("_", "-"), " of its group" if job.group and limit == "max_usd" else ""
                self._let_go(replace(job, cause=f"{limit}{of} reached"), now, end=end, status="failed")
            else:
                if report.was_refused:
                    job = replace(job, not_before=self._refused.refused(job.id, report.evidence, now=now))
                self._let_go(job, now, end="stopped", status="queued")
        else:
            self._fail(job, report, now)

    def _ended(self, job: JobRecord, report: RunReport, now: float) -> JobRecord:
        """Return a job with what the report of its generation's end says."""
        self.liveness.forget(job.id)
        self._readying.forget(job.id)
        step = job.step if report.step is None else report.step
        if report.lost_steps:
            step = 0 if report.manifest is None else report.manifest.step
        kept = _kept_fraction(job, report)
        gpus = 0 if job.width is None else job.width.gpus
        return replace(
            job,
            remaining_gpu_hours=self._left_after(job, report, now, kept),
            lost_gpu_hours=job.lost_gpu_hours + (1.0 - kept) * gpus * self._hours(job, now),
            step=step,
            begun_step=step or 0,
            lost_steps=job.lost_steps + report.lost_steps,
            settled_generation=report.generation,
            exit_code=report.exit_code,
            last_lines=report.last_lines,
        )

    def _fail(self, job: JobRecord, report: RunReport, now: float) -> None:
        """A generation has failed: ask the breaker whether the job is tried again, and when.

        A fault of its node is none of the job's: it is not counted, and the job goes on elsewhere at once.
        """
        if report.cause == "node-fault":
            self._let_go(job, now, end="node-fault", status="queued")
            return
        step = report.manifest.step if report.manifest is not None else 0
        failed = (*job.failed, (now, step, report.cause or ""))[-MOST_FAILURES:]
        job = replace(job, failures=job.failures + 1, failed=failed)
        so_far = [Failure(at=at, step=at_step, cause=cause) for at, at_step, cause in failed]
        verdict = _breaker(job.content["retries"]).judge(replace(report, evidence=job.cause), so_far)
        if isinstance(verdict, GiveUp):
            job = replace(job, cause=verdict.reason)
            self._let_go(job, now, end=report.cause or "failed", status="failed")
            self._alert(f"failed:{job.id}", f"job {job.id} failed: {job.cause}")
        else:
            job = replace(job, not_before=verdict.not_before)
            self._let_go(job, now, end=report.cause or "failed", status="queued")

    def _let_go(self, job: JobRecord, now: float, *, end: str, status: JobStatus) -> None:
        """Free the GPUs of a job; one that is over says with it how large it was."""
        spent = cost_of(job, self._queue.instances, until=now)
        with self._queue.database.write():
            if status not in ACTIVE:
                self._sized(job, now, is_whole=status == "finished")
            self._queue.release(
                job,
                at=now,
                end=end,
                status=status,
                micro_dollars=spent,
            )
        self._group_money.ended(job)

    def _sized(self, job: JobRecord, now: float, *, is_whole: bool) -> None:
        """Note what a job did in all, where it was enough to say something."""
        done = job.size_gpu_hours - job.remaining_gpu_hours
        if done < LEAST_DONE * job.size_gpu_hours and not is_whole:
            return
        self.learner.ended(
            job.id,
            class_name=job.class_name.partition("[")[0],
            work_gpu_hours=done / float(job.content.get("scale", 1.0)),
            at=now,
            is_whole=is_whole,
        )

    def _money_ends_at(self, job: JobRecord, now: float) -> float | None:
        """Return when a job has cost what its file allows, if it holds its GPUs until then."""
        most = job.content.get("max_usd")
        if most is None:
            return None
        if job.group:
            return self._group_money.ends_at(job, now)
        left = float(most) - dollars(job.micro_dollars + cost_of(job, self._queue.instances, until=now))
        usd_per_hour = usd_per_hour_of(job, self._queue)
        if usd_per_hour > 0.0:
            # An instant in the past where it is used up: the tick read its clock before this was asked.
            return now + left / usd_per_hour * SECONDS_PER_HOUR
        return None if left > 0.0 else job.started_at

    def _hours_end_at(self, job: JobRecord, now: float) -> float | None:
        """Return when a job has run for as long as its file allows, if it runs until then."""
        most = job.content.get("max_hours")
        if most is None:
            return None
        return now + (float(most) - self._hours(job, now)) * SECONDS_PER_HOUR - job.ran_seconds

    def _limit_reached(self, job: JobRecord, now: float) -> str:
        """Return which limit of its file a job has reached, `max_usd` or `max_hours`; empty for none."""
        ends = {"max_usd": self._money_ends_at(job, now), "max_hours": self._hours_end_at(job, now)}
        return next((name for name, at in ends.items() if at is not None and at <= now), "")

    def _order_stop(self, job: JobRecord) -> Accepted | Refused:
        """Ask the engine for a checkpoint and an end."""
        stop = StopJob(
            id=f"stop-{job.id}-{job.generation}", job=job.id, generation=job.generation, reason="ordered"
        )
        answer = self._runner.stop(stop)
        if isinstance(answer, Accepted):
            self._stopping.add(job.id)
        return answer

    def cancel(self, names: Sequence[JobId]) -> list[JobRecord]:
        """Write down that jobs are not wanted any more, all or none, and stop those that run.

        Those that were not over are returned as they are then.
        """
        found: list[JobRecord] = []
        with self._queue.database.write():
            now = self._clock.now()
            for name in names:
                job = self._queue.active.get(name)
                if job is None:
                    continue
                job = replace(job, is_cancelled=True)
                if not job.slots:
                    job = replace(job, status="cancelled", ended_at=now)
                self._queue.save(job)
                found.append(job)
        for job in found:
            if job.slots:
                self._order_stop(job)
        return found

    def _on_gpus(self, action: StartJob) -> StartJob:
        """Return a start as an engine takes it: with GPUs for places."""
        return on_gpus(action, self._queue.instances)

    def start(self, action: StartJob) -> Accepted | Refused:
        """Start a generation whose GPUs are claimed; let them go if the engine refuses."""
        job = self._queue.active.get(action.job)
        if job is None or job.generation != action.generation or not job.slots:
            return Refused(reason=f"job {action.job}, or who holds its GPUs, has yet to let go")
        answer = self._runner.admit(job.spec)
        if isinstance(answer, Accepted):
            answer = self._runner.start(self._on_gpus(action))
        if isinstance(answer, Refused):
            is_final = answer.kind == "bad-request"
            self._let_go(
                replace(job, cause=answer.reason),
                self._clock.now(),
                end="refused",
                status="failed" if is_final else "queued",
            )
        return answer

    def is_ready_for(self, action: StartJob) -> bool:
        """Return whether a job may be stopped for its next start; it goes on where it is until then."""
        job = self._queue.active.get(action.job)
        return (
            job is None
            or action.generation != job.generation + 1
            or self._readying.is_ready(self._on_gpus(action))
        )

    def awaited_nodes(self) -> frozenset[NodeId]:
        """Return the nodes to which jobs are about to move: those are not idle."""
        return self._readying.nodes(self._stopping)

    def stop(self, action: StopJob) -> Accepted | Refused:
        """Checkpoint and stop a job; its GPUs are free once the engine says so."""
        job = self._queue.active.get(action.job)
        if job is None or not job.slots or job.generation != action.generation:
            return Accepted()
        return self._order_stop(job)

    def _size(self, job: JobRecord, job_class: JobClass) -> float:
        """Return the size that a job is believed to have: its class's as of now times its scale."""
        return job_class.size_gpu_hours * float(job.content.get("scale", 1.0))

    def _held_width(self, job: JobRecord) -> Width | None:
        """Return the width of a job, on the market that its nodes are planned on by now."""
        known = self._queue.instances.get(job.slots[0].node) if job.slots else None
        if job.width is None or known is None:
            return job.width
        kind = known.node.instance_type.gpu_type
        is_same = off_market(kind) == off_market(job.width.gpu_type)
        return Width(kind, job.width.gpus) if is_same else job.width

    def _done(self, job: JobRecord, hours: float) -> float:
        """Return what a job has done once its generation has worked for so long, by the class's curve."""
        before = job.size_gpu_hours - job.remaining_gpu_hours
        job_class = self._class_of(job.class_name)
        if job_class is None or job.width is None or job.started_at is None:
            return before
        size = self._size(job, job_class)
        phase, _ = phase_at(job_class, size - before, size)
        curve = job_class.phases[phase].speedups.get(off_market(job.width.gpu_type))
        return before + (0.0 if curve is None else float(curve.speed_at(job.width.gpus)) * hours)

    def _hours(self, job: JobRecord, now: float) -> float:
        """Return how long the generation of a job has been there."""
        return 0.0 if job.started_at is None else max(now - job.started_at, 0.0) / SECONDS_PER_HOUR

    def _left_after(self, job: JobRecord, report: RunReport, now: float, kept: float) -> float:
        """Return the work left of the size that a job came with; below nothing where it did more.

        A generation worked for as long as it reports. What is not kept of it is left again.
        """
        hours = self._hours(job, now)
        if report.seconds is not None:
            hours = min(hours, report.seconds / SECONDS_PER_HOUR)
        did = self._done(job, hours) - (job.size_gpu_hours - job.remaining_gpu_hours)
        return job.remaining_gpu_hours - kept * did

    def done_by_class(self) -> Mapping[str, list[float]]:
        """Return by class what jobs that are not over have done, over their scales: bounds of sizes."""
        now = self._clock.now()
        found: dict[str, list[float]] = {}
        for job in list(self._queue.active.values()):
            done = self._done(job, self._hours(job, now)) if job.slots or job.generation else 0.0
            if done >= LEAST_DONE * job.size_gpu_hours:
                scale = float(job.content.get("scale", 1.0))
                found.setdefault(job.class_name.partition("[")[0], []).append(done / scale)
        return found

    def _rest(self, job: JobRecord, job_class: JobClass, now: float) -> Rest:
        """Return what is believed to be left of a job of a known class."""
        done = self._done(job, self._hours(job, now))
        scale = float(job.content.get("scale", 1.0))
        return rest_of(job_class, scale=scale, done=done, spread=self._spread_of(job.class_name))

    def _state(self, job: JobRecord, now: float) -> JobState:
        """Return what a tick may see of a job."""
        job_class, due = self._class_of(job.class_name), None
        if job_class is None:
            done = self._done(job, self._hours(job, now))
            rest = Rest(left=mean_left(job.size_gpu_hours, done, spread=SPREAD), phase=0, scale=1.0)
        else:
            rest = self._rest(job, job_class, now)
            due = due_of(job, job_class, rest, spread=self._spread_of(job.class_name))
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
            is_stopping=job.id in self._stopping and bool(job.slots),
            lost_steps=job.lost_steps,
            terms=JobTerms(
                user=job.user,
                rests_until=job.not_before or None,
                failures=job.failures,
                last_end=job.cause if job.failures else "",
                money_ends_at=self._money_ends_at(job, now) if job.slots else None,
                hours_end_at=self._hours_end_at(job, now) if job.slots else None,
                waits_for=self._waits_for(job),
                ordered_gpus=job.content.get("ordered_gpus"),
                team=job.team,
                grace_seconds=float(job.content["stop_grace_seconds"]),
                due=due,
            ),
            is_rigid=job.is_rigid,
        )


def _breaker(retries: int | Mapping[str, int]) -> RestartBreaker:
    """Return the breaker for the `retries` of a job file."""
    if isinstance(retries, int):
        return RestartBreaker(most_failures=retries + 1, window_seconds=BREAKER_SECONDS)
    by_cause = {cause: number + 1 for cause, number in retries.items()}
    return RestartBreaker(
        most_failures=DEFAULT_RETRIES + 1, window_seconds=BREAKER_SECONDS, most_by_cause=by_cause
    )


def _kept_fraction(job: JobRecord, report: RunReport) -> float:
    """Return how much of what a generation did is kept: all, or what its newest checkpoint holds.

    A rigid job that ended without a checkpoint begins anew.
    """
    if report.phase == "finished":
        return 1.0
    if job.is_rigid and report.manifest is None:
        return 0.0
    if report.lost_steps and report.step is not None:
        return max(1.0 - report.lost_steps / max(report.step - job.begun_step, 1), 0.0)
    return 1.0
