"""The daemon on a clock of the test's own: jobs, money, trouble, restarts."""

from __future__ import annotations

import json
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
from boa_daemon.daemon.config import UserSettings
from boa_daemon.daemon.loop import AWAITED_SECONDS
from boa_daemon.daemon.replay import replay
from boa_daemon.daemon.service_base import NotAllowed
from boa_daemon.errors import BoaError, InputError
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content
from boa_daemon.tick.actions import StartJob
from boa_daemon.tick.codec import dumps, loads
from boa_daemon.tick.explain import explain_job
from boa_daemon.tick.ports import Refused
from boa_daemon.tick.state import NodeState
from policies.model import Width

START = 1_800_000_000.0 - 1_800_000_000.0 % 86_400.0
SETTINGS: dict[str, dict[str, Any]] = {
    "budget": {"usd_per_hour": 10.0},
    "cloud": {"boot_seconds": 30.0},
    "daemon": {"tick_seconds": 30.0, "idle_hold_seconds": 60.0},
}


class Stage:
    """A daemon, its clock, and the way to let time pass."""

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


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    found = Stage(tmp_path)
    yield found
    found.play.close()


def test_a_job_is_run_and_its_node_given_back(stage: Stage) -> None:
    """Half an hour of work: it finishes, no node stays, and both books agree to the micro-dollar."""
    (job,) = stage.submit(job_content(hours=0.5))
    stage.run(3600.0)
    assert stage.statuses() == {job: "finished"}
    assert stage.play.service.instances()["instances"] == []
    assert stage.play.storage.store.settled_micro_dollars() == stage.play.cloud.bill_micro_dollars() > 0


def test_nobody_waits_for_the_next_look_when_a_node_is_ready(stage: Stage) -> None:
    """While nodes are asked for or boot the daemon looks every three seconds, and then as ever."""
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


def test_rows_of_cost_add_up_to_the_bills(stage: Stage) -> None:
    """By job, class, user and day: the same sum."""
    stage.submit(job_content(hours=0.5), job_content("b", hours=0.25))
    stage.submit(job_content("c", hours=0.25), user="bob")
    stage.run(5400.0)
    spent = stage.play.storage.store.settled_micro_dollars() / 1e6
    for by in ("job", "class", "user", "day"):
        assert stage.play.service.cost(by=by)["usd"] == pytest.approx(spent, abs=2e-5)  # type: ignore[arg-type]


def test_a_restart_takes_up_running_jobs(stage: Stage) -> None:
    """The daemon is closed and opened in the middle: one start, one finish."""
    (job,) = stage.submit(job_content(hours=0.5))
    stage.run(600.0)
    stage.restart()
    assert stage.play.daemon.standing.reattached == (1, 1)
    stage.run(3000.0)
    assert stage.statuses() == {job: "finished"}
    assert stage.play.runner.started == [(job, 1)]


def test_a_cloud_that_does_not_answer_at_the_start_is_asked_again(stage: Stage) -> None:
    """No tick before the nodes and jobs of the last process are known; then all goes on."""
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


def test_a_job_on_a_node_that_ends_waits_and_runs_again(stage: Stage) -> None:
    """The cloud takes the node: the next generation runs on another one."""
    (job,) = stage.submit(job_content(hours=0.5))
    stage.run(300.0)
    (node,) = stage.play.service.instances()["instances"]
    stage.play.cloud.interrupt(node["id"])
    stage.run(3600.0)
    assert stage.statuses() == {job: "finished"}
    assert stage.play.runner.started == [(job, 1), (job, 2)]


def test_a_cancelled_job_that_runs_checkpoints_first(stage: Stage) -> None:
    """It is stopped, not killed, and its node goes."""
    (job,) = stage.submit(job_content(hours=5.0))
    stage.run(300.0)
    stage.play.service.cancel(job, user="ann", is_admin=False)
    stage.run(300.0)
    assert stage.statuses() == {job: "cancelled"}
    assert stage.play.service.instances()["instances"] == []


def test_a_cancel_that_was_written_and_never_ordered_is_ordered_after_a_restart(stage: Stage) -> None:
    """The process died between the flag and the stop."""
    (job,) = stage.submit(job_content(hours=5.0))
    stage.run(300.0)
    queue = stage.play.storage.queue
    queue.save(replace(queue.active[job], is_cancelled=True))
    stage.restart()
    stage.run(300.0)
    assert stage.statuses() == {job: "cancelled"}


def test_a_cancelled_job_that_waits_never_starts(stage: Stage) -> None:
    """Cancelled before the first tick."""
    (job,) = stage.submit(job_content())
    stage.play.service.cancel(job, user="ann", is_admin=False)
    stage.run(300.0)
    assert stage.play.runner.started == []
    assert stage.statuses() == {job: "cancelled"}


def test_jobs_of_others_are_not_ours_to_cancel(stage: Stage) -> None:
    """Only their owner or an administrator may."""
    (job,) = stage.submit(job_content())
    with pytest.raises(NotAllowed, match="is of user ann"):
        stage.play.service.cancel(job, user="bob", is_admin=False)
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
def test_a_bad_job_is_refused_and_nothing_is_stored(stage: Stage, change: dict[str, Any], words: str) -> None:
    """The good one beside it is not stored either."""
    with pytest.raises(InputError, match=words):
        stage.submit(job_content(), job_content(**change))
    assert stage.statuses() == {}


def test_a_user_has_a_limit_on_jobs_and_on_dollars(tmp_path: Path) -> None:
    """Two jobs at most; and none after a cent was spent today."""
    stage = Stage(tmp_path, users={"ann": {"max_jobs": 2}, "bob": {"usd_per_day_cap": 0.01}})
    try:
        with pytest.raises(NotAllowed, match="3 more would be too many"):
            stage.submit(*[job_content()] * 3)
        stage.submit(job_content(hours=0.2), user="bob")
        stage.run(1200.0)
        with pytest.raises(NotAllowed, match="has spent"):
            stage.submit(job_content(), user="bob")
    finally:
        stage.play.close()


def test_the_day_cap_of_a_user_holds_back_jobs_that_wait(tmp_path: Path) -> None:
    """Bob's second job waits and says why, while his first goes on; raising the cap lets it start."""
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


def test_a_job_draws_on_the_purse_of_its_team(tmp_path: Path) -> None:
    """A dollar a day is an hour of one GPU: the job is stopped before it, the next waits, the books agree."""
    teams = {"red": {"members": ["ann"], "usd_per_day_cap": 1.0}, "blue": {"members": ["bob", "cyd"]}}
    stage = Stage(tmp_path, budget={"max_instances": 4}, teams=teams)
    stage.clock.instant += 19.0 * 3600.0  # Five hours before a new day.
    try:
        (first,) = stage.submit(job_content("long", hours=5.0), user="ann")
        (other,) = stage.submit(job_content("other", hours=0.2), user="bob")
        stage.run(2 * 3600.0)
        (late,) = stage.submit(job_content("late", hours=0.2), user="ann")
        stage.run(600.0)
        service = stage.play.service
        assert [service.job(name)["team"] for name in (first, other, late)] == ["red", "blue", "red"]
        assert service.job(other)["status"] == "finished"
        assert service.job(late)["waits_for"] == service.explain(late)["reason"] == "team-day-cap"
        assert "team red" in service.explain(late)["text"]
        rows = {row["name"]: row["usd"] for row in service.cost(by="team")["rows"]}
        assert 0.6 < rows["red"] <= 1.0
        assert sum(rows.values()) == pytest.approx(service.cost(by="user")["usd"])
        stage.clock.instant += 2.5 * 3600.0  # Twenty minutes before the new day.
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
def test_a_team_that_does_not_pay_for_a_user_is_refused(
    tmp_path: Path, user: str, named: str | None, said: str
) -> None:
    """Before anything is stored; who is in one team, or none, need not say."""
    teams = {"red": {"members": ["ann", "cyd"]}, "blue": {"members": ["bob", "cyd"]}}
    stage = Stage(tmp_path, teams=teams)
    try:
        with pytest.raises(InputError, match=said):
            stage.submit(job_content(team=named), user=user)
        (job,) = stage.submit(job_content(team="blue"), user="cyd")
        (free,) = stage.submit(job_content(), user="dan")
        assert stage.play.service.job(job)["team"] == "blue"
        assert stage.play.service.job(free)["team"] is None
    finally:
        stage.play.close()


def test_a_job_that_reaches_its_dollars_is_stopped(stage: Stage) -> None:
    """An hour costs 1.006; with 0.5 allowed it ends after half of that."""
    (job,) = stage.submit(job_content(hours=2.0, max_usd=0.5))
    stage.run(3600.0)
    record = stage.play.service.job(job)
    assert record["status"] == "failed"
    assert record["cause"] == "max_usd reached"
    assert 0.5 <= record["usd"] < 0.6


class RunningClock(ManualClock):
    """A clock that goes on while it is asked, as every real one does."""

    def now(self) -> float:
        self.instant += 1e-3
        return self.instant


def test_dollars_end_a_job_on_a_clock_that_goes_on(tmp_path: Path) -> None:
    """The money ends before the tick that sees it: on a real clock the job was never stopped."""
    stage = Stage(tmp_path)
    try:
        stage.clock = RunningClock(START)
        stage.restart()
        (job,) = stage.submit(job_content(hours=2.0, max_usd=0.5))
        stage.run(3600.0)
        assert stage.play.service.job(job)["cause"] == "max_usd reached"
    finally:
        stage.play.close()


def test_what_keeps_a_job_from_starting_stands_in_the_record_of_the_decision(tmp_path: Path) -> None:
    """A job that rests and one whose user has no money left: both are in the state that replays."""
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
            for name, why in decision.plan.waiting.items():
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


def test_a_daemon_that_only_observes_stops_no_job_for_its_dollars(tmp_path: Path) -> None:
    """What a job may cost is decided in the tick, and an observer carries nothing out."""
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
        assert decision.plan.stops == (job,)
    finally:
        stage.play.close()


def test_a_job_that_fails_is_tried_again_as_often_as_its_file_says(stage: Stage) -> None:
    """One retry: two starts, then it has failed."""
    content = job_content(hours=0.01, retries=1)
    content["environment"]["FAILS"] = "1"
    (job,) = stage.submit(content)
    stage.run(1200.0)
    assert stage.statuses() == {job: "failed"}
    assert stage.play.runner.started == [(job, 1), (job, 2)]


def test_a_job_that_is_tried_again_is_explained_with_its_failures(stage: Stage) -> None:
    """Once its rest is over too, while it waits or runs anew: how often it failed, and how."""
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


def test_a_mistyped_job_is_likened_to_those_that_are_over_too(stage: Stage) -> None:
    """The job that just ended is the one that is asked for most."""
    (job,) = stage.submit(job_content("train", hours=0.01))
    stage.run(600.0)
    assert stage.statuses() == {job: "finished"}
    with pytest.raises(InputError, match=f"Did you mean '{job}'"):
        stage.play.service.explain("trian-1")
    stage.submit(*(job_content(f"other{number}") for number in range(30)))
    with pytest.raises(InputError, match="boa jobs --all"):
        stage.play.service.explain("zzzzzz")


def test_down_lets_everything_go_and_resume_takes_it_up(stage: Stage) -> None:
    """Jobs checkpoint, wait, and finish later; it outlives a restart."""
    (job,) = stage.submit(job_content(hours=0.5))
    stage.run(600.0)
    stage.play.service.down(is_down=True)
    stage.run(300.0)
    stage.restart()
    stage.run(300.0)
    assert stage.play.service.instances()["instances"] == []
    assert stage.statuses() == {job: "queued"}
    stage.play.service.down(is_down=False)
    stage.run(3600.0)
    assert stage.statuses() == {job: "finished"}


def test_every_recorded_decision_replays(stage: Stage) -> None:
    """From JSON, by a policy that is built anew: the same actions."""
    stage.submit(job_content(hours=0.5), job_content("wide", hours=1.0, max_gpus=4))
    stage.run(1800.0)
    acting = stage.play.service.decisions(limit=100, acting=True)["decisions"]
    assert len(acting) >= 3
    for row in acting:
        record = json.loads(json.dumps(stage.play.service.decision(row["tick"])))
        assert replay(record).is_same


@pytest.mark.exhaustive
def test_constant_load_gives_no_moves(tmp_path: Path) -> None:
    """Eight equal jobs, each followed by another when it ends, for three hours: one start each."""
    # A load that nobody stated is news: that it is learnt is in test_learning.
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


def test_a_start_on_gpus_that_are_not_free_claims_nothing(stage: Stage) -> None:
    """A move is a stop and a start: while the checkpoint is written, the job keeps its GPUs."""
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
def test_a_disk_that_cannot_be_written_starts_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    """No intent, no launch: the fault is told, and all goes on once there is room."""
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
    """Let statements pass and their commit fail, as SQLite does on a full disk."""

    def full(_connection: Any) -> None:
        raise OperationalError("COMMIT", {}, sqlite3.OperationalError("database or disk is full"))

    engine = stage.play.storage.store.database.engine
    event.listen(engine, "commit", full)
    try:
        yield
    finally:
        event.remove(engine, "commit", full)


def test_a_cancel_that_was_refused_stops_nothing(stage: Stage) -> None:
    """Nothing was stored, so nothing happens: neither the job that runs nor the one that waits is gone."""
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


def test_a_job_that_ends_while_nothing_can_be_written_is_not_started_again(stage: Stage) -> None:
    """The engine keeps how it ended until that is on disk, however often it is looked at meanwhile."""
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


def test_caps_are_kept_while_nothing_can_be_written(tmp_path: Path) -> None:
    """The disk is full after the first start: the node is given back before the cap is broken."""
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


def test_a_daemon_whose_ticks_stay_away_says_so(stage: Stage) -> None:
    """A cloud that never answers keeps a tick for ever: the status does not call old figures well."""
    stage.play.daemon.tick()
    stage.clock.instant += 30.0
    assert stage.play.service.status()["notes"] == []
    stage.clock.instant += 3600.0
    (note,) = stage.play.service.status()["notes"]
    assert "no tick was done for 1.01 h, and one is due every 30 s" in note


def test_a_generation_that_never_was_has_no_log(stage: Stage) -> None:
    """Nothing printed and never started are two things."""
    (job,) = stage.submit(job_content(hours=0.1))
    with pytest.raises(InputError, match=r"has no generation 1\. So far it was not started yet"):
        stage.play.service.logs(job, generation=1)


@pytest.mark.parametrize("jump", [600.0, -600.0])
def test_a_clock_that_jumps(stage: Stage, jump: float) -> None:
    """Ten minutes either way in the middle of a job: it finishes, once, and its node is given back."""
    (job,) = stage.submit(job_content(hours=0.5))
    stage.run(600.0)
    stage.clock.instant += jump
    stage.run(5400.0)
    assert stage.statuses() == {job: "finished"}
    assert stage.play.runner.started == [(job, 1)]
    assert stage.play.service.instances()["instances"] == []


def test_two_daemons_cannot_have_one_folder(tmp_path: Path) -> None:
    """The second is told who has it."""
    from boa_daemon.daemon.lock import AlreadyRunning, Lock

    first, second = Lock(tmp_path), Lock(tmp_path)
    first.take()
    with pytest.raises(AlreadyRunning, match="another daemon"):
        second.take()
    first.give_back()
    second.take()
    second.give_back()


def test_an_old_copy_of_the_database_names_nothing_twice(stage: Stage) -> None:
    """Yesterday's file comes back: no tick number, node or generation is used again, and all jobs finish."""
    jobs = stage.submit(job_content(hours=1.0), job_content("b", hours=1.0))
    stage.play.daemon.tick()
    stage.play.close()
    old = {path: path.read_bytes() for path in stage.folder.glob("boa.sqlite*")}
    stage.open()
    stage.run(1200.0)
    stage.play.close()
    for path in stage.folder.glob("boa.sqlite*"):
        path.unlink()
    for path, content in old.items():
        path.write_bytes(content)
    stage.open()
    stage.run(7200.0)
    assert stage.statuses() == dict.fromkeys(jobs, "finished")
    assert len(set(stage.play.runner.started)) == len(stage.play.runner.started)
    assert stage.play.service.instances()["instances"] == []
    assert stage.play.storage.store.settled_micro_dollars() == stage.play.cloud.bill_micro_dollars()


def test_observing_touches_nothing(tmp_path: Path) -> None:
    """It decides and records; no node, no start."""
    stage = Stage(tmp_path, daemon={"observe": True})
    try:
        stage.submit(job_content())
        stage.run(120.0)
        assert stage.play.cloud.nodes() == []
        assert stage.play.service.decisions()["decisions"][0]["actions"][0]["kind"] == "launch"
        assert "only observes: nothing of this is done" in stage.play.service.explain("job-1")["text"]
    finally:
        stage.play.close()


def test_a_job_of_a_new_width_that_comes_while_a_tick_begins_waits_for_the_next(stage: Stage) -> None:
    """Its class is not in the policy that the tick decides by: it is not shown to it, and runs soon after."""
    stage.run(30.0)
    controller = stage.play.daemon.controller()
    (job,) = stage.submit(job_content(hours=0.5, max_gpus=2))
    assert controller.run_once().state.jobs == {}
    stage.run(120.0)
    assert stage.statuses()[job] == "running"


def test_the_status_is_added_up_once_a_tick(stage: Stage) -> None:
    """Between ticks its figures are the very same, and they are those of the last decision."""
    stage.submit(job_content(hours=5.0))
    stage.run(120.0)
    picture = stage.play.daemon.standing.picture
    assert picture is not None
    assert picture.decision is stage.play.daemon.standing.decision
    status = stage.play.service.status()
    assert status["books"] is picture.figures
    assert (status["running"], status["waiting"], status["nodes"]) == (1, 0, 1)
    assert status["usd_per_hour"] == sum(node.usd_per_hour for node in picture.decision.state.nodes.values())


def test_two_submissions_that_fit_alone_do_not_both_fit(stage: Stage) -> None:
    """Eight threads submit for a user who may have three jobs: three get in, whatever the order."""
    stage.play.daemon.settings.users["bob"] = UserSettings(max_jobs=3)

    def one(number: int) -> bool:
        try:
            stage.submit(job_content(f"j{number}"), user="bob")
        except NotAllowed:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(one, range(16))) == 3


def test_a_decision_knows_its_runner_up(stage: Stage) -> None:
    """The next best width of a job and what both cost: the same in the list, the answer and the replay."""
    (job,) = stage.submit(job_content(hours=4.0, max_gpus=8))
    stage.run(90.0)
    said = stage.play.service.explain(job)
    choice = said["choice"]
    assert choice["unit"] == "USD"
    assert choice["runner_up"] != choice["chosen"]
    sentence = f"{choice['chosen']}, at {choice['cost']:.4g} USD of money and waiting; {choice['runner_up']}"
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


def test_giving_a_node_back_is_weighed_against_holding_it(stage: Stage) -> None:
    """The price of an hour of the idle node stands beside nothing."""
    stage.submit(job_content(hours=0.02))
    stage.run(600.0)
    rows = stage.play.service.decisions(acting=True)["decisions"]
    ends = [action for row in rows for action in row["actions"] if action["kind"] == "terminate"]
    price = stage.play.service.instances(ended=True)["instances"][0]["usd_per_hour"]
    assert [(end["choice"]["cost"], end["choice"]["runner_up_cost"]) for end in ends] == [(0.0, price)]


def test_a_real_clouds_boots_are_learnt_and_outlive_a_restart(tmp_path: Path) -> None:
    """It is said to take 180 s and takes 30: after three boots plans know, and a new process knows too."""

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
