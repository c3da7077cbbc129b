"""Jobs that arrive, hold GPUs, do work phase by phase, fail and start again, and leave.

A job pays its start-up once, from its first start on, and its rescale time at every later start; meanwhile it
holds its GPUs and does no work. A start-up that a stop cuts short is finished after the next start. Then it
works at the speed of its width in its phase. `boa_daemon.sim.simulated_job` holds what a job does between
events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isinf

from boa_daemon.clock import VirtualClock
from boa_daemon.sim.draws import Draws
from boa_daemon.sim.event_queue import EventQueue
from boa_daemon.sim.links import SharedLinks
from boa_daemon.sim.simulated_cloud import SimulatedCloud
from boa_daemon.sim.simulated_job import SimulatedJob
from boa_daemon.sim.simulated_workload import Physics
from boa_daemon.sim.world_settings import Checkpoints
from boa_daemon.tick.facts.actions import StartJob, StopJob
from boa_daemon.tick.facts.plan import Plan
from boa_daemon.tick.facts.ports import Accepted, Refused
from boa_daemon.tick.facts.state import Claim, ClusterState, JobState, UserMoney
from boa_daemon.tick.facts.team_money import TeamMoney
from boa_daemon.traces.reader import TraceJob
from policies.model import Job, JobId


@dataclass(slots=True)
class JobTotals:
    """The totals over all jobs. GPU-seconds; JCTs in seconds, in order of completion.

    Used is work that counted; lost is work that a failure undid. A restart follows a failure of the job
    itself (`job_failures`) or of one of its nodes; any other change of GPUs is a rescale.
    """

    used_gpu_seconds: float = 0.0
    overhead_gpu_seconds: float = 0.0
    lost_gpu_seconds: float = 0.0
    rescales: int = 0
    restarts: int = 0
    job_failures: int = 0
    jct_seconds: list[float] = field(default_factory=list)
    finished: list[JobId] = field(default_factory=list)


class SimulatedJobs:
    """Implement `JobSource` and `Engine`.

    `asks_for_tick` is called with a job that entered a new phase and returns whether this needs a tick;
    `next_phase_to_look_at` returns the first later phase for which to ask. `wants_tick` is called after an
    event that needs a tick. With `fresh_progress` the remaining work is measured at each look, not only when
    a job changes. `draws` say when jobs fail.
    """

    def __init__(
        self,
        clock: VirtualClock,
        events: EventQueue,
        cloud: SimulatedCloud,
        *,
        wants_tick: Callable[[], None],
        fresh_progress: bool = False,
        links: SharedLinks | None = None,
        checkpoints: Checkpoints | None = None,
        draws: Draws | None = None,
    ) -> None:
        self.totals = JobTotals()
        self.asks_for_tick: Callable[[Job], bool] = lambda _job: True
        self.next_phase_to_look_at: Callable[[Job], int] = lambda job: job.phase + 1
        self._clock, self._events, self._cloud = clock, events, cloud
        self._wants_tick, self._fresh_progress = wants_tick, fresh_progress
        self._links = links or SharedLinks()
        self._checkpoints, self._draws = checkpoints, draws
        self._present: dict[JobId, SimulatedJob] = {}
        self._states: dict[JobId, JobState] = {}
        self._with_ends_ahead: dict[JobId, SimulatedJob] = {}

    def __len__(self) -> int:
        return len(self._present)

    def jobs(self) -> Mapping[JobId, JobState]:
        """Return the jobs that are present, in order of arrival."""
        self._pass_phases()
        if self._fresh_progress:
            now, states = self._clock.now(), self._states
            for name, job in self._present.items():
                if job.slots:
                    states[name] = job.state_at(now, states[name])
        return self._states.copy()

    def users(self) -> Mapping[str, UserMoney]:
        """Return nothing: no user of a simulation has a cap of their own."""
        return {}

    def teams(self) -> Mapping[str, TeamMoney]:
        """Return nothing: a simulation has no teams."""
        return {}

    def claims(self) -> Mapping[JobId, Claim]:
        """Return nothing: simulated jobs stop at once, so none is between its stop and its start."""
        return {}

    @property
    def running(self) -> Mapping[JobId, SimulatedJob]:
        """The jobs that are present as the world knows them, as an engine would report them."""
        self._pass_phases()
        return self._present

    def look_again(self, after_seconds: float) -> None:
        """Schedule a tick after some time, even if nothing happens."""
        self._cloud.look_again(after_seconds)

    def arrive(
        self, trace: TraceJob, physics: Physics, draw: float, *, told: tuple[float, float] = (1.0, 1.0)
    ) -> None:
        """Let a job arrive now; `told` are the error factors on the size and scale shown to ticks."""
        left = physics.sizes[0] * trace.scale
        job = SimulatedJob(
            trace=trace,
            physics=physics,
            arrived_at=self._clock.now(),
            draw=draw,
            left=left,
            startup_left=physics.startup_seconds,
            checkpoints=self._checkpoints,
            told_size=told[0],
            told_scale=told[1],
        )
        self._present[trace.id] = job
        self._states[trace.id] = job.state()
        self._wants_tick()

    def start(self, action: StartJob) -> Accepted | Refused:
        """Start a job on free GPUs; it works once its start-up or rescale is over."""
        job = self._present.get(action.job)
        if job is None or job.slots or action.generation <= job.generation:
            return Refused(reason=f"job {action.job} cannot start generation {action.generation}")
        if not self._cloud.hold(action.job, action.slots):
            return Refused(reason="some of the GPUs are not free")
        self.totals.restarts += job.has_failed
        self.totals.rescales += job.generation > 0 and not job.has_failed
        now = self._clock.now()
        job.begin(now, generation=action.generation, width=action.width, slots=action.slots)
        job.node_speed = self._cloud.slowest(action.slots)
        need, cloud = job.physics.network, self._cloud
        if self._links.join(job.trace.id, need, job.slots, cloud.kinds, cloud.tiers):
            self._share_links()
        state = self._states[action.job] = job.state()
        self._appoint(job, state.job)
        self._foretell(job, now)
        return Accepted()

    def stop(self, action: StopJob) -> Accepted | Refused:
        """Stop a job and keep its progress."""
        job = self._present.get(action.job)
        if job is None or not job.slots:
            return Accepted()
        self._measure(job)
        job.save()
        self._let_go(job)
        return Accepted()

    def lose(self, job_id: JobId) -> None:
        """Handle a failure of a job or of one of its nodes: return to the last checkpoint and wait."""
        job = self._present[job_id]
        self._measure(job)
        lost = job.fall_back()
        self.totals.used_gpu_seconds -= lost
        self.totals.lost_gpu_seconds += lost
        self._let_go(job)

    def look(self) -> None:
        """Return None: no gate runs, and messages follow the plan's order."""
        return

    def follow(self, _state: ClusterState, plan: Plan) -> None:
        """Let the jobs that share links send in the order of this plan from now on."""
        if self._links.follow(plan.link_order):
            self._share_links()

    def _let_go(self, job: SimulatedJob) -> None:
        """Release the GPUs of a job that stays."""
        self._with_ends_ahead.pop(job.trace.id, None)
        self._cloud.free(job.slots)
        job.let_go()
        if self._links.leave(job.trace.id):
            self._share_links()
        self._states[job.trace.id] = job.state()

    def _foretell(self, job: SimulatedJob, now: float) -> None:
        """Schedule the failure of a generation, if it will fail."""
        if self._draws is not None:
            seconds = self._draws.job_runs_seconds(job.trace.id, job.generation)
            if not isinf(seconds):
                self._events.schedule(now + seconds, self._fail, (job, job.generation))

    def _fail(self, doomed: tuple[SimulatedJob, int]) -> None:
        """Fail a job, unless that generation of it is over."""
        job, generation = doomed
        if job.generation == generation and job.slots:
            self.totals.job_failures += 1
            self.lose(job.trace.id)
            self._wants_tick()

    def _share_links(self) -> None:
        """Set every sending job's pace by its links, and reschedule the end of its phase."""
        for job_id, pace in self._links.paces().items():
            job = self._present[job_id]
            if pace != job.pace:
                self._measure(job)
                job.pace = pace
                self._appoint(job, job.job())

    def _appoint(self, job: SimulatedJob, seen: Job) -> None:
        """Schedule the next end of a phase that needs a look, if the job can work at its width."""
        job.appointment += 1
        ends_at = job.look_ahead(self.next_phase_to_look_at(seen))
        if job.ends_ahead:
            self._with_ends_ahead[job.trace.id] = job
        else:
            self._with_ends_ahead.pop(job.trace.id, None)
        if ends_at is not None:
            self._events.schedule(ends_at, self._end_phase, (job, job.appointment))

    def _end_phase(self, appointment: tuple[SimulatedJob, int]) -> None:
        """End a phase: enter the next one, or finish the job. A rescheduled appointment is void."""
        job, number = appointment
        if number != job.appointment:
            return
        self._measure(job)
        if job.phase + 1 == len(job.physics.sizes):
            self._leave(job)
            return
        job.enter_next_phase()
        seen = job.job()
        self._appoint(job, seen)
        self._states[job.trace.id] = JobState(job=seen, slots=job.slots, generation=job.generation)
        if job.speeds[job.phase] <= 0.0 or self.asks_for_tick(seen):
            self._wants_tick()

    def _leave(self, job: SimulatedJob) -> None:
        """Remove a finished job."""
        self._cloud.free(job.slots)
        job.slots = ()
        del self._present[job.trace.id], self._states[job.trace.id]
        if self._links.leave(job.trace.id):
            self._share_links()
        self.totals.jct_seconds.append(self._clock.now() - job.arrived_at)
        self.totals.finished.append(job.trace.id)
        self._wants_tick()

    def _measure(self, job: SimulatedJob) -> None:
        """Update a job's remaining work and GPU-seconds to now."""
        now = self._clock.now()
        if job.ends_ahead and job.ends_ahead[0] <= now:
            self._pass_phases_of(job, now)
        self._count(job.measure(now))

    def _pass_phases(self) -> None:
        """Move all jobs into their current phases."""
        if not self._with_ends_ahead:
            return
        now = self._clock.now()
        for job in [job for job in self._with_ends_ahead.values() if job.ends_ahead[0] <= now]:
            self._pass_phases_of(job, now)

    def _pass_phases_of(self, job: SimulatedJob, now: float) -> None:
        """Move a job into its current phase."""
        self._count(job.pass_phases(now))
        self._states[job.trace.id] = job.state()
        if not job.ends_ahead:
            del self._with_ends_ahead[job.trace.id]

    def _count(self, measured: tuple[float, float]) -> None:
        """Add GPU-seconds of overhead and of work."""
        self.totals.overhead_gpu_seconds += measured[0]
        self.totals.used_gpu_seconds += measured[1]
