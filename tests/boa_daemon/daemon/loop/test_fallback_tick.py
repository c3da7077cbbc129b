"""Ticks that fail: whatever a port raises, spending caps hold and the fault is reported."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy.exc import OperationalError

from boa_daemon.api.app import create_app
from boa_daemon.api.authentication import Authenticator
from boa_daemon.daemon.settings.config import ApiSettings
from boa_daemon.daemon.watch import daemon_health
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content
from boa_daemon.tick.money.ledger import charge_for
from boa_daemon.units import dollars

START = 1_800_000_000.0 - 1_800_000_000.0 % 86_400.0
TICK = 120.0
CAP = 12.0
SETTINGS: dict[str, dict[str, Any]] = {
    "budget": {"usd_per_hour": 10.0, "usd_per_day_cap": CAP, "max_instances": 6},
    "cloud": {"boot_seconds": 30.0},
    "daemon": {"tick_seconds": TICK, "idle_hold_seconds": 60.0, "checkpoint_seconds": 60.0},
}
RAISED: tuple[type[BaseException], ...] = (
    KeyError, TypeError, ValueError, AttributeError, IndexError, ZeroDivisionError, RecursionError,
    OverflowError, AssertionError, RuntimeError, OSError, ConnectionError, TimeoutError, MemoryError,
    StopIteration, UnicodeError, NotImplementedError, LookupError,
)  # fmt: skip
"""What a port may raise; no list is whole, so nothing in the daemon may depend on one."""


class Faulty:
    """A port whose methods named in `breaks` raise with the given probability.

    In 30 % of these cases the call takes effect first and only its answer is lost.
    """

    def __init__(self, inner: Any, breaks: dict[str, float], chance: Random) -> None:
        self.inner, self.breaks, self.chance, self.raised = inner, breaks, chance, 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if not callable(found) or name.startswith("_"):
            return found

        def call(*words: Any, **named: Any) -> Any:
            if self.chance.random() < self.breaks.get(name, 0.0):
                self.raised += 1
                if self.chance.random() < 0.3:
                    found(*words, **named)
                raise self.chance.choice(RAISED)(f"{name} broke")
            return found(*words, **named)

        return call


class Stage:
    """A daemon whose every port can be made to raise."""

    def __init__(self, folder: Path, seed: int = 0, **changes: Any) -> None:
        self.clock, self.chance = ManualClock(START), Random(seed)
        self.cloud_breaks: dict[str, float] = {}
        self.runner_breaks: dict[str, float] = {}
        self.folder, self.settings = folder, SETTINGS | changes
        self.open()

    def open(self) -> None:
        self.play = DaemonInAFolder(
            self.folder,
            self.clock,
            self.settings,
            wrap_cloud=lambda inner: Faulty(inner, self.cloud_breaks, self.chance),
            wrap_runner=lambda inner: Faulty(inner, self.runner_breaks, self.chance),
        )
        self.daemon = self.play.daemon

    def run(self, ticks: int) -> list[bool]:
        done = []
        for _ in range(ticks):
            done.append(self.daemon.tick() is not None)
            self.clock.instant += TICK
        return done

    def fail_on(self) -> None:
        """Run failing ticks until no node is rented, today and on the next day."""
        for instant in (self.clock.instant, self.clock.instant + 86_400.0):
            self.clock.instant = max(instant, self.clock.instant)
            assert not any(self.run(5))
            for _ in range(400):
                if self.live() == 0:
                    break
                assert not any(self.run(1))
            assert self.live() == 0
        assert not any(self.run(20))
        assert self.live() == 0
        assert all(spent <= CAP for spent in self.spent_by_day().values())

    def spent_by_day(self) -> dict[int, float]:
        found: dict[int, float] = {}
        for node in self.play.cloud.everything():
            ended = node.ended_at if node.ended_at is not None else self.clock.instant
            for day, part in charge_for(replace(node, ended_at=ended)).days:
                found[day] = found.get(day, 0.0) + dollars(part)
        return found

    def live(self) -> int:
        return sum(node.ended_at is None for node in self.play.cloud.everything())


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    found = Stage(tmp_path)
    yield found
    found.play.close()


CLOUD_CALLS = ("nodes", "offers", "launch", "renew", "sweep", "ages", "elsewhere")
RUNNER_CALLS = ("prepare", "admit", "start", "stop", "kill", "poll", "forget", "order_links", "logs")


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in (1, 2, 3))]
)
def test_caps_hold_while_ports_raise_and_everything_recovers_afterwards(tmp_path: Path, seed: int) -> None:
    """While calls of both ports raise at random, no day costs more than its cap.

    Once the calls work again, all jobs end, no node is left, and the ledger equals the cloud's bill.
    """
    stage = Stage(tmp_path, seed)
    chance = stage.chance
    stage.cloud_breaks |= {name: chance.choice([0.0, 0.05, 0.5]) for name in CLOUD_CALLS}
    stage.cloud_breaks["terminate"] = 0.05
    stage.runner_breaks |= {name: chance.choice([0.0, 0.05, 0.5]) for name in RUNNER_CALLS}
    for number in range(6):
        stage.play.service.submit([job_content(f"j{number}", hours=0.5, max_gpus=4)], user="ann")
    failed = 0
    for _ in range(150):
        failed += not stage.run(1)[0]
        assert stage.live() <= SETTINGS["budget"]["max_instances"]
        stage.daemon.watch()
        stage.daemon.sweep()
    assert stage.daemon.world.cloud.raised + stage.daemon.world.runner.raised > 20  # type: ignore[attr-defined]
    assert failed
    stage.cloud_breaks.clear()
    stage.runner_breaks.clear()
    for _ in range(900):  # More than a day: jobs that the cap stopped go on after midnight.
        stage.run(1)
        if stage.live() == 0 and not stage.play.storage.queue.active:
            break
    stage.run(5)
    assert all(spent <= CAP for spent in stage.spent_by_day().values())
    assert stage.daemon.trouble == ""
    statuses = {row["status"] for row in stage.play.service.jobs()["jobs"]}
    assert statuses <= {"finished", "failed"}
    assert stage.live() == 0
    assert stage.play.storage.store.settled_micro_dollars() == stage.play.cloud.bill_micro_dollars()
    stage.play.close()


@pytest.mark.parametrize("port", ["poll", pytest.param("prepare", marks=pytest.mark.exhaustive)])
def test_caps_hold_when_a_port_fails_for_good(tmp_path: Path, port: str) -> None:
    """When every tick fails while jobs run, nodes are given back before a daily cap is exceeded."""
    stage = Stage(tmp_path, 1)
    for number in range(6):
        stage.play.service.submit([job_content(f"j{number}", hours=50.0, max_gpus=4)], user="ann")
    stage.run(20)
    assert stage.live() > 1
    stage.runner_breaks[port] = 1.0
    stage.fail_on()
    stage.play.close()


def test_caps_hold_when_ticks_fail_after_a_restart(tmp_path: Path) -> None:
    """Without a decision in memory, the storage and the cloud's answers are enough to keep the caps."""
    stage = Stage(tmp_path, 1)
    for number in range(6):
        stage.play.service.submit([job_content(f"j{number}", hours=50.0, max_gpus=4)], user="ann")
    stage.run(20)
    stage.play.close()
    stage.open()
    stage.runner_breaks["prepare"] = 1.0
    stage.fail_on()
    stage.play.close()


def test_a_hanging_job_is_ended_while_ticks_fail(stage: Stage) -> None:
    """The job loses its GPUs while ticks fail, and is marked failed once ticks work again."""
    content = job_content("hangs", hours=5.0, max_gpus=1, first_report_hours=0.25, retries=0)
    (job,) = stage.play.service.submit([content], user="ann")["jobs"]
    stage.run(5)
    stage.cloud_breaks["offers"] = 1.0
    assert not any(stage.run(10))
    assert job in stage.play.storage.queue.active
    assert not stage.play.storage.queue.active[job].slots
    stage.cloud_breaks.clear()
    assert all(stage.run(2))
    row = stage.play.service.job(job)
    assert (row["status"], row["failures"]) == ("failed", 1)
    assert "reported no step within 15.0 min" in row["cause"]


def test_cancel_and_down_work_while_ticks_fail(stage: Stage) -> None:
    """A cancelled job is stopped, and `down` ends all nodes, although no tick succeeds."""
    jobs = stage.play.service.submit(
        [job_content(f"j{n}", hours=5.0, max_gpus=1) for n in range(2)], user="ann"
    )["jobs"]
    stage.run(20)
    stage.runner_breaks["prepare"] = 1.0
    stage.play.service.cancel(jobs[0], user="ann", is_admin=False)
    stage.run(5)
    assert stage.play.service.job(jobs[0])["status"] in ("running", "cancelled")
    assert jobs[0] not in stage.play.runner.poll() or stage.play.runner.poll()[jobs[0]].is_over
    assert not stage.play.runner.poll()[jobs[1]].is_over
    stage.play.service.down(is_down=True)
    assert not any(stage.run(10))
    assert stage.live() == 0


def test_a_fault_is_reported_everywhere_until_it_ends(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """Status, metrics, alerts, readiness and the log name the fault, and are clear when it ends."""
    app = create_app(stage.play.service, Authenticator(ApiSettings()))
    api = TestClient(app, base_url="http://127.0.0.1")
    stage.run(2)
    assert stage.daemon.trouble == ""
    stage.cloud_breaks["nodes"] = 1.0
    stage.run(3)
    for said in (stage.daemon.trouble, stage.play.service.status()["fault"], caplog.text):
        assert "nodes broke" in said
    assert "nodes broke" in str(stage.play.service.alerts())
    assert b"boa_fault 1.0" in stage.daemon.metrics.text()
    assert api.get("/readyz").status_code == 503
    stage.cloud_breaks.clear()
    stage.run(1)
    assert stage.daemon.trouble == ""
    assert api.get("/readyz").status_code == 200
    assert b"boa_fault 0.0" in stage.daemon.metrics.text()


def test_a_hanging_tick_is_reported_once(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """When a port hangs, `watch` sends one alert, and readiness ends, without waiting for the tick."""
    stage.run(2)
    monkeypatch.setattr(daemon_health, "LATE_SECONDS", 0.2)
    monkeypatch.setattr(daemon_health, "LATE_TICKS", 0)
    said: list[str] = []
    monkeypatch.setattr(stage.daemon.alerts, "shout", lambda sentence, **_: said.append(sentence))
    hangs, go = threading.Event(), threading.Event()
    monkeypatch.setattr(stage.daemon.fleet, "nodes", lambda: hangs.set() or (go.wait(120.0) and []))
    ticking = threading.Thread(target=stage.daemon.tick)
    ticking.start()
    assert hangs.wait(120.0)
    time.sleep(0.4)
    stage.daemon.watch()
    stage.daemon.watch()
    assert stage.daemon.trouble.startswith("no tick completed for")
    assert len(said) == 1
    app = create_app(stage.play.service, Authenticator(ApiSettings()))
    api = TestClient(app, base_url="http://127.0.0.1")
    assert api.get("/readyz").status_code == 503
    go.set()
    ticking.join()


def test_a_failing_tick_renews_only_the_leases_of_nodes_with_jobs(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease of the node with the job is renewed; once no job holds the node, its lease is not renewed."""
    stage.play.service.submit([job_content(hours=5.0, max_gpus=1)], user="ann")
    stage.run(20)
    (busy,) = (row["id"] for row in stage.play.service.instances()["instances"])
    idle = next(iter(stage.play.cloud.nodes()))
    renewed: list[list[str]] = []
    stage.daemon.world.cloud.__dict__["renew"] = lambda names: renewed.append(list(names))
    stage.runner_breaks["prepare"] = 1.0
    stage.run(1)
    assert renewed == [[busy]]
    queue = stage.play.storage.queue
    monkeypatch.setattr(queue, "holders", dict)
    stage.run(1)
    assert renewed[1:] == [[]]
    assert idle.id == busy


def test_caps_hold_and_nothing_is_launched_when_the_database_cannot_be_written(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a recorded intent no node is launched; the amounts in memory are enough to keep the caps."""
    stage.play.service.submit([job_content(f"j{n}", hours=50.0, max_gpus=4) for n in range(6)], user="ann")
    stage.run(20)
    before = len(stage.play.cloud.everything())

    def broken(*_words: Any, **_named: Any) -> Any:
        raise OperationalError("INSERT", {}, Exception("database or disk is full"))

    monkeypatch.setattr(stage.play.storage.store.database, "write", broken)
    stage.fail_on()
    assert "disk is full" in stage.daemon.trouble
    assert len(stage.play.cloud.everything()) == before
