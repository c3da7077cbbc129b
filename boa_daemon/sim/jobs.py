"""Jobs that arrive, hold GPUs, do work phase by phase, and leave.

A job pays its start-up once, from its first start on, and its rescale time at every later start; meanwhile it
holds its GPUs and does no work. A start-up that a stop cuts short is finished after the next start. Then it
works at the speed of its width in its phase.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from boa_daemon.actions import StartJob, StopJob
from boa_daemon.clock import VirtualClock
from boa_daemon.ports import Accepted, Refused
from boa_daemon.sim.cloud import SimulatedCloud
from boa_daemon.sim.events import EventQueue
from boa_daemon.sim.links import SharedLinks
from boa_daemon.sim.workload import Physics
from boa_daemon.state import JobState
from boa_daemon.traces.reader import TraceJob
from boa_daemon.units import SECONDS_PER_HOUR
from policies.model import GpuSlot, Job, JobId, NodeId, Width


@dataclass(slots=True)
class Totals:
    """What the jobs did in all. GPU-seconds; JCTs in seconds, in order of completion."""

    used_gpu_seconds: float = 0.0
    overhead_gpu_seconds: float = 0.0
    rescales: int = 0
    interruptions: int = 0
    jct_seconds: list[float] = field(default_factory=list)
    finished: list[JobId] = field(default_factory=list)


@dataclass(slots=True)
class _Running:
    """One job in the world. Work in seconds on one reference GPU."""

    trace: TraceJob
    physics: Physics
    arrived_at: float
    draw: float
    left: float
    startup_left: float
    rescale_left: float = 0.0
    phase: int = 0
    generation: int = 0
    width: Width | None = None
    slots: tuple[GpuSlot, ...] = ()
    speeds: tuple[float, ...] = ()
    measured_at: float = 0.0
    works_from: float = 0.0
    appointment: int = 0
    pace: float = 1.0

    def state(self) -> JobState:
        """Return what a tick may see."""
        trace, physics = self.trace, self.physics
        work = self.left + physics.tail_sizes[self.phase] * trace.scale
        return JobState(
            job=Job(
                id=trace.id,
                class_name=trace.class_name,
                arrived_at=self.arrived_at,
                phase=self.phase,
                remaining_gpu_hours=work / SECONDS_PER_HOUR,
                scale=trace.scale,
                weight=physics.weight,
                draw=self.draw,
                width=self.width,
                restarts=max(0, self.generation - 1),
            ),
            slots=self.slots,
            generation=self.generation,
        )


class SimulatedJobs:
    """Implements `JobSource` and `Engine`.

    `asks_for_tick` is called with a job that entered a new phase and says whether that is worth a tick;
    `wants_tick` is called when something happened that is. With `fresh_progress` the work left is measured at
    each look, not only when a job changes.
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
    ) -> None:
        self.totals = Totals()
        self.asks_for_tick: Callable[[Job], bool] = lambda _job: True
        self._clock, self._events, self._cloud = clock, events, cloud
        self._wants_tick, self._fresh_progress = wants_tick, fresh_progress
        self._links = links or SharedLinks()
        self._present: dict[JobId, _Running] = {}
        self._states: dict[JobId, JobState] = {}

    def __len__(self) -> int:
        return len(self._present)

    def jobs(self) -> Mapping[JobId, JobState]:
        """Return the jobs that are present, in order of arrival."""
        if self._fresh_progress:
            for job in self._present.values():
                if job.slots:
                    self._measure(job)
                    self._states[job.trace.id] = job.state()
        return self._states.copy()

    def arrive(self, trace: TraceJob, physics: Physics, draw: float) -> None:
        """Let a job arrive now."""
        job = _Running(
            trace=trace,
            physics=physics,
            arrived_at=self._clock.now(),
            draw=draw,
            left=physics.sizes[0] * trace.scale,
            startup_left=physics.startup_seconds,
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
        now = self._clock.now()
        job.rescale_left = job.physics.rescale_seconds if job.generation else 0.0
        self.totals.rescales += job.generation > 0
        job.generation, job.width, job.slots = action.generation, action.width, action.slots
        job.speeds = job.physics.speeds(action.width)
        job.measured_at, job.works_from = now, now + job.rescale_left + job.startup_left
        if self._links.join(job.trace.id, job.physics.network, job.slots, self._cloud.kinds):
            self._share_links()
        self._appoint(job)
        self._states[action.job] = job.state()
        return Accepted()

    def stop(self, action: StopJob) -> Accepted | Refused:
        """Stop a job and keep its progress."""
        job = self._present.get(action.job)
        if job is None or not job.slots:
            return Accepted()
        self._measure(job)
        self._cloud.free(job.slots)
        job.slots, job.width, job.speeds, job.pace = (), None, (), 1.0
        job.appointment += 1
        if self._links.leave(job.trace.id):
            self._share_links()
        self._states[action.job] = job.state()
        return Accepted()

    def order_links(self, order: Mapping[NodeId, tuple[JobId, ...]]) -> None:
        """Let the jobs that share links send in this order from now on."""
        if self._links.follow(order):
            self._share_links()

    def _share_links(self) -> None:
        """Give every sending job the pace that its links leave it, and a new end of its phase."""
        for job_id, pace in self._links.paces().items():
            job = self._present[job_id]
            if pace != job.pace:
                self._measure(job)
                job.pace = pace
                self._appoint(job)

    def _appoint(self, job: _Running) -> None:
        """Schedule the end of the phase, if the job can work at all at its width."""
        job.appointment += 1
        speed = job.speeds[job.phase] * job.pace
        if speed > 0.0:
            ends_at = max(job.measured_at, job.works_from) + job.left / speed
            self._events.schedule(ends_at, self._end_phase, (job, job.appointment))

    def _end_phase(self, appointment: tuple[_Running, int]) -> None:
        """A phase is done: enter the next one, or leave. An appointment that was changed is void."""
        job, number = appointment
        if number != job.appointment:
            return
        self._measure(job)
        if job.phase + 1 == len(job.physics.sizes):
            self._leave(job)
            return
        job.phase += 1
        job.left = job.physics.sizes[job.phase] * job.trace.scale
        self._appoint(job)
        state = job.state()
        self._states[job.trace.id] = state
        if job.speeds[job.phase] <= 0.0 or self.asks_for_tick(state.job):
            self._wants_tick()

    def _leave(self, job: _Running) -> None:
        """A job is done."""
        self._cloud.free(job.slots)
        del self._present[job.trace.id], self._states[job.trace.id]
        if self._links.leave(job.trace.id):
            self._share_links()
        self.totals.jct_seconds.append(self._clock.now() - job.arrived_at)
        self.totals.finished.append(job.trace.id)
        self._wants_tick()

    def _measure(self, job: _Running) -> None:
        """Bring the work left and the GPU-seconds up to now."""
        now, gpus = self._clock.now(), len(job.slots)
        paused = min(max(job.works_from - job.measured_at, 0.0), now - job.measured_at)
        worked = now - job.measured_at - paused
        rescaled = min(paused, job.rescale_left)
        job.rescale_left -= rescaled
        job.startup_left = max(0.0, job.startup_left - (paused - rescaled))
        self.totals.overhead_gpu_seconds += gpus * paused
        self.totals.used_gpu_seconds += gpus * worked
        job.left = max(0.0, job.left - worked * job.speeds[job.phase] * job.pace)
        job.measured_at = now
