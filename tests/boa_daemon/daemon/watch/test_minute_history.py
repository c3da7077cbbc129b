"""Minute history: one row per minute for 90 days, whose parts add up, and which survives a restart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select

from boa_daemon.daemon.loop.assembly import open_storage
from boa_daemon.daemon.watch.minute_history import (
    KEPT_SECONDS,
    KIND,
    MinuteHistory,
    current_figures,
    pack,
    unpack,
)
from boa_daemon.inputs.sqlite_urls import sqlite_url
from boa_daemon.store.database import Database
from boa_daemon.store.tables import DOCUMENTS
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content

NOON = 1_800_000_000.0 - 1_800_000_000.0 % 3600.0


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    storage = open_storage(sqlite_url(tmp_path / "boa.sqlite"), durable=False)
    yield storage.store.database
    storage.close()


def test_a_minute_has_one_row(database: Database) -> None:
    """The first tick of a minute writes its row; later ticks of that minute do not."""
    history = MinuteHistory(database)
    for second, usd in ((0, 10.0), (20, 11.0), (40, 12.0), (60, 20.0)):
        history.take({"usd_per_hour": usd}, now=NOON + second)

    found = history.read(since=NOON, until=NOON + 120.0, points=2)
    assert found["series"]["usd_per_hour"] == [10.0, 20.0]


def test_a_point_is_the_mean_of_its_minutes_and_none_without_minutes(database: Database) -> None:
    """A column that appears later counts as 0 in earlier minutes."""
    history = MinuteHistory(database)
    history.take({"usd_per_hour": 10.0}, now=NOON)
    history.take({"usd_per_hour": 30.0, "gpus": 4.0}, now=NOON + 60.0)

    found = history.read(since=NOON, until=NOON + 240.0, points=2)
    assert found["series"] == {"usd_per_hour": [20.0, None], "gpus": [2.0, None]}
    assert found["minutes"] == [2, 0]


def test_a_new_process_continues_the_current_hour(database: Database) -> None:
    """The new process keeps the minute that the previous one wrote and adds the next minute."""
    MinuteHistory(database).take({"usd_per_hour": 10.0}, now=NOON)
    again = MinuteHistory(database)
    again.take({"usd_per_hour": 99.0}, now=NOON + 5.0)
    again.take({"usd_per_hour": 30.0}, now=NOON + 61.0)

    assert again.read(since=NOON, until=NOON + 120.0, points=2)["series"]["usd_per_hour"] == [10.0, 30.0]


def test_hours_older_than_90_days_are_deleted(database: Database) -> None:
    """Only the document of the new hour is left in the table."""
    history = MinuteHistory(database)
    history.take({"usd_per_hour": 10.0}, now=NOON)
    history.take({"usd_per_hour": 10.0}, now=NOON + KEPT_SECONDS + 7200.0)

    with database.read() as connection:
        kept = connection.execute(select(DOCUMENTS.c.key).where(DOCUMENTS.c.kind == KIND)).all()
    assert len(kept) == 1


def test_unpack_reverses_pack() -> None:
    """Minutes and columns come back unchanged."""
    minutes, columns = [0, 1, 5], {"user:ann": [0.1, 2.0, 3.0]}
    assert unpack(pack(minutes, columns)) == (minutes, columns)


def test_recorded_parts_add_up_to_the_spend_rate(tmp_path: Path) -> None:
    """States and markets add up to the spend rate; classes, users and teams to work and restarts."""
    clock = ManualClock(NOON)
    play = DaemonInAFolder(
        tmp_path, clock, {"budget": {"usd_per_hour": 50.0}, "cloud": {"boot_seconds": 90.0}}
    )
    play.service.submit([job_content(hours=5.0), job_content(hours=5.0)], user="ann")
    seen = set()
    for _ in range(20):
        play.daemon.tick()
        decision = play.daemon.standing.decision
        assert decision is not None
        found = current_figures(decision.state, dict(play.storage.queue.active))
        burn = found.get("usd_per_hour", 0.0)
        for kind in ("state", "market"):
            assert sum(v for k, v in found.items() if k.startswith(f"{kind}:")) == pytest.approx(
                burn, abs=1e-3
            )
        for kind in ("class", "user", "team"):
            work = found.get("state:work", 0.0) + found.get("state:restart", 0.0)
            assert sum(v for k, v in found.items() if k.startswith(f"{kind}:")) == pytest.approx(
                work, abs=1e-3
            )
        seen |= found.keys()
        clock.instant += 30.0
    assert {"state:boot", "state:work", "user:ann", "class:default", "team:(none)"} <= seen
    assert play.daemon.history is not None
    past = play.daemon.history.read(since=NOON, until=clock.instant, points=1)
    assert past["minutes"] == [10]
    play.close()


def test_a_gpu_whose_job_starts_in_the_tick_is_not_idle(tmp_path: Path) -> None:
    """The figures are those after the starts and stops of the tick, not those that it saw."""
    play = DaemonInAFolder(tmp_path, ManualClock(NOON), {"cloud": {"boot_seconds": 90.0}})
    play.service.submit([job_content(hours=5.0, max_gpus=1)], user="ann")
    for _ in range(20):
        play.daemon.tick()
        decision, jobs = play.daemon.standing.decision, dict(play.storage.queue.active)
        assert decision is not None
        found = current_figures(decision.state, jobs)
        held = sum(map(len, play.storage.queue.holders().values()))
        assert (found.get("gpus_used", 0), found.get("running", 0)) == (held, held)
        if held:
            break
        play.clock.instant += 30.0
    assert found.get("state:work", 0.0) > 0.0
    play.close()


def test_a_tick_succeeds_although_its_history_row_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk loses the row, not the decision."""
    play = DaemonInAFolder(tmp_path, ManualClock(NOON))

    def full(*_given: object, **_named: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(play.daemon.history, "take", full)
    assert play.daemon.tick() is not None
    assert play.daemon.standing.fault == ""
    play.close()
