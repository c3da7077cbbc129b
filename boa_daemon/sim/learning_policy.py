"""A policy that learns during a run: the daemon's own learning step, in the same ticks.

The world reports to it what an engine would: the arrived jobs, each job's progress and speed, and the ended
jobs. Its beliefs about classes and about a job's remaining work are estimated from these reports alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random

from boa_daemon.learning.beliefs import Beliefs, ClassBelief, EvidenceWeights, remaining_work_of, work_until
from boa_daemon.learning.budget_watch import BudgetWatch
from boa_daemon.learning.learner import STRETCH_SECONDS
from boa_daemon.learning.learning_step import LearningStep, LearntClasses
from boa_daemon.learning.speedups import SpeedSample, over_first_phase
from boa_daemon.learning.width_trials import ExploringAllocator, GpuHourWorth
from boa_daemon.sim.jobs import SimulatedJobs
from boa_daemon.sim.simulated_job import SimulatedJob
from boa_daemon.tick.decide.decision import Decision
from boa_daemon.tick.facts.state import ClusterState
from boa_daemon.tick.money.ledger import money_of
from boa_daemon.units import SECONDS_PER_HOUR
from policies.answer import Allocation
from policies.fast_dataclasses import field_replacer, replace
from policies.model import Job, JobClass, JobId, Money, Width
from policies.online.best_effort import Account
from policies.protocols import Allocator
from policies.registry import PolicyOptions, Site, build_policy

AGAIN_SECONDS = 300.0
"""Seconds between estimates: less often than in the daemon, because simulated time must pass quickly."""
LATE_SECONDS = float("inf")
"""The same for a class of which little was seen: nobody looks at its figures."""
LOOK_SECONDS = 60.0
"""Seconds between two reports of a job's speed, unless its class tries a width: rows are of an hour in any
case."""
TRY_TICK_SECONDS = 60.0
"""Seconds until the next tick while a job tries a width or is the first of its class, after the end of a try,
and after a new plan."""


class LearningPolicy:
    """Implement `Allocator`: the named policy for the site, rebuilt when its beliefs have changed.

    `noise` is the spread of the speeds that jobs report. Pass `watch` to the run, so that it sees every tick.
    """

    def __init__(
        self,
        name: str,
        site: Site,
        options: PolicyOptions,
        *,
        jobs: SimulatedJobs,
        weights: EvidenceWeights | None = None,
        noise: float = 0.05,
        seed: int = 0,
    ) -> None:
        self.classes = LearntClasses({c.name: c for c in site.problem.classes})
        beliefs = Beliefs(
            weights=weights or EvidenceWeights(), again_seconds=AGAIN_SECONDS, late_seconds=LATE_SECONDS
        )
        self.learning = LearningStep(beliefs=beliefs, at_once=False)
        self._looks_at = float("-inf")
        self._now = 0.0
        self._running: Mapping[JobId, SimulatedJob] = {}
        self.plans = 1
        self._name, self._site, self._options = name, site, options
        self._planned_for = site
        self._jobs, self._noise, self._random = jobs, noise, Random(f"{seed}/reports")
        self._seen: dict[JobId, tuple[str, float]] = {}
        self._looked_at: dict[JobId, tuple[int, float]] = {}
        self._watch = BudgetWatch()
        self._base: Allocator | None = None
        self._told_of: dict[JobId, tuple[Job, Job]] = {}
        self._told_by: dict[str, ClassBelief] = {}
        self._tried: frozenset[str] = frozenset()

    def allocate(self, jobs: Sequence[Job], *, now: float, money: Money | None = None) -> Allocation:
        """Return the policy's allocation for the believed remaining work of the jobs."""
        if self._base is None:
            account = self._watch.look(
                self._name,
                self._site,
                self._options,
                now=now,
                spent=lambda: 0.0 if money is None else money.spent,
            )
            self._base = build_policy(self._name, self._site, self._options, account=account).allocator
        self._now = now
        tries = self.learning.tries.explorations if self._watch.account is None else {}
        self._running = self._jobs.running
        told = [self._told(job) for job in jobs]
        if not tries:
            return self._base.allocate(told, now=now, money=money)
        return ExploringAllocator(base=self._base, tries=tries).allocate(told, now=now, money=money)

    def alone(self, job: Job) -> Width | None:
        """Return the width of one job at the planned multiplier."""
        assert self._base is not None, "a job runs, so there was a tick"
        self._running = self._jobs.running
        told = self._as_believed(job)
        alone: Callable[[Job], Width] | None = getattr(self._base, "alone", None)
        if alone is not None:
            return alone(told)
        return self._base.allocate((told,), now=self._now).widths.get(job.id)

    def keeps_until(self, job: Job) -> int:
        """Return the first later phase in which `alone` may change the job's current width.

        It is the phase that begins when the job, as it is believed, may have reached such a phase.
        """
        keeps_until: Callable[[Job], int] | None = getattr(self._base, "keeps_until", None)
        self._running = self._jobs.running
        running = self._running.get(job.id)
        if keeps_until is None or running is None or self.learning.tries.explorations:
            return job.phase + 1
        told = self._as_believed(job)
        work = work_until(self.classes.planned[job.class_name], told, keeps_until(told)) * SECONDS_PER_HOUR
        sizes, phase = running.physics.sizes, job.phase
        work -= running.left - sizes[phase] * running.trace.scale
        while phase < len(sizes) and work > 0.0:
            work -= sizes[phase] * running.trace.scale
            phase += 1
        return max(phase, job.phase + 1)

    def _told(self, job: Job) -> Job:
        """Return a job as the policy sees it; a job that has not changed since is not asked about again."""
        known = self._told_of.get(job.id)
        if known is None or known[0] is not job:
            known = self._told_of[job.id] = job, self._as_believed(job)
        return known[1]

    def _as_believed(self, job: Job) -> Job:
        """Return a job with the remaining work that follows from its class's believed size."""
        running = self._running.get(job.id)
        if running is None:
            return job
        done = _work(running) - job.remaining_gpu_hours / running.told_size
        spread = self.learning.beliefs.spread_of(job.class_name)
        rest = remaining_work_of(
            self.classes.planned[job.class_name], scale=job.scale, done=done, spread=spread
        )
        return _with_rest(job, rest.left, rest.phase, rest.scale)

    def watch(self, decision: Decision) -> None:
        """Learn from a tick: arrivals, ends and speeds of jobs; plan anew if beliefs have changed enough."""
        now, present, plans = decision.state.now, decision.state.jobs, self.plans
        self._tried = self.learning.tries.classes
        for job in [job for job in self._seen if job not in present]:
            class_name, work = self._seen.pop(job)
            self._told_of.pop(job, None)
            self._looked_at.pop(job, None)
            self.learning.learner.ended(
                job, class_name=class_name, work_gpu_hours=work, at=now, is_whole=True
            )
        for job, state in present.items():
            running = self._jobs.running.get(job)
            if running is None:
                continue
            if job not in self._seen:
                self._seen[job] = (state.job.class_name, _work(running) / state.job.scale)
                self.learning.learner.arrived(state.job.class_name, state.job.arrived_at)
            self._measure(job, running, now)
        estimated = self.learning.beliefs.estimates
        if self.learning.follow(self.classes, partial(self._done_by_class, decision), now=now):
            self._plan_anew(decision)
            self._told_of.clear()
        elif self.learning.beliefs.estimates != estimated:
            self._forget_told()
        self._look_at_the_budget(decision)
        if self._explore(decision, now) or self.plans > plans:
            self._look_again(now)

    def _forget_told(self) -> None:
        """Let jobs of newly estimated classes be believed anew: how far their sizes spread has changed."""
        before, known = self._told_by, self.learning.beliefs.known
        changed = {name for name, belief in known.items() if belief is not before.get(name)}
        self._told_by = dict(known)
        for job in [job for job, (_, told) in self._told_of.items() if told.class_name in changed]:
            del self._told_of[job]

    def _explore(self, decision: Decision, now: float) -> bool:
        """Let jobs try widths, as the daemon does; return whether a decision should follow soon."""
        worth = GpuHourWorth.of(decision.plan.node_prices, self._site.instance_types)
        tries, jobs = self.learning.tries, decision.state.jobs
        had_tries = bool(tries.explorations)
        if worth is None or tries.fraction <= 0.0:
            return False
        self.learning.explore(self.classes, lambda: jobs, worth=worth, now=now, believed=self._told)
        measured = {name for name, _ in self.classes.curves}
        is_new = any(state.slots and state.job.class_name not in measured for state in jobs.values())
        return is_new or had_tries or bool(tries.explorations)

    def _look_again(self, now: float) -> None:
        """Let a decision follow within `TRY_TICK_SECONDS`; the daemon decides every half minute anyway."""
        if now >= self._looks_at:
            self._looks_at = now + TRY_TICK_SECONDS
            self._jobs.look_again(TRY_TICK_SECONDS)

    def _measure(self, job: JobId, running: SimulatedJob, now: float) -> None:
        """Let a job report its speed since the last look."""
        before = self._looked_at.get(job)
        self._looked_at[job] = (running.generation, now)
        if before is None or before[0] != running.generation or running.width is None:
            return
        seconds = now - max(before[1], running.works_from)
        least = STRETCH_SECONDS if running.trace.class_name in self._tried else LOOK_SECONDS
        if seconds < least or not running.slots:
            self._looked_at[job] = before
            return
        samples = running.rate * seconds * self._random.lognormvariate(0.0, self._noise)
        samples /= over_first_phase(
            self.classes.stated[running.trace.class_name], running.phase, running.width
        )
        if samples > 0.0:
            self.learning.learner.worked(
                SpeedSample(
                    class_name=running.trace.class_name,
                    gpu_type=running.width.gpu_type,
                    gpus=running.width.gpus,
                    samples=samples,
                    seconds=seconds,
                    at=now,
                )
            )

    def _done_by_class(self, decision: Decision) -> Mapping[str, list[float]]:
        """Return the work that the present jobs have done, over their scales, by class."""
        found: dict[str, list[float]] = {}
        for job, state in decision.state.jobs.items():
            running = self._jobs.running.get(job)
            if running is not None:
                done = _work(running) - state.job.remaining_gpu_hours / running.told_size
                if done > 0.01 * _work(running):
                    found.setdefault(state.job.class_name, []).append(done / state.job.scale)
        return found

    def _plan_anew(self, decision: Decision) -> None:
        """Rebuild the policy for the currently planned classes; pacing continues from the stated load."""
        planned = self.classes.planned
        site = replace(
            self._site,
            problem=replace(self._site.problem, classes=tuple(planned.values())),
            load_over_stated=_work_per_hour(planned) / _work_per_hour(self.classes.stated),
            rhythm=self.classes.rhythm,
        )
        self._base, self._planned_for = self._built(site, decision.state), site
        self.plans += 1

    def _look_at_the_budget(self, decision: Decision) -> None:
        """Begin or end a best effort between two plans, as the daemon does."""
        before = self._watch.account
        if self._account(self._planned_for, decision.state) != before:
            self._base = self._built(self._planned_for, decision.state)
            self._told_of.clear()

    def _built(self, site: Site, state: ClusterState) -> Allocator:
        """Return the policy for a site; like the daemon, a best effort if the budget does not pay for it."""
        account = self._account(site, state)
        return build_policy(self._name, site, self._options, account=account).allocator

    def _account(self, site: Site, state: ClusterState) -> Account | None:
        """Return the account of the best effort; None if none is made."""
        return self._watch.look(
            self._name,
            site,
            self._options,
            now=state.now,
            spent=lambda: 0.0 if (money := money_of(state)) is None else money.spent,
            memory=() if state.memory is None else state.memory[0],
            opened_at=state.books_opened_at,
        )


_with_rest = field_replacer(Job, "remaining_gpu_hours", "phase", "scale")


def _work(running: SimulatedJob) -> float:
    """Return the true work of a job, reference GPU-hours."""
    return running.physics.size * running.trace.scale / SECONDS_PER_HOUR


def _work_per_hour(classes: Mapping[str, JobClass]) -> float:
    """Return the work that arrives per hour."""
    return sum(c.arrivals_per_hour * c.size_gpu_hours for c in classes.values())
