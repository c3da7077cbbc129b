"""The desk between ticks and generations: GPUs that are held until a job has let go, failures, samples."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from boa_daemon.backends.local import LocalCloud
from boa_daemon.daemon.assembly import ENGINES
from boa_daemon.daemon.config import Settings
from boa_daemon.engines.breaker import Failure, GiveUp, RestartBreaker, TryAgain
from boa_daemon.engines.desk import JobDesk, OccupiedCloud, Ticket
from boa_daemon.errors import InputError
from boa_daemon.testing import ManualClock, a_job, an_instance_type, some_slots
from boa_daemon.tick.actions import LaunchNodes, StartJob, StopJob, TerminateNode
from boa_daemon.tick.ports import Accepted, JobSpec, Launched, Manifest, Refused, RunReport
from policies.errors import InvalidProblem
from policies.model import Width


@dataclass
class ToldRunner:
    """A runner that reports what a test tells it."""

    reports: dict[str, RunReport] = field(default_factory=dict)
    orders: list[str] = field(default_factory=list)
    answer: Accepted | Refused = field(default_factory=Accepted)

    def admit(self, _spec: JobSpec) -> Accepted | Refused:
        return self.answer

    def start(self, action: StartJob) -> Accepted | Refused:
        self.orders.append(f"start {action.job} {action.generation}")
        self.tell(action.job, action.generation)
        return self.answer

    def stop(self, action: StopJob) -> Accepted | Refused:
        self.orders.append(f"stop {action.job} {action.generation}")
        return self.answer

    def poll(self) -> dict[str, RunReport]:
        return dict(self.reports)

    def prepare(self, nodes: list[object]) -> dict[str, Accepted]:
        return {node.id: Accepted() for node in nodes}  # type: ignore[attr-defined]

    def forget(self, job: str) -> None:
        del self.reports[job]

    def tell(self, job: str, generation: int, **facts: object) -> None:
        values = {"job": job, "generation": generation, "phase": "running"} | facts
        self.reports[job] = RunReport(**values)  # type: ignore[arg-type]


def a_desk(**changes: object) -> tuple[JobDesk, ToldRunner, ManualClock]:
    """Return a desk with job "a" on it: two phases of 10 and 30 steps, 1 and 2 GPU-hours."""
    runner, clock = ToldRunner(), ManualClock(0.0)
    desk = JobDesk(runner, clock, **changes)  # type: ignore[arg-type]
    spec = JobSpec(job="a", name="a", class_name="c", run="true")
    desk.take(Ticket(spec=spec, job=a_job("a"), phase_ends=(10, 40), phase_gpu_hours=(1.0, 2.0)))
    return desk, runner, clock


def start(job: str, generation: int, *indices: int) -> StartJob:
    slots = some_slots("n1", *indices)
    return StartJob(
        id="s", job=job, generation=generation, width=Width("gpu", len(slots)), slots=slots, reason=""
    )


def stop(job: str, generation: int) -> StopJob:
    return StopJob(id="x", job=job, generation=generation, reason="")


def test_gpus_are_held_until_the_generation_has_really_ended() -> None:
    """A stop is a wish: until it is granted the job is stopping, and nobody else starts there."""
    desk, runner, _ = a_desk()
    desk.take(Ticket(spec=JobSpec(job="b", name="b", class_name="c", run="true"), job=a_job("b")))
    assert desk.start(start("a", 1, 0, 1)) == Accepted()
    assert desk.stop(stop("a", 1)) == Accepted()
    state = desk.jobs()["a"]
    assert state.is_stopping
    assert len(state.slots) == 2
    assert isinstance(desk.start(start("a", 2, 0)), Refused)
    assert isinstance(desk.start(start("b", 1, 1, 2)), Refused)

    runner.tell("a", 1, phase="stopped", step=12)
    assert desk.jobs()["a"].slots == ()
    assert desk.start(start("b", 1, 1, 2)) == Accepted()
    assert desk.start(start("a", 2, 0)) == Accepted()
    assert runner.orders == ["start a 1", "stop a 1", "start b 1", "start a 2"]
    assert desk.rescales == 1


def test_progress_is_phase_and_work_left_and_survives_a_restart() -> None:
    """20 of 40 steps: the second phase, a third of it done; a generation without a report knows it too."""
    desk, runner, _ = a_desk()
    desk.start(start("a", 1, 0))
    runner.tell("a", 1, step=20)
    job = desk.jobs()["a"].job
    assert (job.phase, job.remaining_gpu_hours) == (1, pytest.approx(2.0 * 20 / 30))

    runner.tell("a", 1, phase="stopped", step=20)
    desk.jobs()
    desk.start(start("a", 2, 0))
    assert desk.jobs()["a"].job.phase == 1


def test_lost_steps_are_taken_off_the_progress_and_counted() -> None:
    """After a crash the job stands where its checkpoint does."""
    desk, runner, _ = a_desk()
    desk.start(start("a", 1, 0))
    runner.tell("a", 1, step=20)
    desk.refresh()
    stands = Manifest(generation=1, step=5, sha256="", path="")
    runner.tell("a", 1, phase="failed", step=20, lost_steps=15, manifest=stands, cause="signal")
    desk.refresh()

    assert desk.lost_steps == 15
    assert desk.reports()["a"].manifest == stands
    assert desk.jobs() == {}, "it waits a little before it is tried again"


def test_what_nobody_could_look_at_goes_on() -> None:
    """Unknown is a state, and no reason to free a GPU or to count a failure."""
    desk, runner, _ = a_desk()
    desk.start(start("a", 1, 0))
    for _ in range(10):
        runner.tell("a", 1, phase="unknown")
        assert len(desk.jobs()["a"].slots) == 1


def test_a_failure_is_tried_again_later_and_a_final_one_is_not() -> None:
    """Out of memory is out of memory: the job leaves with the reason. A crash waits for its turn."""
    desk, runner, clock = a_desk(breaker=RestartBreaker(first_wait_seconds=10.0))
    desk.start(start("a", 1, 0))
    runner.tell("a", 1, phase="failed", cause="signal")
    assert desk.jobs() == {}
    clock.instant = 10.0
    assert list(desk.jobs()) == ["a"]

    desk.start(start("a", 2, 0))
    runner.tell("a", 2, phase="failed", cause="out-of-memory", evidence="ended with exit code 1")
    assert desk.jobs() == {}
    assert [(left.is_finished, "out-of-memory" in left.why) for left in desk.left] == [(False, True)]


def test_a_job_that_is_done_leaves() -> None:
    """It frees its GPUs and is forgotten by the engine; its last report stays."""
    desk, runner, _ = a_desk()
    desk.start(start("a", 1, 0))
    runner.tell("a", 1, phase="finished", step=40, loss=0.5)

    assert desk.jobs() == {}
    assert [(left.is_finished, left.report.loss) for left in desk.left] == [(True, 0.5)]
    assert runner.reports == {}


def test_reports_become_samples_of_speed() -> None:
    """From one look to the next: 640 samples in 2 s, in batches of 64; short stretches wait for more."""
    desk, runner, _ = a_desk()
    desk.start(start("a", 1, 0, 1))
    for step, seconds in ((1, 0.0), (2, 0.2), (11, 2.0)):
        runner.tell("a", 1, step=step, samples=64.0 * (step - 1), seconds=seconds, gradient_noise=9.0)
        desk.refresh()

    (sample,) = desk.samples
    assert (sample.gpus, sample.samples, sample.seconds) == (2, 640.0, 2.0)
    assert (sample.batch, sample.gradient_noise) == (64.0, 9.0)


def test_nodes_name_their_jobs_and_used_ones_are_kept(tmp_path: Path) -> None:
    """The cloud knows nodes, the desk knows jobs; together they say which GPU is whose."""
    desk, runner, clock = a_desk()
    cloud = OccupiedCloud(cloud=LocalCloud(clock, most_nodes=2, file=tmp_path / "nodes.json"), desk=desk)
    launched = cloud.launch(LaunchNodes(id="l", instance_type=an_instance_type(gpus=2), count=3, reason=""))
    assert isinstance(launched, Launched)
    assert (len(launched.nodes), launched.short is not None) == (2, True)
    first, second = launched.nodes
    action = replace(start("a", 1), slots=some_slots(first, 0), width=Width("gpu", 1))
    desk.start(action)

    by_name = {node.id: node for node in cloud.nodes()}
    assert by_name[first].gpus == ("a", None)
    assert by_name[first].idle_since is None
    assert by_name[second].is_idle
    ends = [TerminateNode(id="t", node=name, reason="") for name in (first, second)]
    answers = cloud.terminate(ends)
    assert isinstance(answers[first], Refused)
    assert answers[second] == Accepted()

    clock.instant = 7.0
    runner.tell("a", 1, phase="stopped")
    desk.refresh()
    (left, ended) = cloud.nodes()
    assert (left.id, left.idle_since) == (first, 7.0)
    assert (ended.id, ended.ended_at) == (second, 0.0)
    again = LocalCloud(clock, most_nodes=2, file=tmp_path / "nodes.json")
    assert [node.id for node in again.nodes()] == [first]


def test_a_local_cloud_boots_and_takes_gangs_whole() -> None:
    """A gang of three does not fit in two places; the same order twice is one order."""
    clock = ManualClock(0.0)
    cloud = LocalCloud(clock, most_nodes=2, boot_seconds=5.0)
    gang = LaunchNodes(id="g", instance_type=an_instance_type(), count=3, is_gang=True, reason="")
    assert isinstance(cloud.launch(gang), Refused)
    order = replace(gang, id="h", count=2)
    assert cloud.launch(order) == cloud.launch(order)
    assert [node.phase for node in cloud.nodes()] == ["requested"] * 2

    clock.instant = 5.0
    assert [node.phase for node in cloud.nodes()] == ["ready"] * 2
    assert cloud.offers() == ()


def test_the_breaker_waits_longer_each_time_and_gives_up() -> None:
    """5, 10, 20 s and then a person; a new checkpoint in between, or an hour, clears the count."""
    breaker = RestartBreaker(most_failures=4, first_wait_seconds=5.0, window_seconds=3600.0)
    crash = RunReport(job="a", generation=1, phase="failed", cause="signal", evidence="signal 11")
    at = [Failure(at=float(t), step=0) for t in (0, 10, 20, 30)]

    assert [breaker.judge(crash, at[:n]) for n in (1, 2, 3)] == [
        TryAgain(not_before=0 + 5.0), TryAgain(not_before=10 + 10.0), TryAgain(not_before=20 + 20.0),
    ]  # fmt: skip
    assert isinstance(breaker.judge(crash, at), GiveUp)
    assert breaker.judge(crash, [*at, Failure(at=40.0, step=3)]) == TryAgain(not_before=45.0)
    assert breaker.judge(crash, [*at, Failure(at=9000.0, step=0)]) == TryAgain(not_before=9005.0)
    missing = replace(crash, cause="missing-command")
    assert isinstance(breaker.judge(missing, at[:1]), GiveUp)


def test_phases_that_do_not_fit_together_are_refused() -> None:
    """As many sizes as ends, in rising order."""
    spec = JobSpec(job="a", name="a", class_name="c", run="true")
    with pytest.raises(InvalidProblem, match="phase_ends"):
        Ticket(spec=spec, job=a_job("a"), phase_ends=(10, 5), phase_gpu_hours=(1.0, 1.0))


def test_the_ray_engine_needs_a_shared_folder(tmp_path: Path) -> None:
    """What all nodes must see is named, or nothing starts."""
    settings = Settings.model_validate({"engine": {"name": "ray"}})

    with pytest.raises(InputError, match="shared_dir"):
        ENGINES["ray"](settings, tmp_path, None)
