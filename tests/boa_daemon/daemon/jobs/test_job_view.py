"""The queue follows the engine's reports: an end frees the GPUs, and no generation starts twice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from job_records import a_queue, a_row, a_start, with_nodes

from boa_daemon.daemon.jobs.job_view import MOST_FAILURES, JobView
from boa_daemon.store.queue import JobQueue
from boa_daemon.store.records import JobRecord
from boa_daemon.testing import ManualClock, a_class
from boa_daemon.tick.facts.actions import EndGeneration, GiveUpJob, StartJob, StopJob
from boa_daemon.tick.facts.ports import Accepted, Manifest, Refused, Runner, RunReport
from boa_daemon.tick.facts.state import Claim
from policies.model import GpuSlot, Width

SAVED = Manifest(generation=1, step=40, sha256="0", path="step-40")


class Engine:
    """An engine that says what a test sets, and notes what it is told."""

    def __init__(self) -> None:
        self.reports: dict[str, RunReport] = {}
        self.told: list[tuple[Any, ...]] = []
        self.answer: Accepted | Refused = Accepted()

    def poll(self) -> Mapping[str, RunReport]:
        return dict(self.reports)

    def reattach(self) -> Mapping[str, RunReport]:
        return dict(self.reports)

    def admit(self, spec: Any) -> Accepted | Refused:
        self.told.append(("admit", spec.job))
        return Accepted()

    def start(self, action: StartJob) -> Accepted | Refused:
        self.told.append(("start", action.job, action.generation))
        return self.answer

    def stop(self, action: StopJob) -> Accepted | Refused:
        self.told.append(("stop", action.job, action.generation))
        return self.answer

    def kill(self, job: str, generation: int) -> Accepted | Refused:
        self.told.append(("kill", job, generation))
        return self.answer

    def forget(self, job: str) -> None:
        self.told.append(("forget", job))


class Stage:
    """A view of two jobs, one of which runs on two GPUs since instant 100."""

    def __init__(self, queue: JobQueue) -> None:
        self.queue, self.engine, self.clock = queue, Engine(), ManualClock(50.0)
        self.alerts: list[str] = []
        self.work = JobView(
            queue,
            cast(Runner, self.engine),
            self.clock,
            class_of=lambda _name: a_class("default"),
            alert=lambda _key, sentence: self.alerts.append(sentence),
            user_caps=lambda: {"ann": 8.0},
        )
        with_nodes(queue, "n1")
        self.runs, self.waits = (job.id for job in queue.submit([a_row("runs"), a_row("waits")], at=1.0))
        queue.claim([a_start(self.runs, ("n1", 0), ("n1", 1))], at=100.0)
        self.clock.instant = 3700.0

    def look(self, phase: Any = "running", *, job: str = "", generation: int = 1, **report: Any) -> JobRecord:
        """Let the engine report on a job, and return the record after a look."""
        name = job or self.runs
        found = RunReport(job=name, generation=generation, phase=phase, **report)
        self.engine.reports = {name: found}
        self.work.look()
        record = self.queue.job(name)
        assert record is not None
        return record

    def edit(self, **changes: Any) -> None:
        """Change the record of the running job."""
        self.queue.save(replace(self.queue.active[self.runs], **changes))


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with a_queue(tmp_path) as queue:
        yield Stage(queue)


@pytest.mark.parametrize(
    ("phase", "is_cancelled", "status"),
    [
        ("finished", False, "finished"),
        ("finished", True, "finished"),
        ("stopped", False, "queued"),
        ("stopped", True, "cancelled"),
        ("failed", False, "queued"),
        ("failed", True, "cancelled"),
    ],
)
def test_an_end_frees_the_gpus_and_sets_the_status(
    stage: Stage, phase: str, is_cancelled: bool, status: str
) -> None:
    """Two of four GPUs for an hour cost two dollars; a failure is counted unless the job was cancelled."""
    stage.edit(is_cancelled=is_cancelled)
    job = stage.look(phase, evidence="it says so")
    assert (job.status, job.slots, job.micro_dollars) == (status, (), 2_000_000)
    assert job.failures == (phase == "failed" and not is_cancelled)
    assert (job.cause, job.settled_generation) == ("it says so", 1)


def test_a_node_fault_is_no_failure_of_the_job(stage: Stage) -> None:
    """It goes on elsewhere."""
    job = stage.look("failed", cause="node-fault")
    assert (job.failures, job.failed, job.status) == (0, (), "queued")


def test_a_failure_is_noted_with_the_step_it_can_go_on_from(stage: Stage) -> None:
    """Steps that are in no checkpoint are lost, and only so many failures are remembered."""
    stage.edit(failed=((1.0, 1, "error"),) * MOST_FAILURES)
    job = stage.look("failed", cause="error", step=100, lost_steps=60, manifest=SAVED)
    assert (len(job.failed), job.failed[-1]) == (MOST_FAILURES, (3700.0, 40, "error"))
    assert (job.step, job.begun_step, job.lost_steps) == (40, 40, 60)
    assert job.lost_gpu_hours == pytest.approx(0.6 * 2.0)


def test_a_start_that_the_engine_does_not_know_is_ordered_again_once(stage: Stage) -> None:
    """If the engine refuses, the GPUs are free again."""
    stage.work.look()
    assert stage.engine.told == [("admit", stage.runs), ("start", stage.runs, 1)]
    assert stage.queue.active[stage.runs].slots
    stage.engine.answer = Refused(reason="no")
    stage.work.look()
    assert stage.queue.active[stage.runs].slots == ()


def test_a_generation_number_never_starts_again(stage: Stage) -> None:
    """The database is an older copy: the newer generation is killed, and its number is used up."""
    job = stage.look(generation=5)
    assert ("kill", stage.runs, 5) in stage.engine.told
    assert (job.generation, job.slots, job.status) == (5, (), "queued")


def test_a_job_that_nobody_knows_is_stopped_once_and_forgotten_after_its_end(stage: Stage) -> None:
    """Its end is on disk only after the look that saw it."""
    stray = RunReport(job="stray-9", generation=2, phase="running")
    known = RunReport(job=stage.runs, generation=1, phase="running")
    for phase in ("running", "stopping", "stopped", "stopped"):
        stage.engine.reports = {"stray-9": replace(stray, phase=phase), stage.runs: known}  # type: ignore[arg-type]
        stage.work.look()
    assert [told for told in stage.engine.told if told[1] == "stray-9"] == [
        ("stop", "stray-9", 2),
        ("forget", "stray-9"),
    ]
    assert stage.alerts == ["job stray-9 runs but is not in the queue, so it is stopped"]


def test_a_first_report_shows_that_a_job_keeps_its_work(stage: Stage) -> None:
    """A silent generation shows nothing."""
    assert not stage.look().has_reported
    assert stage.look(step=1).has_reported


def test_cancelling_stops_what_runs_and_ends_what_waits(stage: Stage) -> None:
    """Unknown names are left out, and the order is noted once with both jobs."""
    noted: list[list[str]] = []
    found = stage.work.cancel(
        [stage.runs, "nobody-7", stage.waits], lambda jobs: noted.append([job.id for job in jobs])
    )
    assert [job.id for job in found] == [stage.runs, stage.waits] == noted[0]
    assert stage.engine.told == [("stop", stage.runs, 1)]
    assert list(stage.queue.active) == [stage.runs]
    assert stage.queue.active[stage.runs].is_cancelled
    assert stage.work.cancel(["nobody-7"], lambda _jobs: noted.append([])) == []
    assert len(noted) == 1


@pytest.mark.parametrize(
    ("refusal", "status"),
    [
        (Refused(reason="no disk", kind="bad-request"), "failed"),
        (Refused(reason="not now"), "queued"),
    ],
)
def test_a_start_that_is_refused_frees_the_gpus(stage: Stage, refusal: Refused, status: str) -> None:
    """What can never start has failed."""
    stage.engine.answer = refusal
    start = a_start(stage.runs, ("n1", 0), ("n1", 1))
    assert stage.work.start(start) == refusal
    job = stage.queue.job(stage.runs)
    assert job is not None
    assert (job.status, job.slots, job.cause) == (status, (), refusal.reason)


def test_orders_about_another_generation_reach_nobody(stage: Stage) -> None:
    """They come from a tick that knew less: a start is refused, the others are done already."""
    later, name = 2, stage.runs
    assert isinstance(stage.work.start(a_start(name, ("n1", 0), generation=later)), Refused)
    assert isinstance(stage.work.start(a_start(stage.waits, ("n1", 2), generation=0)), Refused)
    assert stage.work.stop(StopJob(id="s", job=name, generation=later, reason="")) == Accepted()
    assert stage.work.end(EndGeneration(id="e", job=name, generation=later, reason="")) == Accepted()
    assert stage.work.stop(StopJob(id="s", job=stage.waits, generation=0, reason="")) == Accepted()
    assert stage.engine.told == []


def test_a_killed_generation_has_the_reason_of_the_order(stage: Stage) -> None:
    """The first order counts, and the evidence follows it."""
    for reason in ("made no step for 600 s", "is still silent"):
        stage.work.end(EndGeneration(id="e", job=stage.runs, generation=1, reason=reason))
    assert stage.engine.told == [("kill", stage.runs, 1)] * 2
    job = stage.look("failed", cause="killed", evidence="signal 9")
    assert job.cause == "made no step for 600 s; signal 9"


@pytest.mark.parametrize(
    ("code", "alert"),
    [
        ("failed", "job {} failed: three times"),
        ("after", "job {} is not started: three times"),
        ("max-usd", ""),
    ],
)
def test_a_waiting_job_that_is_given_up_has_failed(stage: Stage, code: Any, alert: str) -> None:
    """A running one is not touched: it started meanwhile."""
    for name in (stage.runs, stage.waits):
        stage.work.give_up(GiveUpJob(id="g", job=name, code=code, reason="three times"))
    assert list(stage.queue.active) == [stage.runs]
    job = stage.queue.job(stage.waits)
    assert job is not None
    assert (job.status, job.cause, job.ended_at) == ("failed", "three times", 3700.0)
    assert stage.alerts == ([alert.format(stage.waits)] if alert else [])


def test_claims_of_jobs_that_are_gone_or_run_again_are_forgotten(stage: Stage) -> None:
    """Those that stay come in the order of the jobs."""
    claim = Claim(width=Width("gpu", 1), slots=(GpuSlot("n1", 3),))
    third, ended = stage.queue.submit([a_row("third"), a_row("ended")], at=2.0)
    stage.queue.save(replace(ended, is_cancelled=True))
    for name in (third.id, stage.waits, stage.runs, ended.id, "nobody-7"):
        stage.queue.claims[name] = claim
    assert list(stage.work.claims()) == [stage.waits, third.id]
    assert set(stage.queue.claims) == {stage.waits, third.id}


def test_the_money_of_a_user_is_todays(stage: Stage) -> None:
    """Two dollars of a running job are spent already, and the boot of its node before."""
    money = stage.work.users()["ann"]
    assert (money.cap_usd, money.spent_usd) == (8.0, pytest.approx(2.0 + 4.0 * 100.0 / 3600.0))


def test_a_new_process_admits_what_runs(stage: Stage) -> None:
    """An ended generation does not count."""
    stage.engine.reports = {stage.runs: RunReport(job=stage.runs, generation=1, phase="running")}
    assert stage.work.reattach() == 1
    assert stage.engine.told == [("admit", stage.runs)]
    stage.engine.reports = {stage.runs: RunReport(job=stage.runs, generation=1, phase="stopped")}
    assert stage.work.reattach() == 0
