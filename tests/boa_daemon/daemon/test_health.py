"""Job health: lost steps, stalls, repeated failures, time limits, and nodes that fail or are interrupted."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from boa_daemon.daemon.service.replay import replay
from boa_daemon.engines.inbox import Inbox
from boa_daemon.errors import InputError
from boa_daemon.inputs.message_validation import parse_unit_status
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content
from boa_daemon.tick.facts.actions import GiveUpJob
from boa_daemon.tick.facts.ports import Manifest, RunReport

START = 1_800_000_000.0 - 1_800_000_000.0 % 86_400.0
TICK = 30.0
SETTINGS: dict[str, dict[str, Any]] = {
    "budget": {"usd_per_hour": 10.0},
    "cloud": {"boot_seconds": 30.0},
    "daemon": {"tick_seconds": TICK, "idle_hold_seconds": 60.0, "stall_seconds": 120.0},
}


class Told:
    """A runner whose reports a test can change; with an inbox it receives spot warnings."""

    def __init__(self, inner: Any, inbox: Inbox | None) -> None:
        self.inner, self.inbox = inner, inbox
        self.tell: Callable[[RunReport], RunReport] = lambda report: report
        self.sick: dict[str, str] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def poll(self) -> Mapping[str, RunReport]:
        if self.inbox is not None:
            list(self.inbox.receive())
        told = {job: self.tell(report) for job, report in self.inner.poll().items()}
        for job, report in told.items():
            if report.is_over:
                self.inner.kill(job, report.generation)
        return told

    def unfit(self) -> Mapping[str, str]:
        return self.sick

    def interruptions(self) -> Mapping[str, float]:
        return {} if self.inbox is None else dict(self.inbox.interruptions)


class Stage:
    """A daemon with a clock that the test sets, and its runner."""

    def __init__(self, folder: Path, inbox: Inbox | None) -> None:
        self.clock, self.folder, self.inbox = ManualClock(START), folder, inbox
        self.open()

    def open(self) -> None:
        def wrap(inner: Any) -> Any:
            self.runner = Told(inner, self.inbox)
            return self.runner

        self.play = DaemonInAFolder(self.folder, self.clock, SETTINGS, wrap_runner=wrap)

    def run(self, seconds: float) -> None:
        until = self.clock.instant + seconds
        while self.clock.instant < until:
            self.tick()

    def tick(self) -> Any:
        decision = self.play.daemon.tick()
        assert not self.play.daemon.standing.fault
        self.clock.instant += TICK
        return decision

    def submit(self, **changes: Any) -> str:
        return str(self.play.service.submit([job_content(**changes)], user="ann")["jobs"][0])

    def steps(self, report: RunReport) -> RunReport:
        """Report one step per second."""
        return replace(report, step=int(self.clock.instant - START), seconds=self.clock.instant - START)

    def alerts(self) -> str:
        return json.dumps(self.play.service.alerts())

    def told(self, job: str) -> list[str]:
        """Return the orders that the engine got for a job, such as "start" and "stop"."""
        events = [json.loads(line) for line in (self.folder / "runner.jsonl").read_text().splitlines()]
        return [event["what"] for event in events if event["job"] == job]


@contextmanager
def a_stage(folder: Path, inbox: Inbox | None = None) -> Iterator[Stage]:
    stage = Stage(folder, inbox)
    try:
        yield stage
    finally:
        stage.play.close()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with a_stage(tmp_path) as found:
        yield found


def test_lost_steps_are_added_back_to_the_remaining_work_and_explained(stage: Stage) -> None:
    """60 of 100 steps are lost, so 40 % of the work counts; explain and a restarted daemon know the loss."""
    job = stage.submit(hours=1.0)
    stage.run(300.0)
    before = stage.play.storage.queue.active[job]
    assert before.started_at is not None
    manifest = Manifest(generation=1, step=40, sha256="0", path="step-40")
    stage.runner.tell = lambda report: (
        replace(report, phase="stopped", step=100, manifest=manifest, lost_steps=60, evidence="60 steps lost")
        if report.generation == 1
        else report
    )
    now = stage.clock.instant
    decision = stage.tick()
    after = stage.play.storage.queue.active[job]
    done_hours = (now - before.started_at) / 3600.0  # One GPU of the reference type has speed 1.
    assert 1.0 - after.remaining_gpu_hours == pytest.approx(0.4 * done_hours)
    assert (after.lost_steps, after.step, after.begun_step) == (60, 40, 40)
    assert decision.state.jobs[job].lost_steps == 60
    assert "It lost 60 steps" in stage.play.service.explain(job)["text"]
    stage.play.close()
    stage.open()
    assert stage.play.service.job(job)["lost_steps"] == 60


def test_a_job_without_new_steps_is_reported_as_stalled_then_ended_and_restarted(stage: Stage) -> None:
    """With `stall_seconds` of 120 s, an alert comes first; within 180 s more, the job is restarted."""
    job = stage.submit(hours=1.0)
    stage.run(90.0)
    stage.runner.tell = lambda report: (
        replace(report, step=50, seconds=50.0) if report.generation == 1 and not report.is_over else report
    )
    stage.run(120.0)
    assert stage.play.service.job(job)["stalled_since"] is None
    stage.run(60.0)
    assert stage.play.service.job(job)["stalled_since"] is not None
    assert "no step" in stage.alerts()
    assert stage.play.service.job(job)["generation"] == 1, "one look is not enough to end it"
    stage.run(180.0)
    row = stage.play.service.job(job)
    assert (row["generation"], row["failures"], row["stalled_since"]) == (2, 1, None)
    assert "made no step" in row["cause"]


def test_the_stall_limit_of_a_slow_job_grows_with_its_step_time(stage: Stage) -> None:
    """With one step per minute the limit is 20 steps (1200 s), so 900 s without a step are no stall."""
    job = stage.submit(hours=2.0)
    stage.run(90.0)
    stage.runner.tell = lambda report: replace(report, step=2, seconds=120.0)
    stage.run(900.0)
    row = stage.play.service.job(job)
    assert (row["generation"], row["stalled_since"]) == (1, None)


def test_a_job_that_never_reports_steps_is_not_called_stalled(stage: Stage) -> None:
    """Without reported steps, silence says nothing about progress."""
    job = stage.submit(hours=2.0)
    stage.run(3600.0)
    row = stage.play.service.job(job)
    assert (row["generation"], row["stalled_since"]) == (1, None)


@pytest.mark.parametrize("cause", ["out-of-memory", "missing-command"])
def test_a_failure_that_would_repeat_is_not_retried(stage: Stage, cause: Any) -> None:
    """The job starts once, and its row has the exit code and the last lines of its output."""
    job = stage.submit(hours=1.0, retries=5)
    stage.run(90.0)
    stage.runner.tell = lambda report: replace(
        report, phase="failed", cause=cause, exit_code=137, evidence="it died", last_lines=("a", "b")
    )
    stage.run(600.0)
    row = stage.play.service.job(job)
    assert (row["status"], row["generation"], row["exit_code"]) == ("failed", 1, 137)
    assert row["last_lines"] == ["a", "b"]
    assert "would repeat" in stage.alerts()
    assert f"{cause}, which another try would repeat: it died" in stage.play.service.explain(job)["text"]


def test_a_failure_recorded_before_a_crash_is_handled_by_the_next_process(stage: Stage) -> None:
    """The daemon stops after the failure was recorded and before a tick; the next one gives the job up."""
    job = stage.submit(hours=1.0, retries=0)
    stage.run(90.0)
    stage.runner.tell = lambda report: replace(report, phase="failed", cause="error", evidence="it died")
    assert stage.play.daemon.work.look()
    row = stage.play.service.job(job)
    assert (row["status"], row["failures"]) == ("queued", 1)
    began = row["first_started_at"]
    stage.play.close()
    stage.open()
    decision = stage.tick()
    assert decision.actions[0] == GiveUpJob(
        id=f"t{decision.state.tick}-give-up-{job}", job=job, code="failed", reason="error"
    )
    row = stage.play.service.job(job)
    assert (row["status"], row["cause"], row["started_at"]) == ("failed", "it died", began)
    recorded = stage.play.service.decision(decision.state.tick)
    assert replay(json.loads(json.dumps(recorded))).is_same
    assert [alert["sentence"] for alert in stage.play.service.alerts()["alerts"]] == [
        f"job {job} failed: error"
    ]


def test_an_observing_daemon_does_not_end_a_hanging_job(stage: Stage) -> None:
    """The decision says that the job would be ended, and the job keeps running."""
    job = stage.submit(hours=2.0, first_report_hours=0.25, retries=0)
    stage.run(90.0)
    daemon, given = stage.play.daemon, stage.play.daemon.settings
    observing = given.daemon.model_copy(update={"observe": True})
    daemon.settings = given.model_copy(update={"daemon": observing})
    stage.run(1200.0)
    decision = stage.tick()
    assert job in decision.plan.jobs.ends
    assert stage.play.service.job(job)["status"] == "running"


def test_a_new_checkpoint_resets_the_count_of_failures(stage: Stage) -> None:
    """With a newer checkpoint each time, `retries=1` allows many starts; without progress the job fails."""
    stage.runner.tell = lambda report: replace(
        report,
        phase="failed",
        cause="error",
        step=report.generation,
        manifest=Manifest(generation=report.generation, step=report.generation, sha256="0", path="x"),
    )
    job = stage.submit(hours=1.0, retries=1)
    stage.run(900.0)
    row = stage.play.service.job(job)
    assert row["status"] in ("queued", "running")
    assert row["generation"] > 3
    stage.runner.tell = lambda report: replace(report, phase="failed", cause="error", manifest=None)
    stage.run(3900.0)
    assert stage.play.service.job(job)["status"] == "failed"
    assert "failures within" in stage.play.service.explain(job)["text"]


@mock_aws
def test_a_spot_warning_makes_the_next_tick_stop_the_job_and_rent_a_replacement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The warning wakes the daemon, and a restarted daemon still knows when the node ends."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    sqs = boto3.client("sqs", region_name="us-east-1")
    url = sqs.create_queue(QueueName="boa")["QueueUrl"]
    with a_stage(tmp_path, Inbox(sqs, url, parse_unit_status)) as stage:
        job = stage.submit(hours=1.0)
        stage.run(300.0)
        (node,) = stage.play.service.job(job)["nodes"]
        at = datetime.fromtimestamp(stage.clock.instant, UTC)
        event = {
            "detail-type": "EC2 Spot Instance Interruption Warning",
            "time": at.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "detail": {"instance-id": node, "instance-action": "terminate"},
        }
        sqs.send_message(QueueUrl=url, MessageBody=json.dumps(event))
        wakes: list[float] = []
        stage.play.daemon.wake = wakes.append
        stage.play.daemon.watch()
        assert wakes == [0.0], "the next tick is now"
        decision = stage.tick()
        assert decision.state.nodes[node].ends_by == at.timestamp() + 120.0
        kinds = [type(action).__name__ for action in decision.actions]
        assert kinds == ["StopJob", "LaunchNodes"]
        stage.play.close()
        stage.inbox = None
        stage.open()
        assert stage.tick().state.nodes[node].ends_by == at.timestamp() + 120.0
        stage.run(120.0)
        row = stage.play.service.job(job)
        assert (row["status"], row["generation"]) == ("running", 2)
        assert row["nodes"] != [node]


def test_an_unmeasured_width_is_tried_once_for_a_short_time_and_explained(stage: Stage) -> None:
    """A long job on one GPU tries two GPUs; once that speed is measured, the try is not repeated."""
    job = stage.submit(hours=40.0, max_gpus=2)
    origin: dict[int, float] = {}

    def tell(report: RunReport) -> RunReport:
        began = origin.setdefault(report.generation, stage.clock.instant)
        seconds = stage.clock.instant - began
        return replace(report, step=int(seconds), samples=10.0 * seconds, seconds=seconds + 1e-6)

    stage.runner.tell = tell
    tries, widths = [], set()
    for _ in range(900):
        decision = stage.tick()
        stage.clock.instant += 0.0 if tries else 2.0 * TICK
        widths.add(stage.play.service.job(job)["gpus"])
        if found := stage.play.daemon.learning.tries.explorations.get(job):
            tries.append((stage.clock.instant, found))
            if decision.state.jobs[job].job.width is not None:
                assert "a try of" in decision.explain(job)
        if tries and stage.clock.instant > tries[0][0] + 3600.0:
            break
    assert widths == {0, 1, 2}
    assert tries, "the width beside the planned one is tried"
    began, ended = tries[0][0], tries[-1][0]
    assert ended - began <= 600.0 + TICK, "for a while, once"
    measured = {(sample.gpus): sample.seconds for sample in stage.play.daemon.work.learner.samples}
    assert set(measured) == {1, 2}
    assert tries[0][1].gpu_seconds <= 0.02 * 15.0 * 3600.0 * 2


def test_a_job_that_has_not_reported_runs_at_its_narrowest_width(
    stage: Stage,
) -> None:
    """A script without `boa_daemon.job` runs on one GPU until its first report, then on the planned width."""
    job = stage.submit(hours=40.0, max_gpus=4, elastic=None)
    stage.run(1800.0)
    row = stage.play.service.job(job)
    assert (row["gpus"], row["generation"], row["is_rigid"]) == (1, 1, True)
    assert "boa_daemon.job" in stage.play.service.explain(job)["text"]

    stage.runner.tell = stage.steps
    stage.run(1800.0)
    row = stage.play.service.job(job)
    assert row["gpus"] > 1
    assert (row["is_rigid"], row["class"]) == (False, "default[1-4]")
    stage.play.close()
    stage.open()
    stage.run(60.0)
    assert stage.play.service.job(job)["gpus"] > 1, "a restart does not forget it"


def test_a_rigid_job_runs_at_min_gpus(stage: Stage) -> None:
    """A job with `elastic` false, `min_gpus` 2 and `max_gpus` 4 runs on 2 GPUs."""
    job = stage.submit(hours=40.0, min_gpus=2, max_gpus=4, elastic=False)
    stage.run(900.0)
    assert stage.play.service.job(job)["gpus"] == 2


def test_the_lost_work_of_a_rigid_job_is_counted_and_added_back(stage: Stage) -> None:
    """Without a checkpoint, all ten minutes are lost and the whole job remains."""
    job = stage.submit(hours=1.0, elastic=None)
    stage.run(600.0)
    before = stage.play.storage.queue.active[job]
    assert before.started_at is not None
    stage.runner.tell = lambda report: (
        replace(report, phase="stopped", evidence="stopped, without a checkpoint")
        if report.generation == 1
        else report
    )
    now = stage.clock.instant
    stage.tick()
    row = stage.play.service.job(job)
    after = stage.play.storage.queue.active[job]

    assert row["lost_gpu_hours"] == pytest.approx((now - before.started_at) / 3600.0)
    assert after.remaining_gpu_hours == pytest.approx(1.0)
    assert "It lost" in stage.play.service.explain(job)["text"]


def test_a_job_without_a_report_within_first_report_hours_fails(stage: Stage) -> None:
    """A silent job fails after a quarter of an hour; a job that reports in time goes on."""
    silent = stage.submit(hours=2.0, first_report_hours=0.25, retries=0)
    stage.run(600.0)
    assert stage.play.service.job(silent)["status"] == "running"
    stage.run(600.0)
    row = stage.play.service.job(silent)
    assert (row["status"], row["failures"]) == ("failed", 1)
    assert "reported no step within 15" in row["cause"]

    stage.runner.tell = stage.steps
    job = stage.submit(hours=1.5, first_report_hours=0.25)
    stage.run(1500.0)
    assert stage.play.service.job(job)["status"] == "running"


def test_an_elastic_job_without_reports_and_output_fails_after_two_hours(stage: Stage) -> None:
    """An alert comes after one hour; a job that prints and a rigid job go on."""
    hung, printing = (stage.submit(hours=20.0, retries=0, elastic=True) for _ in range(2))
    rigid = stage.submit(hours=20.0, retries=0, elastic=None)
    since = {printing: START + 3 * 3600.0}
    stage.runner.tell = lambda report: replace(
        report, quiet_seconds=max(stage.clock.instant - since.get(report.job, START), 0.0)
    )
    stage.run(1.5 * 3600.0)
    assert stage.play.service.job(hung)["status"] == "running"
    assert f"{hung} reported no step and printed nothing within 1.00 h: it is ended" in stage.alerts()
    assert "no step and printed nothing within 2.00 h" in stage.play.service.explain(hung)["text"]
    stage.run(1.5 * 3600.0)
    row = stage.play.service.job(hung)
    assert row["status"] == "failed"
    assert "reported no step and printed nothing within 2.00 h" in row["cause"]
    assert [stage.play.service.job(job)["status"] for job in (printing, rigid)] == ["running"] * 2
    assert rigid not in stage.alerts()


def test_a_job_fails_after_max_hours_and_keeps_its_times(stage: Stage) -> None:
    """The row keeps the start, the end and the seconds that the job ran. It is stopped, not killed."""
    job = stage.submit(hours=5.0, max_hours=0.5)
    stage.run(3000.0)
    row = stage.play.service.job(job)

    assert stage.told(job)[:2] == ["start", "stop"]
    assert (row["status"], row["cause"]) == ("failed", "max_hours reached")
    assert row["first_started_at"] == row["started_at"]
    assert row["started_at"] < row["ended_at"]
    assert row["ran_seconds"] == pytest.approx(row["ended_at"] - row["started_at"])
    assert 1800.0 <= row["ran_seconds"] <= 1800.0 + 3 * TICK


def test_a_job_is_not_started_before_not_before(stage: Stage) -> None:
    """The job waits for the reason `not-before`; a tick is due at that time, and the job starts after it."""
    at = datetime.fromtimestamp(stage.clock.instant + 1800.0, UTC).isoformat()
    job = stage.submit(hours=0.2, not_before=at)
    stage.run(870.0)
    wakes: list[float] = []
    stage.play.daemon.wake = lambda seconds: wakes.append(stage.clock.instant + seconds)
    stage.tick()
    assert wakes == [START + 1800.0]
    row = stage.play.service.job(job)
    assert (row["status"], row["waits_for"], row["generation"]) == ("queued", "not-before", 0)
    assert "not to start before" in stage.play.service.explain(job)["text"]
    stage.run(1200.0)
    row = stage.play.service.job(job)
    assert row["started_at"] >= START + 1800.0


@pytest.mark.parametrize("text", ["tomorrow", "2030-01-01T08:00:00", "1893456000"])
def test_not_before_without_a_time_zone_is_refused(stage: Stage, text: str) -> None:
    """A word, a time without a zone and a number of seconds are errors."""
    with pytest.raises(InputError, match="not_before must be an instant with its zone"):
        stage.submit(not_before=text)


def test_a_job_starts_after_the_jobs_that_it_names(stage: Stage) -> None:
    """The job waits, names the job it waits for, and starts once that job has finished."""
    first = stage.submit(hours=0.2)
    second = stage.submit(hours=0.2, after=[first])
    stage.run(300.0)
    row = stage.play.service.job(second)
    assert (row["status"], row["waits_for"], row["generation"]) == ("queued", "after", 0)
    assert f"waits for job {first}, which is running" in stage.play.service.explain(second)["text"]
    stage.run(1800.0)
    assert stage.play.service.job(second)["status"] == "finished"
    ended = stage.play.service.job(first)["ended_at"]
    assert stage.play.service.job(second)["first_started_at"] >= ended


def test_a_job_fails_when_the_job_it_waits_for_is_cancelled(stage: Stage) -> None:
    """The failure passes along the chain, also after a restart; a job that waits for `ID:end` runs."""
    first = stage.submit(hours=5.0)
    second = stage.submit(hours=0.1, after=[first])
    third = stage.submit(hours=0.1, after=[second])
    other = stage.submit(hours=0.1, after=[f"{first}:end"])
    stage.run(120.0)
    stage.play.service.cancel(first, user="ann", is_admin=False)
    stage.play.close()
    stage.open()
    stage.run(1200.0)
    rows = {job: stage.play.service.job(job) for job in (first, second, third, other)}

    assert [rows[job]["status"] for job in rows] == ["cancelled", "failed", "failed", "finished"]
    assert rows[second]["cause"] == f"it was to run after {first}, which is cancelled"
    assert rows[third]["generation"] == 0


def test_a_job_that_waits_for_an_unknown_job_is_refused(stage: Stage) -> None:
    """The error comes at submission, because a job with a mistyped id would wait for ever."""
    job = stage.submit(hours=5.0)
    with pytest.raises(InputError, match=f"no job '{job}7'"):
        stage.submit(after=[f"{job}7"])
    with pytest.raises(InputError, match="after"):
        stage.submit(after=["a b"])


def test_a_node_fault_does_not_count_as_a_failure_of_the_job(stage: Stage) -> None:
    """With no retries, the job goes on on another node; the unfit node is ended and named in an alert."""
    job = stage.submit(hours=1.0, retries=0)
    stage.run(300.0)
    [node] = stage.play.service.job(job)["nodes"]
    manifest = Manifest(generation=1, step=40, sha256="0", path="step-40")
    stage.runner.sick = {node: "Xid 79 at PCI:0000:10:1c: the GPU has fallen off the bus"}
    stage.runner.tell = lambda report: (
        replace(report, phase="failed", cause="node-fault", step=50, manifest=manifest, lost_steps=10)
        if report.generation == 1
        else report
    )
    stage.run(180.0)
    row = stage.play.service.job(job)

    assert (row["status"], row["failures"], row["generation"]) == ("running", 0, 2)
    assert node not in row["nodes"]
    listed = {each["id"]: each for each in stage.play.service.instances(ended=True)["instances"]}
    assert listed[node]["ended_at"] is not None
    assert f"node {node} (g5.xlarge) is unfit and goes back: Xid 79" in stage.alerts()


def test_a_job_leaves_an_unfit_node_without_losing_steps(stage: Stage) -> None:
    """It is stopped, not killed, and goes on elsewhere, also after a restart; one alert names the node."""
    job = stage.submit(hours=1.0)
    stage.run(300.0)
    [node] = stage.play.service.job(job)["nodes"]
    stage.runner.sick = {node: "GPU 0 has no spare memory rows left"}
    stage.tick()
    stage.play.close()
    stage.open()
    stage.run(180.0)
    row = stage.play.service.job(job)

    assert (row["status"], row["lost_steps"], row["failures"]) == ("running", 0, 0)
    assert stage.told(job)[:3] == ["start", "stop", "start"]
    assert row["generation"] >= 2
    assert node not in row["nodes"]
    assert stage.alerts().count("is unfit and goes back") == 1


def test_repeated_node_faults_do_not_restart_a_job_without_end(stage: Stage) -> None:
    """After at most eight starts the job rests, and an alert is sent."""
    job = stage.submit(hours=10.0)
    stage.runner.tell = lambda report: replace(report, phase="failed", cause="node-fault")
    stage.run(2700.0)

    assert stage.play.service.job(job)["generation"] <= 8
    assert "repeated without success" in stage.alerts()
