"""The world on a virtual clock: a cloud, jobs from a trace, and the event loop.

The loop is all that the simulator adds: time moves to the next event, everything due happens, and if any of
it matters the daemon's own `Controller.run_once()` decides. The same workload and seed give the same run to
the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from boa_daemon.clock import VirtualClock
from boa_daemon.errors import BoaError
from boa_daemon.sim.capacity_pools import CapacityPools
from boa_daemon.sim.cloud_api import CloudApi
from boa_daemon.sim.draws import Draws
from boa_daemon.sim.event_queue import EventQueue
from boa_daemon.sim.jobs import SimulatedJobs
from boa_daemon.sim.links import SharedLinks
from boa_daemon.sim.simulated_cloud import SimulatedCloud
from boa_daemon.sim.simulated_workload import SimulatedWorkload
from boa_daemon.sim.stopped_nodes import START_SECONDS, StoppedNodes
from boa_daemon.sim.topology import SimulatedTopology
from boa_daemon.sim.world_settings import WorldSettings
from boa_daemon.sim.wrong_beliefs import wrong_size_factors
from boa_daemon.tick.decide.controller import Controller
from boa_daemon.tick.decide.decision import Decision
from boa_daemon.tick.decide.gc_pause import without_gc
from policies.model import InstanceType

QUIET_TICKS = 10_000
"""After this many ticks in a row without an arrival or the end of a phase the run counts as stuck."""

STILL = 0.01
"""The weight of a tick without actions: a policy with rounds makes many while a long job runs."""
QUIET_EVENTS = 1_000_000
"""The same for events, if events of the cloud never end."""


class StuckSimulation(BoaError):
    """Jobs are left and nothing will ever happen: the policy, or the limit on nodes, keeps them waiting."""


class SimulatedWorld:
    """A cloud and jobs, driven by events."""

    def __init__(
        self,
        workload: SimulatedWorkload,
        instance_types: Sequence[InstanceType],
        settings: WorldSettings,
        *,
        seed: int = 0,
        boot_seconds: float = 180.0,
        fresh_progress: bool = False,
        links_in_order: bool = True,
        outages: Sequence[tuple[float, float]] = (),
        start_seconds: float = START_SECONDS,
    ) -> None:
        self.workload, self.boot_seconds = workload, boot_seconds
        self.started_at = workload.trace.jobs[0].arrived_at_seconds
        self.clock = VirtualClock(self.started_at)
        self.ticks = 0
        self._events, self._beliefs, self._seed = EventQueue(), settings.beliefs, seed
        draws = Draws(settings, boot_seconds=boot_seconds, seed=seed)
        self.shelves = CapacityPools(settings, instance_types, seed=seed, start=self.started_at)
        topology = SimulatedTopology(settings.topology, seed=seed)
        self.cloud = SimulatedCloud(
            self.clock,
            self._events,
            shelves=self.shelves,
            draws=draws,
            wants_tick=self._want_tick,
            outages=outages,
            stopped=StoppedNodes(start_seconds),
            topology=topology,
        )
        self.jobs = SimulatedJobs(
            self.clock,
            self._events,
            self.cloud,
            wants_tick=self._progress,
            fresh_progress=fresh_progress,
            links=SharedLinks(in_order=links_in_order, topology=topology),
            checkpoints=settings.checkpoints,
            draws=draws,
        )
        self.cloud.loses = self.jobs.lose
        self.api = CloudApi(self.cloud, draws)
        self._draws = np.random.default_rng(seed).random(workload.jobs).tolist()
        self._next_job = 0
        self._tick_wanted = False
        self._wake_at: float | None = None
        self._quiet_ticks, self._quiet_events = 0.0, 0
        self._schedule_arrival()

    @without_gc
    def run(
        self,
        controller: Controller,
        on_tick: Callable[[Decision], None] | None = None,
        *,
        until_empty: bool = False,
    ) -> None:
        """Run the trace under a controller until the last job has left; then end every node.

        With `until_empty` only the controller ends nodes, and the run goes on until it has. The garbage
        collector rests meanwhile: a run makes no cycles, and reference counting frees everything else.

        Raises:
            StuckSimulation: when jobs are left and nothing will happen any more.
        """
        is_still = False
        self.jobs.asks_for_tick = lambda job: controller.needs_tick(job, is_still=is_still)
        self.jobs.next_phase_to_look_at = controller.next_phase_to_look_at
        self.api.patience_seconds = controller.unseen_seconds
        while self.finished < self.workload.jobs or (until_empty and len(self.cloud)):
            self._advance()
            if self._tick_wanted:
                self._tick_wanted = False
                decision = controller.run_once()
                self.ticks += 1
                self._quiet_ticks += 1.0 if decision.actions else STILL
                # Stock and prices may change at any time. Without them a repeated idle tick stays idle.
                is_still = not (decision.actions or decision.state.offers)
                self._wake(decision.wake_at)
                if on_tick is not None:
                    on_tick(decision)
        self.cloud.close()
        controller.observe()

    @property
    def finished(self) -> int:
        """The number of jobs that have left."""
        return len(self.jobs.totals.finished)

    def _advance(self) -> None:
        """Move to the next event and run everything due."""
        at = self._events.next_at
        self._quiet_events += 1
        if at is None or self._quiet_ticks > QUIET_TICKS or self._quiet_events > QUIET_EVENTS:
            raise StuckSimulation(self._why_stuck())
        self.clock.advance_to(at)
        self._events.happen(at)

    def _why_stuck(self) -> str:
        """Return which jobs are left, and what to try."""
        present = self.jobs.jobs()
        waiting = sorted(job for job, state in present.items() if not state.slots)
        stalled = len(present) - len(waiting)
        return (
            f"{self.workload.jobs - self.finished} jobs are left at {self.clock.now():.0f} s and nothing "
            f"will happen; {len(waiting)} wait ({', '.join(waiting[:3])}) and {stalled} hold GPUs "
            "that they cannot use. Choose another policy, or raise the limit on nodes"
        )

    def _want_tick(self) -> None:
        """Request a tick after an event that a tick should see."""
        self._tick_wanted = True

    def _progress(self) -> None:
        """Request a tick after a job arrived, entered a phase, or left."""
        self._quiet_ticks, self._quiet_events = 0.0, 0
        self._tick_wanted = True

    def _wake(self, at: float | None) -> None:
        """Tick again at an instant, unless an earlier wake-up is scheduled."""
        if at is not None and (self._wake_at is None or at < self._wake_at):
            self._wake_at = at
            self._events.schedule(max(at, self.clock.now()), self._ring, at)

    def _ring(self, at: float) -> None:
        """Handle a wake-up, unless an earlier one replaced it."""
        if at == self._wake_at:
            self._wake_at = None
            self._tick_wanted = True

    def _schedule_arrival(self) -> None:
        """Schedule the next job of the trace."""
        if self._next_job < self.workload.jobs:
            at = self.workload.trace.jobs[self._next_job].arrived_at_seconds
            self._events.schedule(at, self._arrive, self._next_job)
            self._next_job += 1

    def _arrive(self, number: int) -> None:
        """Let a job arrive, and schedule the next arrival."""
        trace = self.workload.trace.jobs[number]
        self.jobs.arrive(
            trace,
            self.workload.physics[trace.class_name],
            self._draws[number],
            told=wrong_size_factors(
                self._beliefs, trace.class_name, trace.id, scale=trace.scale, seed=self._seed
            ),
        )
        self._schedule_arrival()
