"""Jobs of the simulator: GPUs, overheads, phases, checkpoints and failures."""

from __future__ import annotations

import pytest
from worlds import a_simulated_cloud

from boa_daemon.clock import VirtualClock
from boa_daemon.sim.draws import Draws
from boa_daemon.sim.event_queue import EventQueue
from boa_daemon.sim.jobs import SimulatedJobs
from boa_daemon.sim.simulated_workload import Physics
from boa_daemon.sim.world_settings import Checkpoints, Faults, WorldSettings
from boa_daemon.testing import a_class, an_instance_type, some_slots
from boa_daemon.tick.facts.actions import LaunchNodes, StartJob, StopJob
from boa_daemon.tick.facts.ports import Accepted, Refused
from boa_daemon.traces.reader import TraceJob
from policies.model import Job, JobClass, Width
from policies.speedup import Table


class Bench:
    """One ready node and one job of a class."""

    def __init__(
        self,
        job_class: JobClass,
        *,
        scale: float = 1.0,
        fresh_progress: bool = False,
        checkpoints: Checkpoints | None = None,
        draws: Draws | None = None,
        told: tuple[float, float] = (1.0, 1.0),
    ) -> None:
        self.clock, self.events = VirtualClock(), EventQueue()
        self.ticks: list[float] = []
        cloud = a_simulated_cloud(self.clock, self.events)
        cloud.launch(LaunchNodes(id="l", instance_type=an_instance_type(), reason="test"))
        self.events.happen(0.0)
        self.jobs = SimulatedJobs(
            self.clock,
            self.events,
            cloud,
            wants_tick=lambda: self.ticks.append(self.clock.now()),
            fresh_progress=fresh_progress,
            checkpoints=checkpoints,
            draws=draws,
        )
        self.jobs.arrive(TraceJob("a", 0.0, "c", scale), Physics(job_class), draw=0.25, told=told)

    def start(self, gpus: int, generation: int = 1) -> object:
        """Start the job on the first GPUs."""
        return self.jobs.start(
            StartJob(
                id=f"s{generation}",
                job="a",
                generation=generation,
                width=Width("gpu", gpus),
                slots=some_slots("n1", *range(gpus)),
                reason="test",
            )
        )

    def stop(self) -> object:
        """Stop the job."""
        return self.jobs.stop(StopJob(id="stop", job="a", generation=1, reason="test"))

    def until(self, instant: float) -> None:
        """Let time pass."""
        while (at := self.events.next_at) is not None and at <= instant:
            self.clock.advance_to(at)
            self.events.happen(at)
        self.clock.advance_to(instant)


def test_a_job_works_at_its_speed_after_its_start_up() -> None:
    """One hour of work at speed 1.8 follows 360 s of start-up."""
    bench = Bench(a_class(startup_hours=0.1))
    bench.start(2)
    bench.until(1e5)

    assert bench.jobs.totals.jct_seconds == [pytest.approx(360.0 + 3600.0 / 1.8)]
    assert bench.jobs.totals.used_gpu_seconds == pytest.approx(2 * 3600.0 / 1.8)
    assert bench.jobs.totals.overhead_gpu_seconds == pytest.approx(2 * 360.0)


def test_scale_multiplies_the_work_but_not_the_start_up() -> None:
    """At scale 3 the job works three hours and starts up once."""
    bench = Bench(a_class(startup_hours=0.1), scale=3.0)
    bench.start(1)
    bench.until(1e5)

    assert bench.jobs.totals.jct_seconds == [pytest.approx(360.0 + 3 * 3600.0)]


def test_a_change_of_width_keeps_the_work_done_and_costs_a_rescale() -> None:
    """Half the work at speed 1 is followed by a rescale of 180 s and the other half at speed 3."""
    bench = Bench(a_class(rescale_hours=0.05))
    bench.start(1)
    bench.until(1800.0)
    bench.stop()
    bench.start(4, generation=2)
    bench.until(1e5)

    assert bench.jobs.totals.jct_seconds == [pytest.approx(1800.0 + 180.0 + 1800.0 / 3.0)]
    assert bench.jobs.totals.rescales == 1


def test_a_job_stopped_during_its_start_up_has_done_no_work() -> None:
    """Its GPU time counts as overhead."""
    bench = Bench(a_class(startup_hours=0.1))
    bench.start(1)
    bench.until(100.0)
    bench.stop()

    assert bench.jobs.jobs()["a"].job.remaining_gpu_hours == 1.0
    assert bench.jobs.totals.overhead_gpu_seconds == 100.0


def test_an_interrupted_start_up_is_finished_after_the_rescale() -> None:
    """100 of 360 s are done before the stop; a rescale of 180 s and the other 260 s follow."""
    bench = Bench(a_class(startup_hours=0.1, rescale_hours=0.05))
    bench.start(1)
    bench.until(100.0)
    bench.stop()
    bench.start(1, generation=2)
    bench.until(1e5)

    assert bench.jobs.totals.jct_seconds == [pytest.approx(100.0 + 180.0 + 260.0 + 3600.0)]


def test_the_end_of_a_phase_asks_for_a_tick_only_if_it_matters() -> None:
    """The end of the job always asks for a tick."""
    bench = Bench(a_class(sizes=[1.0, 1.0, 1.0]))
    asked: list[int] = []

    def matters(job: object) -> bool:
        asked.append(job.phase)  # type: ignore[attr-defined]
        return job.phase == 2  # type: ignore[attr-defined]

    bench.jobs.asks_for_tick = matters
    bench.start(1)
    bench.until(1e5)

    assert asked == [1, 2]
    assert bench.ticks == [0.0, 7200.0, 10800.0]


@pytest.mark.parametrize("fresh_progress", [True, False])
def test_phases_before_the_next_relevant_one_cause_no_events(fresh_progress: bool) -> None:
    """Job state and stops are still correct in those phases."""
    bench = Bench(a_class(sizes=[1.0, 1.0, 1.0, 1.0]), fresh_progress=fresh_progress)
    asked: list[int] = []

    def is_no_reason(job: Job) -> bool:
        asked.append(job.phase)
        return False

    bench.jobs.asks_for_tick = is_no_reason
    bench.jobs.next_phase_to_look_at = lambda job: 3
    bench.start(1)
    assert bench.events.next_at == 3 * 3600.0
    bench.until(1.5 * 3600.0)
    state = bench.jobs.jobs()["a"]
    assert (state.job.phase, state.job.remaining_gpu_hours) == (1, 2.5 if fresh_progress else 3.0)
    assert state.job.counted_at == (1.5 if fresh_progress else 1.0) * 3600.0
    bench.until(2.25 * 3600.0)
    assert bench.jobs.running["a"].phase == 2
    bench.stop()
    assert (bench.jobs.totals.used_gpu_seconds, bench.jobs.jobs()["a"].job.phase) == (2.25 * 3600.0, 2)
    bench.start(1, generation=2)
    bench.until(1e5)

    assert asked == [3]
    assert bench.jobs.totals.jct_seconds == [4 * 3600.0]


def test_a_phase_that_cannot_use_the_width_stalls_until_a_change() -> None:
    """The job holds its GPUs without work, and asks for a tick whatever the policy says."""
    narrow = a_class(curve=Table(gpus=(1,), speeds=(1.0,)))
    mixed = JobClass(name="c", phases=(*a_class().phases, *narrow.phases))
    bench = Bench(mixed)
    bench.jobs.asks_for_tick = lambda _: False
    bench.start(4)
    bench.until(1e5)
    assert bench.jobs.totals.finished == []
    assert bench.ticks[-1] == pytest.approx(1200.0)

    bench.stop()
    bench.start(1, generation=2)
    bench.until(2e5)
    assert bench.jobs.totals.finished == ["a"]


def test_fresh_progress_measures_the_work_left_at_every_look() -> None:
    """Without fresh progress the last known value is returned."""
    for fresh, left in ((True, 0.5), (False, 1.0)):
        bench = Bench(a_class(), fresh_progress=fresh)
        bench.start(1)
        bench.until(1800.0)
        assert bench.jobs.jobs()["a"].job.remaining_gpu_hours == pytest.approx(left)


def test_starting_twice_or_without_free_gpus_is_refused() -> None:
    """A stop of a job that does not run is accepted."""
    bench = Bench(a_class())
    assert bench.stop() == Accepted()
    bench.start(2)
    assert isinstance(bench.start(2, generation=1), Refused)
    bench.jobs.arrive(TraceJob("b", 0.0, "c"), Physics(a_class()), draw=0.5)
    other = StartJob(
        id="s", job="b", generation=1, width=Width("gpu", 1), slots=some_slots("n1", 0), reason="test"
    )
    assert bench.jobs.start(other) == Refused(reason="some of the GPUs are not free")


def test_a_job_that_loses_its_node_falls_back_to_its_last_checkpoint() -> None:
    """Saved after 600 and 1200 s and lost at 1500 s, it repeats 300 s of two GPUs after a rescale."""
    bench = Bench(a_class(rescale_hours=0.05), checkpoints=Checkpoints(every_seconds=600.0))
    bench.start(2)
    bench.until(1500.0)
    bench.jobs.lose("a")
    assert bench.jobs.jobs()["a"].slots == ()
    assert bench.jobs.jobs()["a"].job.remaining_gpu_hours == pytest.approx(1.0 - 1200.0 * 1.8 / 3600.0)
    bench.start(2, generation=2)
    bench.until(1e5)

    assert bench.jobs.totals.lost_gpu_seconds == pytest.approx(2 * 300.0)
    assert bench.jobs.totals.used_gpu_seconds == pytest.approx(2 * 3600.0 / 1.8)
    assert bench.jobs.totals.jct_seconds == [pytest.approx(300.0 + 180.0 + 3600.0 / 1.8)]
    assert (bench.jobs.totals.restarts, bench.jobs.totals.rescales) == (1, 0)


def test_without_checkpoints_everything_since_the_start_is_lost() -> None:
    """The job falls back to its first phase, but an ordered stop has saved its work."""
    bench = Bench(a_class(sizes=[1.0, 1.0]))
    bench.start(1)
    bench.until(1800.0)
    bench.stop()
    bench.start(1, generation=2)
    bench.until(1800.0 + 3600.0)
    assert bench.jobs.jobs()["a"].job.phase == 1
    bench.jobs.lose("a")

    assert bench.jobs.jobs()["a"].job.phase == 0
    assert bench.jobs.jobs()["a"].job.remaining_gpu_hours == pytest.approx(1.5)


def test_a_checkpoint_takes_time_and_gpus() -> None:
    """An hour of work is saved five times; a sixth checkpoint would save a finished job."""
    bench = Bench(a_class(), checkpoints=Checkpoints(every_seconds=600.0, cost_seconds=30.0))
    bench.start(1)
    bench.until(1e5)

    assert bench.jobs.totals.jct_seconds == [pytest.approx(3600.0 + 5 * 30.0)]
    assert bench.jobs.totals.overhead_gpu_seconds == pytest.approx(5 * 30.0)


def test_job_failures_are_drawn_per_generation_and_reproducible() -> None:
    """Two hours of work with a failure every half hour need restarts, equal for equal seeds."""
    world = WorldSettings(faults=Faults(mean_job_failure_hours=0.5))
    seen = []
    for _ in range(2):
        draws = Draws(world, boot_seconds=0.0, seed=3)
        bench = Bench(a_class(sizes=[2.0]), checkpoints=Checkpoints(every_seconds=60.0), draws=draws)
        for generation in range(1, 50):
            bench.start(1, generation=generation)
            while bench.jobs.jobs() and bench.jobs.jobs()["a"].slots:
                bench.until(bench.events.next_at or 0.0)
        seen.append((bench.jobs.totals.job_failures, bench.jobs.totals.jct_seconds))

    assert seen[0] == seen[1]
    assert seen[0][0] >= 1
    assert len(seen[0][1]) == 1


def test_a_tick_sees_the_believed_size_of_a_job() -> None:
    """The simulation runs the true size."""
    bench = Bench(a_class(), told=(2.0, 1.5))
    job = bench.jobs.jobs()["a"].job
    bench.start(1)
    bench.until(1e5)

    assert (job.remaining_gpu_hours, job.scale) == (2.0, 1.5)
    assert bench.jobs.totals.jct_seconds == [pytest.approx(3600.0)]
