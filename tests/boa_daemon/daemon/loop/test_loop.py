"""The daemon with a clock that the test sets: jobs, money, faults and restarts."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from daemon_time import pass_time
from sqlalchemy import event
from sqlalchemy.exc import OperationalError

from boa_daemon.backends.simulated import FileCloud
from boa_daemon.daemon.loop.loop import AWAITED_SECONDS
from boa_daemon.daemon.service.replay import replay
from boa_daemon.daemon.service.service_base import NotAllowed
from boa_daemon.daemon.settings.config import UserSettings
from boa_daemon.errors import BoaError, InputError
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content
from boa_daemon.tick.explain.explain import explain_job
from boa_daemon.tick.facts.actions import LaunchNodes, StartJob
from boa_daemon.tick.facts.codec import dumps, loads
from boa_daemon.tick.facts.ports import Refused
from boa_daemon.tick.facts.state import NodeState
from policies.model import Width
from policies.money_text import in_dollars

START = 1_800_000_000.0 - 1_800_000_000.0 % 86_400.0
SETTINGS: dict[str, dict[str, Any]] = {
    "budget": {"usd_per_hour": 10.0},
    "cloud": {"boot_seconds": 30.0},
    "daemon": {"tick_seconds": 30.0, "idle_hold_seconds": 60.0},
}


class Stage:
    """A daemon, its clock, and methods that let time pass."""

    def __init__(self, folder: Path, **changes: dict[str, Any]) -> None:
        self.folder, self.clock = folder, ManualClock(START)
        self.settings = {name: SETTINGS.get(name, {}) | changes.get(name, {}) for name in SETTINGS | changes}
        self.open()

    def open(self) -> None:
        self.play = DaemonInAFolder(self.folder, self.clock, self.settings)

    def restart(self) -> None:
        self.play.close()
        self.open()

    def run(self, seconds: float) -> None:
        pass_time(self.play, seconds)

    def submit(self, *contents: dict[str, Any], user: str = "ann") -> list[str]:
        jobs: list[str] = self.play.service.submit(contents, user=user)["jobs"]
        return jobs

    def statuses(self) -> dict[str, str]:
        return {row["id"]: row["status"] for row in self.play.service.jobs()["jobs"]}

    def told(self, job: str) -> list[str]:
        """Return the orders that the engine got for a job, such as "start" and "stop"."""
        events = [json.loads(line) for line in (self.folder / "runner.jsonl").read_text().splitlines()]
        return [event["what"] for event in events if event["job"] == job]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    found = Stage(tmp_path)
    yield found
    found.play.close()


def test_a_job_finishes_and_its_node_is_given_back(stage: Stage) -> None:
    """After half an hour of work no node is left, and the ledger equals the cloud's bill exactly."""
    (job,) = stage.submit(job_content(hours=0.5))
    stage.run(3600.0)
    assert stage.statuses() == {job: "finished"}
    assert stage.play.service.instances()["instances"] == []
    assert stage.play.storage.store.settled_micro_dollars() == stage.play.cloud.bill_micro_dollars() > 0


def test_the_daemon_ticks_more_often_while_nodes_boot(stage: Stage) -> None:
    """While a node boots the next tick is due after `AWAITED_SECONDS`, otherwise at the usual time."""
    wakes: list[float] = []
    stage.play.daemon.wake = wakes.append
    stage.run(30.0)
    assert wakes == [], "nothing is there to wait for"
    stage.submit(job_content(hours=0.5))
    stage.clock.instant -= 30.0
    for second in (0.0, 3.0, 27.0):
        wakes.clear()
        stage.clock.instant += second
        stage.play.daemon.tick()
        soonest = min(wakes, default=3600.0)
        assert soonest == AWAITED_SECONDS if second < 27.0 else soonest > 30.0, second
    assert stage.statuses() == {"job-1": "running"}


def test_cost_rows_add_up_to_the_bill(stage: Stage) -> None:
    """Costs by job, class, user and day have the same sum."""
    stage.submit(job_content(hours=0.5), job_content("b", hours=0.25))
    stage.submit(job_content("c", hours=0.25), user="bob")
    stage.run(5400.0)
    spent = stage.play.storage.store.settled_micro_dollars() / 1e6
    for by in ("job", "class", "user", "day"):
        assert stage.play.service.cost(by=by)["usd"] == pytest.approx(spent, abs=2e-5)


def test_a_restarted_daemon_reattaches_running_jobs(stage: Stage) -> None:
    """The job starts once and finishes, although the daemon is restarted in between."""
    (job,) = stage.submit(job_content(hours=0.5))
    stage.run(600.0)
    stage.restart()
    assert stage.play.daemon.standing.reattached == (1, 1)
    stage.run(3000.0)
    assert stage.statuses() == {job: "finished"}
    assert stage.play.runner.started == [(job, 1)]


def test_a_daemon_that_cannot_reach_the_cloud_at_its_start_tries_again(stage: Stage) -> None:
    """No tick is made until the cloud lists its nodes; then the running job goes on."""
    (job,) = stage.submit(job_content(hours=0.5))
    stage.run(300.0)
    stage.play.close()
    answers: list[Exception] = [BoaError("no network"), BoaError("no network")]

    class Silent:
        def __init__(self, inner: FileCloud) -> None:
            self._inner = inner

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

        def nodes(self) -> Sequence[NodeState]:
            if answers:
                raise answers.pop()
            return self._inner.nodes()

    stage.play = DaemonInAFolder(stage.folder, stage.clock, stage.settings)
    stage.play.daemon.standing.is_started = False
    stage.play.daemon.fleet._cloud = Silent(stage.play.cloud)
    stage.play.daemon.world = replace(stage.play.daemon.world, cloud=Silent(stage.play.cloud))
    stage.play.daemon.watch()
    assert stage.play.daemon.tick() is None
    assert stage.play.daemon.tick() is None
    stage.run(3000.0)
    assert stage.statuses() == {job: "finished"}
    assert stage.play.runner.started == [(job, 1)]


def test_a_job_on_an_interrupted_node_runs_again(stage: Stage) -> None:
    """The next generation of the job runs on another node and finishes."""
    (job,) = stage.submit(job_content(hours=0.5))
    stage.run(300.0)
    (node,) = stage.play.service.instances()["instances"]
    stage.play.cloud.interrupt(node["id"])
    stage.run(3600.0)
    assert stage.statuses() == {job: "finished"}
    assert stage.play.runner.started == [(job, 1), (job, 2)]


def test_a_cancelled_running_job_ends_and_its_node_is_given_back(stage: Stage) -> None:
    """The job is stopped and not killed, so it may write its checkpoint. At the end no node is left."""
    (job,) = stage.submit(job_content(hours=5.0))
    stage.run(300.0)
    stage.play.service.cancel(job, user="ann", is_admin=False)
    stage.run(300.0)
    assert stage.told(job)[:2] == ["start", "stop"]
    assert stage.statuses() == {job: "cancelled"}
    assert stage.play.service.instances()["instances"] == []


def test_a_recorded_cancel_is_carried_out_after_a_restart(stage: Stage) -> None:
    """The process ended after the cancel was recorded and before the job was stopped."""
    (job,) = stage.submit(job_content(hours=5.0))
    stage.run(300.0)
    queue = stage.play.storage.queue
    queue.save(replace(queue.active[job], is_cancelled=True))
    stage.restart()
    stage.run(300.0)
    assert stage.statuses() == {job: "cancelled"}


def test_a_cancelled_waiting_job_never_starts(stage: Stage) -> None:
    """The job is cancelled before the first tick."""
    (job,) = stage.submit(job_content())
    stage.play.service.cancel(job, user="ann", is_admin=False)
    stage.run(300.0)
    assert stage.play.runner.started == []
    assert stage.statuses() == {job: "cancelled"}


def test_only_the_owner_or_an_administrator_cancels_a_job(stage: Stage) -> None:
    """The refusal to another user leaves the job as it is."""
    (job,) = stage.submit(job_content())
    with pytest.raises(NotAllowed, match="is of user ann"):
        stage.play.service.cancel(job, user="bob", is_admin=False)
    assert not stage.play.storage.queue.active[job].is_cancelled
    assert stage.play.service.cancel(job, user="bob", is_admin=True)["status"] == "cancelled"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"class": "defualt"}, "Did you mean 'default'"),
        ({"max_gpu": 3}, "Did you mean 'max_gpus'"),
        ({"min_gpus": 4, "max_gpus": 2}, "min_gpus 4 is more than max_gpus 2"),
        ({"min_gpus": 100, "max_gpus": None}, "no width from 100"),
        ({"run": "\ud800"}, "not Unicode"),
        ({"weight": float("nan")}, "finite number"),
    ],
)
def test_a_submission_with_an_invalid_job_stores_nothing(
    stage: Stage, change: dict[str, Any], words: str
) -> None:
    """The valid job of the same submission is not stored either."""
    with pytest.raises(InputError, match=words):
        stage.submit(job_content(), job_content(**change))
    assert stage.statuses() == {}


def test_submissions_over_a_users_limits_are_refused(tmp_path: Path) -> None:
    """With `max_jobs` 2, three jobs are refused; a user who has spent the daily cap submits no more.

    Of a refused submission no job is stored.
    """
    stage = Stage(tmp_path, users={"ann": {"max_jobs": 2}, "bob": {"usd_per_day_cap": 0.01}})
    try:
        with pytest.raises(NotAllowed, match="3 more would be too many"):
            stage.submit(*[job_content()] * 3)
        assert stage.statuses() == {}
        (first,) = stage.submit(job_content(hours=0.2), user="bob")
        stage.run(1200.0)
        with pytest.raises(NotAllowed, match="has spent"):
            stage.submit(job_content(), user="bob")
        assert set(stage.statuses()) == {first}
    finally:
        stage.play.close()


def test_the_daily_cap_of_a_user_keeps_waiting_jobs_from_starting(tmp_path: Path) -> None:
    """The second job waits with the reason `user-day-cap` and starts when the cap is raised."""
    stage = Stage(tmp_path, budget={"max_instances": 1}, users={"bob": {"usd_per_day_cap": 0.01}})
    try:
        stage.submit(*[job_content(hours=0.25)] * 2, user="bob")
        stage.run(3600.0)
        states = stage.statuses()
        assert sorted(states.values()) == ["finished", "queued"]
        late = next(name for name, status in states.items() if status == "queued")
        assert stage.play.service.explain(late)["reason"] == "user-day-cap"
        assert stage.play.service.job(late)["waits_for"] == "user-day-cap"

        daemon = stage.play.daemon
        users = {"bob": UserSettings(usd_per_day_cap=100.0)}
        daemon.use(daemon.settings.model_copy(update={"users": users}))
        stage.run(3600.0)
        assert stage.statuses()[late] == "finished"
    finally:
        stage.play.close()


def test_the_daily_cap_of_a_team_limits_its_jobs(tmp_path: Path) -> None:
    """The running job is stopped before the cap, the next one waits for the next day; other teams run."""
    teams = {"red": {"members": ["ann"], "usd_per_day_cap": 1.0}, "blue": {"members": ["bob", "cyd"]}}
    stage = Stage(tmp_path, budget={"max_instances": 4}, teams=teams)
    stage.clock.instant += 19.0 * 3600.0  # Five hours before the next day.
    try:
        (first,) = stage.submit(job_content("long", hours=5.0), user="ann")
        (other,) = stage.submit(job_content("other", hours=0.2), user="bob")
        stage.run(2 * 3600.0)
        (late,) = stage.submit(job_content("late", hours=0.2), user="ann")
        stage.run(600.0)
        service = stage.play.service
        assert [service.job(name)["team"] for name in (first, other, late)] == ["red", "blue", "red"]
        assert service.job(other)["status"] == "finished"
        assert stage.told(first)[:2] == ["start", "stop"]
        assert not service.job(first)["nodes"]
        assert service.job(late)["waits_for"] == service.explain(late)["reason"] == "team-day-cap"
        assert "team red" in service.explain(late)["text"]
        rows = {row["name"]: row["usd"] for row in service.cost(by="team")["rows"]}
        assert 0.6 < rows["red"] <= 1.0
        assert sum(rows.values()) == pytest.approx(service.cost(by="user")["usd"])
        stage.clock.instant += 2.5 * 3600.0  # Twenty minutes before the next day.
        stage.run(1.5 * 3600.0)
        assert service.job(late)["status"] == "finished"
    finally:
        stage.play.close()


@pytest.mark.parametrize(
    ("user", "named", "said"),
    [
        ("ann", "rde", "there is no team 'rde'"),
        ("bob", "red", "user bob is not in team red"),
        ("cyd", None, "user cyd is in the teams blue, red"),
    ],
)
def test_a_missing_or_unsuitable_team_is_refused(
    tmp_path: Path, user: str, named: str | None, said: str
) -> None:
    """A user in several teams has to name one; a user in no team need not. A refusal stores no job."""
    teams = {"red": {"members": ["ann", "cyd"]}, "blue": {"members": ["bob", "cyd"]}}
    stage = Stage(tmp_path, teams=teams)
    try:
        with pytest.raises(InputError, match=said):
            stage.submit(job_content(team=named), user=user)
        assert stage.statuses() == {}
        (job,) = stage.submit(job_content(team="blue"), user="cyd")
        (free,) = stage.submit(job_content(), user="dan")
        assert stage.play.service.job(job)["team"] == "blue"
        assert stage.play.service.job(free)["team"] is None
    finally:
        stage.play.close()


def test_a_job_that_reaches_max_usd_is_stopped_and_fails(stage: Stage) -> None:
    """An hour costs 1.006 USD; with a `max_usd` of 0.5 the job ends after half an hour.

    It is stopped and not killed, so it may write its checkpoint.
    """
    (job,) = stage.submit(job_content(hours=2.0, max_usd=0.5))
    stage.run(3600.0)
    record = stage.play.service.job(job)
    assert record["status"] == "failed"
    assert record["cause"] == "max_usd reached"
    assert 0.5 <= record["usd"] < 0.6
    assert stage.told(job)[:2] == ["start", "stop"]


class RunningClock(ManualClock):
    """A clock that advances with each reading, like a real clock."""

    def now(self) -> float:
        self.instant += 1e-3
        return self.instant


def test_max_usd_ends_a_job_on_a_clock_that_advances_during_a_tick(tmp_path: Path) -> None:
    """The amount is reached before the tick that notices it."""
    stage = Stage(tmp_path)
    try:
        stage.clock = RunningClock(START)
        stage.restart()
        (job,) = stage.submit(job_content(hours=2.0, max_usd=0.5))
        stage.run(3600.0)
        assert stage.play.service.job(job)["cause"] == "max_usd reached"
    finally:
        stage.play.close()


def test_the_recorded_state_says_why_a_job_waits(tmp_path: Path) -> None:
    """A resting job and a job at its user's cap are explained from the recorded state alone."""
    stage = Stage(tmp_path, budget={"max_instances": 2}, users={"bob": {"usd_per_day_cap": 0.01}})
    try:
        failing = job_content("failing", hours=0.01, retries=5)
        failing["environment"]["FAILS"] = "1"
        stage.submit(*[job_content(hours=0.25, max_gpus=4)] * 4, user="bob")
        (tried,) = stage.submit(failing)
        seen: set[str] = set()
        for _ in range(120):
            stage.run(30.0)
            decision = stage.play.daemon.standing.decision
            assert decision is not None
            seen_then = loads(dumps(decision.state))
            for name, why in decision.plan.jobs.waiting.items():
                if why in ("resting", "user-day-cap"):
                    seen.add(why)
                    said = stage.play.service.explain(name)
                    assert explain_job(seen_then, decision.plan, name) in said["text"]
                    assert said["reason"] == stage.play.service.job(name)["waits_for"] == why
                    assert [held["what"] for held in said["held"]] == ["user bob"] * (why == "user-day-cap")
        assert seen == {"resting", "user-day-cap"}
        assert stage.play.service.job(tried)["failures"] >= 1
    finally:
        stage.play.close()


def test_an_observing_daemon_does_not_stop_a_job_at_max_usd(tmp_path: Path) -> None:
    """The decision has the stop, and the job keeps running."""
    stage = Stage(tmp_path)
    try:
        (job,) = stage.submit(job_content(hours=2.0, max_usd=0.3))
        stage.run(600.0)
        observing = stage.settings | {"daemon": stage.settings["daemon"] | {"observe": True}}
        stage.play.close()
        stage.settings = observing
        stage.open()
        stage.run(3600.0)
        assert stage.play.service.job(job)["status"] == "running"
        decision = stage.play.daemon.standing.decision
        assert decision is not None
        assert decision.plan.jobs.stops == (job,)
    finally:
        stage.play.close()


def test_a_failing_job_is_retried_as_often_as_retries_says(stage: Stage) -> None:
    """With `retries=1` the job starts twice and then fails."""
    content = job_content(hours=0.01, retries=1)
    content["environment"]["FAILS"] = "1"
    (job,) = stage.submit(content)
    stage.run(1200.0)
    assert stage.statuses() == {job: "failed"}
    assert stage.play.runner.started == [(job, 1), (job, 2)]


def test_the_explanation_of_a_retried_job_counts_its_failures(stage: Stage) -> None:
    """After its rest, the job's explanation says how often it failed and how it ended last."""
    content = job_content(hours=0.01, retries=5)
    content["environment"]["FAILS"] = "1"
    (job,) = stage.submit(content)
    while not stage.play.service.job(job)["failures"]:
        stage.play.daemon.tick()
        stage.clock.instant += 30.0
    stage.clock.instant -= 30.0
    assert stage.play.service.job(job)["waits_for"] == "resting"
    assert "rests for" in stage.play.service.explain(job)["text"]
    said = ""
    for _ in range(20):
        stage.run(30.0)
        said = stage.play.service.explain(job)["text"]
        if stage.play.service.job(job)["failures"] == 1 and "rests" not in said:
            break
    assert "It failed once so far; how it ended last: " in said


def test_suggestions_for_a_mistyped_job_include_ended_jobs(stage: Stage) -> None:
    """When no name is similar, the error points to `boa jobs --all`."""
    (job,) = stage.submit(job_content("train", hours=0.01))
    stage.run(600.0)
    assert stage.statuses() == {job: "finished"}
    with pytest.raises(InputError, match=f"Did you mean '{job}'"):
        stage.play.service.explain("trian-1")
    stage.submit(*(job_content(f"other{number}") for number in range(30)))
    with pytest.raises(InputError, match="boa jobs --all"):
        stage.play.service.explain("zzzzzz")


def test_down_ends_all_nodes_and_resume_continues_the_jobs(stage: Stage) -> None:
    """`down` stops jobs and does not kill them, holds across a restart, and after resume the job finishes."""
    (job,) = stage.submit(job_content(hours=0.5))
    stage.run(600.0)
    stage.play.service.down(is_down=True)
    stage.run(300.0)
    stage.restart()
    stage.run(300.0)
    assert stage.play.service.instances()["instances"] == []
    assert stage.statuses() == {job: "queued"}
    assert stage.told(job)[:2] == ["start", "stop"]
    stage.play.service.down(is_down=False)
    stage.run(3600.0)
    assert stage.statuses() == {job: "finished"}


def test_every_recorded_decision_replays(stage: Stage) -> None:
    """Replayed from JSON by a newly built policy, each decision gives the same actions."""
    stage.submit(job_content(hours=0.5), job_content("wide", hours=1.0, max_gpus=4))
    stage.run(1800.0)
    acting = stage.play.service.decisions(limit=100, acting=True)["decisions"]
    assert len(acting) >= 3
    for row in acting:
        record = json.loads(json.dumps(stage.play.service.decision(row["tick"])))
        assert replay(record).is_same


@pytest.mark.exhaustive
def test_constant_load_gives_no_moves(tmp_path: Path) -> None:
    """With eight equal jobs at any time for three hours, each job starts exactly once."""
    # Learning is off: a learned load would change the plan.
    stage = Stage(tmp_path, budget={"usd_per_hour": 8.0}, learning={"rates": False})
    try:
        for number in range(8):
            stage.submit(job_content(f"j{number}", hours=1.0, max_gpus=4))
        for _ in range(12):
            done = sum(status == "finished" for status in stage.statuses().values())
            stage.run(900.0)
            for number in range(sum(s == "finished" for s in stage.statuses().values()) - done):
                stage.submit(job_content(f"k{number}", hours=1.0, max_gpus=4))
        started = stage.play.runner.started
        assert len(started) == len({job for job, _ in started}) > 10
    finally:
        stage.play.close()


def test_a_start_on_occupied_gpus_is_refused(stage: Stage) -> None:
    """Jobs keep their own GPUs, and the jobs that hold the wanted GPUs go on."""
    jobs = stage.submit(job_content(hours=2.0), job_content("b", hours=2.0))
    stage.run(300.0)
    held = {name: record.slots for name, record in stage.play.storage.queue.active.items()}
    for number, job in enumerate(jobs):
        slots = held[jobs[1 - number]]
        start = StartJob(
            id=f"t99-start-{job}", job=job, generation=2, width=Width("a10g", 1), slots=slots, reason="moves"
        )
        stage.play.storage.store.record_intents([start], at=stage.clock.instant)
        assert isinstance(stage.play.daemon.work.start(start), Refused)
    assert {name: record.slots for name, record in stage.play.storage.queue.active.items()} == held
    assert stage.play.runner.started == [(jobs[0], 1), (jobs[1], 1)]
    stage.run(9000.0)
    assert stage.statuses() == dict.fromkeys(jobs, "finished")


@pytest.mark.parametrize("words", ["database or disk is full", "attempt to write a readonly database"])
def test_nothing_is_launched_while_the_disk_cannot_be_written(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    """The tick fails with a fault that says so; once writes work again, the job runs."""
    (job,) = stage.submit(job_content(hours=0.5))

    def full(*_: object) -> None:
        raise OperationalError("INSERT", {}, sqlite3.OperationalError(words))

    engine = stage.play.storage.store.database.engine
    event.listen(engine, "before_cursor_execute", full)
    assert stage.play.daemon.tick() is None
    assert words in stage.play.daemon.standing.fault
    assert "Nothing is started meanwhile" in stage.play.daemon.standing.fault
    assert stage.play.cloud.nodes() == []
    event.remove(engine, "before_cursor_execute", full)
    stage.run(3600.0)
    assert stage.statuses() == {job: "finished"}


@contextmanager
def no_room_at_the_commit(stage: Stage) -> Iterator[None]:
    """Let statements succeed and their commit fail, as SQLite does on a full disk."""

    def full(_connection: Any) -> None:
        raise OperationalError("COMMIT", {}, sqlite3.OperationalError("database or disk is full"))

    engine = stage.play.storage.store.database.engine
    event.listen(engine, "commit", full)
    try:
        yield
    finally:
        event.remove(engine, "commit", full)


def test_a_cancel_that_cannot_be_stored_stops_no_job(stage: Stage) -> None:
    """When the commit fails, running and waiting jobs stay, and all finish in their first generation."""
    jobs = stage.submit(job_content(hours=0.5), job_content("later", hours=0.5))
    stage.run(300.0)
    stage.submit(job_content("waits", hours=0.5))
    active = set(stage.play.storage.queue.active)
    with no_room_at_the_commit(stage):
        for job in active:
            with pytest.raises(OperationalError):
                stage.play.service.cancel(job, user="ann", is_admin=False)
        for _ in range(5):
            stage.play.daemon.watch()
        assert set(stage.play.storage.queue.active) == active
        assert not stage.play.daemon.work._stopping
    for _ in range(15):
        stage.run(600.0)
        if set(stage.statuses().values()) == {"finished"}:
            break
    assert set(stage.statuses().values()) == {"finished"}
    assert [name for name, generation in stage.play.runner.started if generation == 1][:2] == jobs
    assert max(generation for _, generation in stage.play.runner.started) == 1


def test_a_job_that_ends_while_the_disk_is_full_is_not_started_again(stage: Stage) -> None:
    """The engine reports the end of the job until it is stored."""
    (job,) = stage.submit(job_content(hours=0.1))
    stage.run(90.0)
    assert stage.statuses() == {job: "running"}
    with no_room_at_the_commit(stage):
        stage.clock.instant += 1200.0
        for _ in range(5):
            stage.play.daemon.watch()
    stage.run(600.0)
    assert stage.statuses() == {job: "finished"}
    assert stage.play.runner.started == [(job, 1)]


def test_caps_hold_while_the_disk_is_full(tmp_path: Path) -> None:
    """After the disk fills up, the node is given back before the daily cap is exceeded."""
    stage = Stage(tmp_path, budget={"usd_per_hour": 2.0, "usd_per_day_cap": 1.0})
    try:
        stage.submit(job_content(hours=50.0))
        stage.run(300.0)
        assert len(stage.play.cloud.nodes()) == 1

        def full(*_: object) -> None:
            raise OperationalError("INSERT", {}, sqlite3.OperationalError("disk is full"))

        engine = stage.play.storage.store.database.engine
        event.listen(engine, "before_cursor_execute", full)
        for _ in range(240):
            assert stage.play.daemon.tick() is None
            stage.clock.instant += 30.0
        event.remove(engine, "before_cursor_execute", full)
        assert all(node.ended_at is not None for node in stage.play.cloud.nodes())
        assert 0.5e6 < stage.play.cloud.bill_micro_dollars() <= 1.0e6
    finally:
        stage.play.close()


def test_the_status_notes_that_ticks_are_late(stage: Stage) -> None:
    """After an hour without a tick, the status has a note with the time since the last tick."""
    stage.play.daemon.tick()
    stage.clock.instant += 30.0
    assert stage.play.service.status()["notes"] == []
    stage.clock.instant += 3600.0
    (note,) = stage.play.service.status()["notes"]
    assert "no tick was done for 1.01 h, and one is due every 30 s" in note


def test_the_log_of_a_generation_that_never_started_is_refused(stage: Stage) -> None:
    """The error says that the job was not started yet."""
    (job,) = stage.submit(job_content(hours=0.1))
    with pytest.raises(InputError, match=r"has no generation 1\. So far it was not started yet"):
        stage.play.service.logs(job, generation=1)


@pytest.mark.parametrize("jump", [600.0, -600.0])
def test_a_job_finishes_once_although_the_clock_jumps(stage: Stage, jump: float) -> None:
    """The clock jumps ten minutes forward or back; the node is given back."""
    (job,) = stage.submit(job_content(hours=0.5))
    stage.run(600.0)
    stage.clock.instant += jump
    stage.run(5400.0)
    assert stage.statuses() == {job: "finished"}
    assert stage.play.runner.started == [(job, 1)]
    assert stage.play.service.instances()["instances"] == []


def test_two_daemons_cannot_have_one_folder(tmp_path: Path) -> None:
    """The second daemon is refused until the first releases the lock, and is told its process."""
    from boa_daemon.daemon.loop.lock import AlreadyRunning, Lock

    first, second = Lock(tmp_path), Lock(tmp_path)
    first.take()
    with pytest.raises(AlreadyRunning, match=rf"another daemon \(process {os.getpid()}\)"):
        second.take()
    first.give_back()
    second.take()
    second.give_back()


def back_to_the_database_of(stage: Stage, seconds: float) -> None:
    """Run for some seconds, and then restart the daemon with the database of before."""
    stage.play.close()
    old = {path: path.read_bytes() for path in stage.folder.glob("boa.sqlite*")}
    stage.open()
    stage.run(seconds)
    stage.play.close()
    for path in stage.folder.glob("boa.sqlite*"):
        path.unlink()
    for path, content in old.items():
        path.write_bytes(content)
    stage.open()


def test_a_restored_old_database_reuses_no_generation(stage: Stage) -> None:
    """With an old copy of the file, all jobs finish, and the ledger equals the cloud's bill."""
    jobs = stage.submit(job_content(hours=1.0), job_content("b", hours=1.0))
    stage.play.daemon.tick()
    back_to_the_database_of(stage, 1200.0)
    stage.run(7200.0)
    assert stage.statuses() == dict.fromkeys(jobs, "finished")
    assert len(set(stage.play.runner.started)) == len(stage.play.runner.started)
    assert stage.play.service.instances()["instances"] == []
    assert stage.play.storage.store.settled_micro_dollars() == stage.play.cloud.bill_micro_dollars()


def test_a_restored_old_database_repeats_no_order_to_launch(stage: Stage) -> None:
    """The old copy knows no tick; an order with the id of an earlier one would get the earlier nodes."""
    stage.submit(job_content(hours=1.0), job_content("b", hours=1.0))
    back_to_the_database_of(stage, 1200.0)
    [earlier] = {node.launched_by for node in stage.play.cloud.everything()}
    stage.submit(job_content("c", hours=1.0))
    decision = stage.play.daemon.tick()
    assert decision is not None
    [order] = [action.id for action in decision.actions if isinstance(action, LaunchNodes)]
    assert order != earlier
    stage.run(7200.0)
    assert set(stage.statuses().values()) == {"finished"}


def test_an_observing_daemon_records_decisions_and_launches_nothing(tmp_path: Path) -> None:
    """The explanation of a job says that the daemon only observes."""
    stage = Stage(tmp_path, daemon={"observe": True})
    try:
        stage.submit(job_content())
        stage.run(120.0)
        assert stage.play.cloud.nodes() == []
        assert stage.play.service.decisions()["decisions"][0]["actions"][0]["kind"] == "launch"
        assert "only observes: nothing of this is done" in stage.play.service.explain("job-1")["text"]
    finally:
        stage.play.close()


def test_a_job_submitted_during_a_tick_waits_for_the_next_tick(stage: Stage) -> None:
    """The policy of the current tick lacks the job's class, so the tick's state lacks the job."""
    stage.run(30.0)
    controller = stage.play.daemon.controller()
    (job,) = stage.submit(job_content(hours=0.5, max_gpus=2))
    assert controller.run_once().state.jobs == {}
    stage.run(120.0)
    assert stage.statuses()[job] == "running"


def test_the_status_uses_the_figures_of_the_last_decision(stage: Stage) -> None:
    """The figures are computed once per tick and shared by all status calls."""
    stage.submit(job_content(hours=5.0))
    stage.run(120.0)
    picture = stage.play.daemon.standing.picture
    assert picture is not None
    assert picture.decision is stage.play.daemon.standing.decision
    status = stage.play.service.status()
    assert status["books"] is picture.figures
    assert (status["running"], status["waiting"], status["nodes"]) == (1, 0, 1)
    assert status["usd_per_hour"] == sum(node.usd_per_hour for node in picture.decision.state.nodes.values())


def test_concurrent_submissions_do_not_exceed_max_jobs(stage: Stage) -> None:
    """Eight threads submit 16 jobs for a user with `max_jobs` 3: three are accepted."""
    stage.play.daemon.settings.users["bob"] = UserSettings(max_jobs=3)

    def one(number: int) -> bool:
        try:
            stage.submit(job_content(f"j{number}"), user="bob")
        except NotAllowed:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(one, range(16))) == 3


def test_a_decision_records_the_second_best_option_of_a_job(stage: Stage) -> None:
    """Explanation, list of decisions and replay give the same widths and costs of both options."""
    (job,) = stage.submit(job_content(hours=4.0, max_gpus=8))
    stage.run(90.0)
    said = stage.play.service.explain(job)
    choice = said["choice"]
    assert choice["unit"] == "USD"
    assert choice["runner_up"] != choice["chosen"]
    sentence = (
        f"{choice['chosen']}, at {in_dollars(choice['cost'])} of money and waiting; {choice['runner_up']}"
    )
    assert sentence in said["text"]
    row = stage.play.service.decisions(acting=True)["decisions"][0]
    chosen, other = row["chosen"], row["runner_up"]
    assert job in other["name"]
    assert other["gpus"] != chosen["gpus"]
    started = next(action for action in row["actions"] if action["kind"] == "start")
    weighed = started["choice"]
    assert chosen["usd_of_money_and_waiting"] == weighed["cost"]
    assert other["usd_of_money_and_waiting"] == pytest.approx(weighed["runner_up_cost"])
    record = stage.play.service.decision(row["tick"])
    assert replay(record).is_same
    record["runner_up"]["usd_of_money_and_waiting"] += 0.01
    assert not replay(record).is_same
    del record["runner_up"]["usd_of_money_and_waiting"]
    with pytest.raises(InputError, match="not the record of a decision"):
        replay(record)


def test_terminating_an_idle_node_is_compared_with_keeping_it_for_an_hour(stage: Stage) -> None:
    """The recorded choice costs 0 USD and its alternative costs the node's hourly price."""
    stage.submit(job_content(hours=0.02))
    stage.run(600.0)
    rows = stage.play.service.decisions(acting=True)["decisions"]
    ends = [action for row in rows for action in row["actions"] if action["kind"] == "terminate"]
    price = stage.play.service.instances(ended=True)["instances"][0]["usd_per_hour"]
    assert [(end["choice"]["cost"], end["choice"]["runner_up_cost"]) for end in ends] == [(0.0, price)]


def test_learned_boot_times_replace_the_stated_one_and_survive_a_restart(tmp_path: Path) -> None:
    """The stated boot time is 180 s and the real one 30 s; after three boots, plans use the learned time."""

    def fixed(cloud: Any) -> Any:
        cloud.boot_seconds = 180.0
        return cloud

    clock = ManualClock(START)
    play = DaemonInAFolder(tmp_path, clock, SETTINGS, wrap_cloud=fixed)
    assert play.daemon.planner.record(()).site.boot_hours == 180.0 / 3600.0
    for name in "abc":
        play.service.submit([job_content(name, hours=0.02)], user="ann")
        for _ in range(20):
            play.daemon.tick()
            assert not play.daemon.standing.fault
            clock.instant += 10.0
    learnt = play.daemon.planner.record(()).site.boot_hours * 3600.0
    assert play.service.status()["boots"]["g5.xlarge"]["boots"] >= 3
    assert 24.0 <= learnt <= 50.0
    play.close()
    play = DaemonInAFolder(tmp_path, clock, SETTINGS, wrap_cloud=fixed)
    assert play.daemon.planner.record(()).site.boot_hours * 3600.0 == learnt
    play.close()
