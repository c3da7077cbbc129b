"""A row a minute for 90 days, what adds up to what, and what a restart finds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select

from boa_daemon.daemon.assembly import open_storage
from boa_daemon.daemon.minute_history import KEPT_SECONDS, KIND, MinuteHistory, current_figures, pack, unpack
from boa_daemon.store.database import Database
from boa_daemon.store.database_setup import sqlite_url
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
    """Three ticks of a minute are one row, of the first; the next minute has its own."""
    history = MinuteHistory(database)
    for second, usd in ((0, 10.0), (20, 11.0), (40, 12.0), (60, 20.0)):
        history.take({"usd_per_hour": usd}, now=NOON + second)

    found = history.read(since=NOON, until=NOON + 120.0, points=2)
    assert found["series"]["usd_per_hour"] == [10.0, 20.0]


def test_a_stretch_is_the_mean_of_its_minutes_and_a_gap_is_a_gap(database: Database) -> None:
    """(10 + 30) / 2 in the first two minutes, nothing in the next two; a new column was zero before."""
    history = MinuteHistory(database)
    history.take({"usd_per_hour": 10.0}, now=NOON)
    history.take({"usd_per_hour": 30.0, "gpus": 4.0}, now=NOON + 60.0)

    found = history.read(since=NOON, until=NOON + 240.0, points=2)
    assert found["series"] == {"usd_per_hour": [20.0, None], "gpus": [2.0, None]}
    assert found["minutes"] == [2, 0]


def test_a_process_after_this_one_goes_on_with_the_hour(database: Database) -> None:
    """What the first wrote is there, and its minute is not written anew."""
    MinuteHistory(database).take({"usd_per_hour": 10.0}, now=NOON)
    again = MinuteHistory(database)
    again.take({"usd_per_hour": 99.0}, now=NOON + 5.0)
    again.take({"usd_per_hour": 30.0}, now=NOON + 61.0)

    assert again.read(since=NOON, until=NOON + 120.0, points=2)["series"]["usd_per_hour"] == [10.0, 30.0]


def test_after_90_days_it_is_forgotten(database: Database) -> None:
    """The document of the old hour is gone from the table."""
    history = MinuteHistory(database)
    history.take({"usd_per_hour": 10.0}, now=NOON)
    history.take({"usd_per_hour": 10.0}, now=NOON + KEPT_SECONDS + 7200.0)

    with database.read() as connection:
        kept = connection.execute(select(DOCUMENTS.c.key).where(DOCUMENTS.c.kind == KIND)).all()
    assert len(kept) == 1


def test_what_is_packed_is_unpacked() -> None:
    """Text in, the same out."""
    minutes, columns = [0, 1, 5], {"user:ann": [0.1, 2.0, 3.0]}
    assert unpack(pack(minutes, columns)) == (minutes, columns)


def test_a_daemon_writes_down_parts_that_add_up(tmp_path: Path) -> None:
    """Work, boot, idle and restart make the burn rate; so do markets; classes and users make the work."""
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


def test_a_disk_that_is_full_ends_no_tick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The decision stands; only the row is missing."""
    play = DaemonInAFolder(tmp_path, ManualClock(NOON))

    def full(*_given: object, **_named: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(play.daemon.history, "take", full)
    assert play.daemon.tick() is not None
    assert play.daemon.standing.fault == ""
    play.close()
