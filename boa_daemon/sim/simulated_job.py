"""One simulated job: its progress, what of it is saved, and when its phase ends.

Work is in seconds on one reference GPU. A job that holds GPUs first pays the rest of its rescale and of its
start-up; then it works and, if the world has checkpoints, saves after each stretch of work. Time since the
first working second of a generation runs in cycles of I seconds of work and C seconds of saving:

    symbol   here                       meaning
    I        every_seconds              work between two checkpoints
    C        cost_seconds               duration of a checkpoint
    x        position                   seconds into the cycle, 0 <= x < I + C
    W(X)     floor(X / (I+C)) I + min(X mod (I+C), I)      work done X seconds after a checkpoint
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, field

from boa_daemon.sim.simulated_workload import Physics
from boa_daemon.sim.world_settings import Checkpoints
from boa_daemon.tick.facts.state import JobState
from boa_daemon.traces.reader import TraceJob
from boa_daemon.units import SECONDS_PER_HOUR
from policies.fast_dataclasses import field_replacer
from policies.model import GpuSlot, Job, Width

_with_work = field_replacer(Job, "remaining_gpu_hours", "counted_at")
_with_job = field_replacer(JobState, "job")
ROUNDING = 1e-9
"""Tolerance, as a fraction of a stretch of work, for ends that coincide with the end of the stretch."""


@dataclass(slots=True)
class SimulatedJob:
    """One simulated job. `told_*` are the error factors on the sizes that ticks are told.

    `ends_ahead` are the instants at which this phase and later ones end without an event, before the
    appointment.
    """

    trace: TraceJob
    physics: Physics
    arrived_at: float
    draw: float
    left: float
    startup_left: float
    checkpoints: Checkpoints | None = None
    told_size: float = 1.0
    told_scale: float = 1.0
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
    node_speed: float = 1.0
    position: float = 0.0
    saved: tuple[int, float, float] = (0, 0.0, 0.0)
    unsaved_gpu_seconds: float = 0.0
    has_failed: bool = False
    ends_ahead: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Work per second, once the job works."""
        return self.speeds[self.phase] * self.pace * self.node_speed

    def left_at(self, now: float) -> float:
        """Return the work left in the phase at an instant, without changing any state."""
        seconds = now - max(self.measured_at, self.works_from)
        if seconds <= 0.0 or not self.slots:
            return self.left
        if self.checkpoints is not None and self.checkpoints.cost_seconds:
            every = self.checkpoints.every_seconds
            cycles, position = divmod(self.position + seconds, every + self.checkpoints.cost_seconds)
            seconds = cycles * every + min(position, every) - min(self.position, every)
        return max(0.0, self.left - seconds * self.rate)

    def state(self) -> JobState:
        """Return what a tick may see, with the work left as last measured."""
        return JobState(job=self.job(), slots=self.slots, generation=self.generation)

    def state_at(self, now: float, before: JobState) -> JobState:
        """Return what a tick may see, with the work left at an instant; the rest is as in an earlier state.

        It must be a state since the last start, stop, failure or end of a phase.
        """
        counted_at = now if now > self.works_from else self.works_from
        return _with_job(before, _with_work(before.job, self._hours_of(self.left_at(now)), counted_at))

    def _hours_of(self, left: float) -> float:
        """Return the GPU-hours that a tick is told, for the work left in this phase."""
        work = left + self.physics.tail_sizes[self.phase] * self.trace.scale
        return work * self.told_size / SECONDS_PER_HOUR

    def job(self) -> Job:
        """Return what a policy may see, with the work left as last measured."""
        trace, physics = self.trace, self.physics
        return Job(
            id=trace.id,
            class_name=trace.class_name,
            arrived_at=self.arrived_at,
            phase=self.phase,
            remaining_gpu_hours=self._hours_of(self.left),
            scale=trace.scale * self.told_scale,
            weight=physics.weight,
            draw=self.draw,
            width=self.width,
            restarts=self.generation - 1 if self.generation else 0,
            counted_at=max(self.measured_at, self.works_from) if self.slots else None,
        )

    def begin(self, now: float, *, generation: int, width: Width, slots: tuple[GpuSlot, ...]) -> None:
        """Take GPUs; a rescale is due if the job ran before."""
        self.rescale_left = self.physics.rescale_seconds if self.generation else 0.0
        self.generation, self.width, self.slots = generation, width, slots
        self.speeds = self.physics.speeds(width)
        self.measured_at, self.works_from = now, now + self.rescale_left + self.startup_left
        self.position, self.has_failed = 0.0, False
        self.save()

    def let_go(self) -> None:
        """Release all GPUs."""
        self.slots, self.width, self.speeds, self.ends_ahead = (), None, (), []
        self.pace, self.node_speed = 1.0, 1.0
        self.appointment += 1

    def save(self) -> None:
        """Save the progress, so that a failure does not lose it."""
        self.saved = (self.phase, self.left, self.startup_left)
        self.unsaved_gpu_seconds = 0.0

    def fall_back(self) -> float:
        """Return to the saved progress; return the GPU-seconds of work lost."""
        self.phase, self.left, self.startup_left = self.saved
        lost, self.unsaved_gpu_seconds, self.has_failed = self.unsaved_gpu_seconds, 0.0, True
        return lost

    def enter_next_phase(self) -> None:
        """Begin the next phase."""
        self._begin_phase(self.phase + 1)

    def _begin_phase(self, phase: int) -> None:
        self.phase, self.left = phase, self.physics.sizes[phase] * self.trace.scale

    def phase_ends_at(self) -> float | None:
        """Return when the phase ends at the current rate; None if never."""
        rate = self.rate
        if rate <= 0.0:
            return None
        begins, work = max(self.measured_at, self.works_from), self.left / rate
        if self.checkpoints is None or not self.checkpoints.cost_seconds:
            return begins + work
        target = min(self.position, self.checkpoints.every_seconds) + work
        # A phase that ends together with a stretch of work needs no save.
        saves = max(0, math.ceil(target / self.checkpoints.every_seconds - ROUNDING) - 1)
        return begins + max(0.0, target + saves * self.checkpoints.cost_seconds - self.position)

    def look_ahead(self, until: int) -> float | None:
        """Return when the last phase before `until` ends at this width; earlier ones end without an event.

        It is an earlier phase if the world has checkpoints or a phase cannot run at this width; None if the
        current phase never ends.
        """
        ends_at = self.phase_ends_at()
        self.ends_ahead = []
        if ends_at is None or self.checkpoints is not None:
            return ends_at
        speeds, pace, node_speed, ends_ahead = self.speeds, self.pace, self.node_speed, self.ends_ahead
        sizes, scale = self.physics.sizes, self.trace.scale
        for phase in range(self.phase + 1, until):
            rate = speeds[phase] * pace * node_speed
            if rate <= 0.0:
                break
            ends_ahead.append(ends_at)
            ends_at += sizes[phase] * scale / rate
        return ends_at

    def pass_phases(self, now: float) -> tuple[float, float]:
        """Enter the phase current at `now`; return the GPU-seconds of overhead and work until it began."""
        passed = bisect_right(self.ends_ahead, now)
        if not passed:
            return 0.0, 0.0
        measured = self.measure(self.ends_ahead[passed - 1])
        del self.ends_ahead[:passed]
        self._begin_phase(self.phase + passed)
        return measured

    def measure(self, now: float) -> tuple[float, float]:
        """Update the work left to `now`; return the GPU-seconds of overhead and of work since last time."""
        gpus, elapsed = len(self.slots), now - self.measured_at
        if self.works_from <= self.measured_at and self.checkpoints is None:
            # Fast path: only work since the last measurement, as at the end of nearly every phase.
            self.left = max(0.0, self.left - elapsed * self.rate)
            worked = gpus * elapsed
            self.unsaved_gpu_seconds += worked
            self.measured_at = now
            return 0.0, worked
        paused = min(max(self.works_from - self.measured_at, 0.0), elapsed)
        rescaled = min(paused, self.rescale_left)
        self.rescale_left -= rescaled
        self.startup_left = max(0.0, self.startup_left - (paused - rescaled))
        worked = self._work(elapsed - paused)
        self.measured_at = now
        return gpus * (elapsed - worked), gpus * worked

    def _work(self, seconds: float) -> float:
        """Work and save for `seconds`; return the seconds of work among them."""
        gpus, rate = len(self.slots), self.rate
        if self.checkpoints is None:
            self.left = max(0.0, self.left - seconds * rate)
            self.unsaved_gpu_seconds += gpus * seconds
            return seconds
        every, cycle = (
            self.checkpoints.every_seconds,
            self.checkpoints.every_seconds + self.checkpoints.cost_seconds,
        )
        done, reached = min(self.position, every), self.position + seconds
        saves = int(reached // cycle)
        self.position = reached - saves * cycle
        since = min(self.position, every)
        worked = saves * every + since - done
        if saves:
            at_save = max(0.0, self.left - (worked - since) * rate)
            self.saved, self.unsaved_gpu_seconds = (self.phase, at_save, self.startup_left), 0.0
            self.unsaved_gpu_seconds = gpus * since
        else:
            self.unsaved_gpu_seconds += gpus * worked
        self.left = max(0.0, self.left - worked * rate)
        return worked
