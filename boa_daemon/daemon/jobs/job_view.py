"""The jobs as the tick sees them: the queue, updated from the engine's reports.

Reports are processed before the tick, so the GPUs of an ended generation are free before anything is planned.
A start whose GPUs are claimed but that the engine does not know was lost with an earlier process. It is
ordered again, which starts it at most once. When an engine does not know the state of a generation, the job
stays unchanged. A running job that makes no step for long is reported as stalled. Steps that an end lost
count as work left.

The tick decides whether a job is retried, given up, or ended because it hangs, from the facts in
`job_facts.py`. This module carries out the tick's orders.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from boa_daemon.daemon.jobs.job_facts import JobFacts, generation_hours
from boa_daemon.daemon.jobs.job_visibility import in_full
from boa_daemon.daemon.jobs.job_warnings import grace_warning, silence_warning, stall_warning
from boa_daemon.daemon.jobs.learner_feed import LearnerFeed, kept_fraction
from boa_daemon.daemon.jobs.liveness import Liveness, first_report_silence
from boa_daemon.daemon.jobs.move_preparation import MovePreparation
from boa_daemon.daemon.jobs.progress import Progress
from boa_daemon.daemon.jobs.taken_back import Classify, take_back
from boa_daemon.daemon.money.costs import spent_today
from boa_daemon.daemon.money.job_cost import cost_of
from boa_daemon.daemon.money.purses import Purses
from boa_daemon.daemon.planner.shared_gpus import start_on_gpus
from boa_daemon.learning.learner import Learner
from boa_daemon.store.queue import JobQueue
from boa_daemon.store.records import ACTIVE, JobRecord, JobStatus
from boa_daemon.tick.facts.actions import EndGeneration, GiveUpJob, StartJob, StopJob
from boa_daemon.tick.facts.ports import Accepted, Clock, PaperKeeper, Refused, Runner, RunReport
from boa_daemon.tick.facts.state import Claim, JobState, NodeState, UserMoney
from boa_daemon.tick.facts.team_money import TeamMoney
from policies.model import JobClass, JobId, NodeId, Width
from policies.online.estimates import SPREAD

MOST_FAILURES = 101
"""Largest number of a job's failures to remember: one more than any job file allows."""


class JobView:
    """Implements `JobSource` and `Engine` with the queue and a runner.

    `class_of` returns the class that a job is planned by, including limits on its width. `elastic_class`
    names the class of a job, from its file's content, once it is known to be elastic; `classify` returns the
    class of any job file. `spread_of` says how
    much the job sizes of a class vary. `alert` receives warnings and final failures. `user_caps` are the
    dollars per day (UTC) of users who have a cap.
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
        classify: Classify | None = None,
        learner: Learner | None = None,
        liveness: Liveness | None = None,
    ) -> None:
        self.learner = learner or Learner()
        self.liveness = liveness or Liveness()
        self.progress = Progress()
        self._queue, self._runner, self._clock = queue, runner, clock
        self._class_of, self._alert, self._classify = class_of, alert, classify
        self.listed: Mapping[NodeId, NodeState] = {}
        """The cloud's live nodes at the start, on which jobs may run that the database does not know."""
        self._user_caps, self._elastic_class = user_caps, elastic_class
        self._purses, self._teams = Purses(queue=queue), teams
        self.facts = JobFacts(queue, class_of=class_of, spread_of=spread_of)
        self._lessons = LearnerFeed(self.learner, self.facts, class_of)
        self._stopping = self.facts.stopping
        self._ended_for: dict[JobId, str] = {}
        self._over: set[JobId] = set()
        self._readying = MovePreparation(runner, clock, alert)

    def reattach(self) -> int:
        """Admit the claimed jobs to the engine and find those that run; return how many run."""
        for job in self._queue.active.values():
            if job.slots:
                self._runner.admit(job.spec)
        reports = self._runner.reattach()
        self._take_in(reports)
        return sum(not report.is_over for report in reports.values())

    def look(self) -> bool:
        """Update the queue from the engine's reports; return whether a generation has ended."""
        # Their ends are on disk only now. An engine that forgot a job earlier would start it again.
        for name in self._over:
            self._runner.forget(name)
        self._over.clear()
        return self._take_in(self._runner.poll())

    def jobs(self) -> Mapping[JobId, JobState]:
        """Return the jobs that wait or run, in order of arrival."""
        return self.facts.jobs(self._clock.now())

    def done_by_class(self) -> Mapping[str, list[float]]:
        """Return by class the work of unfinished jobs over their scales: lower bounds of the class's size."""
        return self.facts.done_by_class(self._clock.now())

    def users(self) -> Mapping[str, UserMoney]:
        """Return the cap and today's spending (UTC) of each user who has a cap."""
        caps = self._user_caps()
        if not caps:
            return {}
        spent = spent_today(self._queue, now=self._clock.now())
        return {name: UserMoney(cap_usd=cap, spent_usd=spent.get(name, 0.0)) for name, cap in caps.items()}

    def teams(self) -> Mapping[str, TeamMoney]:
        """Return the money of teams as of now."""
        return self._teams(self._purses, self._clock.now())

    def claims(self) -> Mapping[JobId, Claim]:
        """Return what jobs claim from the order to stop until they start, the oldest job first.

        A process that starts hears of claims in another order, and jobs are served by it.
        """
        claims, present = self._queue.claims, dict[int, tuple[JobId, Claim]]()
        for name, claim in list(claims.items()):
            job = self._queue.active.get(name)
            if job is None or job.is_cancelled or (job.slots and name not in self._stopping):
                del claims[name]
            else:
                present[job.seq] = name, claim
        return dict(present[number] for number in sorted(present))

    def _take_in(self, reports: Mapping[JobId, RunReport]) -> bool:
        """Update the queue from reports; return whether a generation has ended."""
        now = self._clock.now()
        self._end_strays(reports)
        before = self._held()
        for job in list(self._queue.active.values()):
            try:
                if job.slots:
                    self._take_in_one(job, reports.get(job.id), now)
                elif job.is_cancelled:
                    self._queue.save(replace(job, status="cancelled", ended_at=now))
                else:
                    self._settle(job, reports.get(job.id), now)
            except (SQLAlchemyError, OSError):
                raise
            except Exception as error:
                # A job whose update fails stays as it was, and does not block the others.
                what = f"job {job.id} could not be looked at: {type(error).__name__}: {error}"
                self._alert(f"unseen:{job.id}:{job.generation}:{type(error).__name__}", what)
        return self._held() < before

    def _settle(self, job: JobRecord, report: RunReport | None, now: float) -> None:
        """Record the end of a generation whose GPUs were freed earlier because its node had ended."""
        if report is not None and report.is_over and job.settled_generation < report.generation:
            self._queue.save(self._ended(replace(job, cause=f"{job.cause}; {report.evidence}"), report, now))

    def _held(self) -> int:
        """Return how many jobs hold GPUs."""
        return sum(bool(job.slots) for job in list(self._queue.active.values()))

    def _end_strays(self, reports: Mapping[JobId, RunReport]) -> None:
        """Stop jobs that run but are not in the queue, for example after a restored backup."""
        for name, report in reports.items():
            known = self._queue.active.get(name)
            if known is not None and (report.is_over or report.generation <= known.generation):
                continue
            if report.is_over:
                self._over.add(name)
            elif name not in self._stopping and self._taken_back(name):
                continue
            elif known is None and name not in self._stopping:
                self._stopping.add(name)
                self._alert(f"stray:{name}", f"job {name} runs but is not in the queue, so it is stopped")
                self._runner.stop(
                    StopJob(id=f"stray-{name}", job=name, generation=report.generation, reason="stray")
                )

    def _taken_back(self, name: JobId) -> bool:
        """Take a running job that the database does not know back from the engine's papers, if possible."""
        papers = self._runner.papers(name) if isinstance(self._runner, PaperKeeper) else None
        if papers is None or self._classify is None:
            return False
        seen = {node: record.node for node, record in self._queue.instances.items()}
        job = take_back(
            self._queue, papers, {**self.listed, **seen}, classify=self._classify, now=self._clock.now()
        )
        if job is None:
            return False
        self._runner.admit(job.spec)
        said = f"job {name} runs and the database did not know it so: it goes on, from its own papers"
        self._alert(f"taken-back:{name}:{job.generation}", said)
        return True

    def _take_in_one(self, job: JobRecord, report: RunReport | None, now: float) -> None:
        """Update one job from its report."""
        if report is not None and report.generation > job.generation:
            # The database is an older copy: never start a generation number again.
            self._runner.kill(job.id, report.generation)
            job = replace(job, generation=report.generation)
            self._let_go(job, now, end="fenced", status="queued")
        elif report is None or report.generation < job.generation:
            self._order_again(job, now)
        elif report.is_over:
            self._lessons.take(job, report, now)
            self._stopping.discard(job.id)
            self._end(self._once_reported(job, report), report, now)
        else:
            job = self._once_reported(job, report)
            self._lessons.take(job, report, now)
            if report.phase == "stopping":
                self._stopping.add(job.id)
            elif job.is_cancelled:
                # An earlier process wrote the flag and died before it gave the order.
                self._order_stop(job)
            self._watch(job, report, now)
            self._warn(grace_warning(job, report))

    def _once_reported(self, job: JobRecord, report: RunReport) -> JobRecord:
        """Return a job, marked as reporting and planned as elastic after its first step or checkpoint."""
        if job.has_reported or (report.step is None and report.manifest is None):
            return job
        job = replace(job, has_reported=True)
        if not job.is_rigid and self._elastic_class is not None:
            job = replace(job, class_name=self._elastic_class(job.content))
        self._queue.save(job)
        return job

    def _watch(self, job: JobRecord, report: RunReport, now: float) -> None:
        """Record a job's progress, and warn if it is silent or stalled."""
        begun = job.begun_step if job.step is not None else None
        since = self.liveness.take(report, begun_step=begun, now=now)
        step = job.step if report.step is None else report.step
        size = job.checkpoint_bytes if report.checkpoint_bytes is None else report.checkpoint_bytes
        gpus = 0 if job.width is None else job.width.gpus
        self.progress.take(job.id, at=now, step=report.step, loss=report.loss, gpus=gpus, use=report.gpu_use)
        if (step, since, size) != (job.step, job.stalled_since, job.checkpoint_bytes):
            self._queue.note(replace(job, step=step, stalled_since=since, checkpoint_bytes=size))
        first = first_report_silence(job, report, now=now)
        stall = None if since is None else self.liveness.silence(job.id)
        self._warn(None if first is None else silence_warning(job, first, now))
        self._warn(None if stall is None else stall_warning(job, stall, now, step=step))
        self.facts.silences[job.id] = tuple(silence for silence in (first, stall) if silence is not None)

    def _warn(self, warning: tuple[str, str] | None) -> None:
        if warning is not None:
            self._alert(*warning)

    def _order_again(self, job: JobRecord, now: float) -> None:
        """Order a start again that was claimed but never reached the engine."""
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
        """Process the end of a generation: free its GPUs and set the job's new status."""
        cause = report.evidence
        if report.was_refused:
            self.facts.refused.refused(job.id, report.evidence, now=now)
        else:
            self.facts.refused.forget(job.id)
        why = self._ended_for.pop(job.id, "")
        if not why and job.stalled_since is not None:
            # An earlier process ordered the end.
            why = f"made no step for {now - job.stalled_since:.0f} s"
        if why and report.cause == "killed":
            cause = f"{why}; {cause}"
        job = self._ended(replace(job, cause=cause, stalled_since=None), report, now)
        if report.phase == "finished":
            self._let_go(job, now, end="finished", status="finished")
        elif job.is_cancelled:
            self._let_go(job, now, end=report.phase, status="cancelled")
        elif report.phase == "stopped":
            self._let_go(job, now, end="stopped", status="queued")
        else:
            self._failed(job, report, now)

    def _ended(self, job: JobRecord, report: RunReport, now: float) -> JobRecord:
        """Return a job updated from the final report of its generation."""
        self.liveness.forget(job.id)
        self.facts.silences.pop(job.id, None)
        self._readying.forget(job.id)
        step = job.step if report.step is None else report.step
        if report.lost_steps:
            step = 0 if report.manifest is None else report.manifest.step
        kept = kept_fraction(job, report)
        gpus = 0 if job.width is None else job.width.gpus
        return replace(
            job,
            remaining_gpu_hours=self.facts.left_after(job, report, now, kept),
            lost_gpu_hours=job.lost_gpu_hours + (1.0 - kept) * gpus * generation_hours(job, now),
            step=step,
            begun_step=step or 0,
            lost_steps=job.lost_steps + report.lost_steps,
            settled_generation=report.generation,
            exit_code=report.exit_code,
            last_lines=report.last_lines,
            checkpoint_bytes=report.checkpoint_bytes or job.checkpoint_bytes,
        )

    def _failed(self, job: JobRecord, report: RunReport, now: float) -> None:
        """Record that a generation has failed; the next tick decides whether and when to retry.

        A node fault does not count as a failure of the job: the job continues elsewhere at once.
        """
        if report.cause != "node-fault":
            step = report.manifest.step if report.manifest is not None else 0
            failed = (*job.failed, (now, step, report.cause or ""))[-MOST_FAILURES:]
            job = replace(job, failures=job.failures + 1, failed=failed)
        self._let_go(job, now, end=report.cause or "failed", status="queued")

    def _let_go(self, job: JobRecord, now: float, *, end: str, status: JobStatus) -> None:
        """Free the GPUs of a job; a job that is over also reports its size to the learner."""
        spent = cost_of(job, self._queue.instances, until=now)
        with self._queue.database.write():
            if status not in ACTIVE:
                self._lessons.ended(job, now, is_whole=status == "finished")
            self._queue.release(
                job,
                at=now,
                end=end,
                status=status,
                micro_dollars=spent,
            )
        self.facts.group_money.ended(job)

    def _order_stop(self, job: JobRecord) -> Accepted | Refused:
        """Ask the engine to checkpoint and stop a job."""
        stop = StopJob(
            id=f"stop-{job.id}-{job.generation}", job=job.id, generation=job.generation, reason="ordered"
        )
        answer = self._runner.stop(stop)
        if isinstance(answer, Accepted):
            self._stopping.add(job.id)
        return answer

    def cancel(
        self, names: Sequence[JobId], note: Callable[[Sequence[JobRecord]], None] = lambda _found: None
    ) -> list[JobRecord]:
        """Mark jobs as cancelled, all or none, and stop those that run; return those that were active.

        `note` is called with these in the same transaction, if there are any.
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
            if found:
                note(found)
        for job in found:
            if job.slots:
                self._order_stop(job)
        return found

    def _on_gpus(self, action: StartJob) -> StartJob:
        """Return a start with GPU indices in place of places on shared GPUs, as engines expect it."""
        return start_on_gpus(action, self._queue.instances)

    def start(self, action: StartJob) -> Accepted | Refused:
        """Start a generation whose GPUs are claimed; free them if the engine refuses."""
        job = self._queue.active.get(action.job)
        if job is None or job.generation != action.generation or not job.slots:
            return Refused(
                reason=f"job {action.job} has no GPUs yet: an earlier generation or job still holds them"
            )
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
        """Return whether the next start of a job is prepared; until then the job runs where it is."""
        job = self._queue.active.get(action.job)
        return (
            job is None
            or action.generation != job.generation + 1
            or self._readying.is_ready(self._on_gpus(action))
        )

    def awaited_nodes(self) -> frozenset[NodeId]:
        """Return the nodes to which jobs are about to move, which therefore do not count as idle."""
        return self._readying.nodes(self._stopping)

    def stop(self, action: StopJob) -> Accepted | Refused:
        """Checkpoint and stop a job; its GPUs become free when the engine reports the end."""
        job = self._queue.active.get(action.job)
        if job is None or not job.slots or job.generation != action.generation:
            return Accepted()
        return self._order_stop(job)

    def end(self, action: EndGeneration) -> Accepted | Refused:
        """Kill a hung generation; the tick repeats this until the engine reports the end."""
        job = self._queue.active.get(action.job)
        if job is None or not job.slots or job.generation != action.generation:
            return Accepted()
        self._ended_for.setdefault(job.id, action.reason)
        if job.stalled_since is None:
            name = f"silent:{job.id}:{job.generation}"
            self._alert(name, f"job {job.id} {action.reason} and is ended")
        return self._runner.kill(job.id, job.generation)

    def give_up(self, action: GiveUpJob) -> Accepted | Refused:
        """Record that a waiting job has failed, and alert."""
        job, now = self._queue.active.get(action.job), self._clock.now()
        if job is None or job.slots or job.is_cancelled:
            return Accepted()
        began, ended = self._queue.last_run(job) or (None, now)
        # Everybody may read a tick's reason; the job's own words are for its user.
        cause = in_full(action.reason, job)
        over = replace(job, status="failed", cause=cause, started_at=began, ended_at=ended)
        with self._queue.database.write():
            self._lessons.ended(job, now, is_whole=False)
            self._queue.save(over)
        if action.code == "failed":
            self._alert(f"failed:{job.id}", f"job {job.id} failed: {action.reason}")
        elif action.code == "after":
            self._alert(f"failed:{job.id}", f"job {job.id} is not started: {action.reason}")
        elif action.code == "max-usd" and job.group:
            said = f"group {job.group} has spent its max_usd, so no more of its jobs start"
            self._alert(f"max-usd:{job.group}", said)
        return Accepted()
