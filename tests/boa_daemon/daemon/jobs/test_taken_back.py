"""Jobs that run but that a restored database does not know are taken back from the papers of their engine."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from boa_daemon.daemon.loop.assembly import open_daemon
from boa_daemon.daemon.loop.loop import Daemon
from boa_daemon.daemon.loop.recovery import recover
from boa_daemon.daemon.service.service import Service
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.errors import InputError
from boa_daemon.inputs.sqlite_urls import sqlite_url
from boa_daemon.job.processes import carrying, kill_all_carrying
from boa_daemon.store.database_setup import StoreTooNew, StoreUnreachable, backup, open_engine
from boa_daemon.store.records import JobRecord
from boa_daemon.testing.daemon_in_a_folder import job_content


def settings_in(folder: Path) -> Settings:
    return Settings.model_validate(
        {
            "cloud": {"boot_seconds": 0.1},
            "daemon": {"state_dir": str(folder / "state"), "tick_seconds": 1},
            "gate": {"enabled": False},
            "engine": {"own_user": False},
        }
    )


class Fleet:
    """A daemon in a folder with real jobs, opened and closed like a process."""

    def __init__(self, folder: Path) -> None:
        self.settings, self.state = settings_in(folder), folder / "state"
        self.mark = f"FLEET={folder}"
        self.daemon: Daemon | None = None

    def __enter__(self) -> Fleet:
        self.daemon = open_daemon(self.settings)
        return self

    def __exit__(self, *_: object) -> None:
        assert self.daemon is not None
        self.daemon.close()

    def submit(self, name: str, **more: object) -> str:
        assert self.daemon is not None
        name_of, _, value = self.mark.partition("=")
        content = {**job_content(name), "run": "sleep 600", "environment": {name_of: value}, **more}
        (job,) = Service(self.daemon).submit([content], user="ann")["jobs"]
        return str(job)

    def until_running(self, *jobs: str) -> None:
        until = time.monotonic() + 90.0
        while not all(self.has_keeper(job) for job in jobs):
            assert time.monotonic() < until
            self.tick()

    def has_keeper(self, job: str) -> bool:
        return any((self.state / "jobs" / job).glob("g*/n0/keeper.json"))

    def tick(self, times: int = 1) -> None:
        assert self.daemon is not None
        for _ in range(times):
            assert self.daemon.tick() is not None, self.daemon.standing.fault
            time.sleep(0.1)

    def job(self, name: str) -> JobRecord | None:
        assert self.daemon is not None
        assert self.daemon.storage is not None
        return self.daemon.storage.queue.job(name)

    @property
    def copy(self) -> Path:
        assert self.daemon is not None
        assert self.daemon.storage is not None
        found = backup(self.daemon.storage.store.database.engine, self.state / "backups", "20260101T000000")
        assert found is not None
        return found


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    found = Fleet(tmp_path)
    yield found
    kill_all_carrying(found.mark)


def processes(fleet: Fleet) -> set[int]:
    return set(carrying(fleet.mark))


def without_record(fleet: Fleet) -> None:
    """Make the papers those of an earlier version, which have no copy of the record."""
    for file in (fleet.state / "jobs").glob("*/spec.json"):
        document = json.loads(file.read_text())
        del document["record"]
        file.write_text(json.dumps(document))


@pytest.mark.first_set(2)
@pytest.mark.parametrize("papers", ["of this version", "of an earlier version"])
@pytest.mark.parametrize("loss", ["an old backup", "no backup", "a lost log"])
def test_running_jobs_go_on_after_their_database_was_lost(fleet: Fleet, loss: str, papers: str) -> None:
    """In their processes and generations; a new job gets a new number, and nothing runs twice."""
    with fleet:
        first = fleet.submit("a")
        fleet.until_running(first)
        if loss == "an old backup":
            assert fleet.copy.exists()
        second = fleet.submit("b", min_gpus=1, max_gpus=1)
        fleet.until_running(first, second)
    running = processes(fleet)
    if papers == "of an earlier version":
        without_record(fleet)
    database = fleet.state / "boa.sqlite"
    if loss == "a lost log":
        # As if all since the first job had been in a log that is damaged.
        database.unlink()
        for suffix in ("-wal", "-shm"):
            Path(f"{database}{suffix}").unlink(missing_ok=True)
        (fleet.state / "next_job").unlink()
    else:
        database.write_bytes(b"garbage" * 4096)
        assert recover(fleet.settings)["jobs"] == 2
    with fleet:
        fleet.tick(3)
        for name in (first, second):
            found = fleet.job(name)
            assert found is not None
            assert (found.status, found.generation, found.user) == ("running", 1, "ann")
            assert len(found.slots) == 1
        third = fleet.submit("c")
        assert third.endswith("-3")
        assert processes(fleet) >= running
        assert fleet.daemon is not None
        assert not [row for row in Service(fleet.daemon).alerts()["alerts"] if "stopped" in row["sentence"]]


def test_a_running_job_that_its_database_knows_to_be_over_is_stopped(fleet: Fleet) -> None:
    """It is no lost job."""
    with fleet:
        job = fleet.submit("a")
        fleet.until_running(job)
        assert fleet.daemon is not None
        assert fleet.daemon.storage is not None
        database = fleet.daemon.storage.store.database
        with database.write() as connection:
            connection.exec_driver_sql("DELETE FROM placements")
            connection.exec_driver_sql("UPDATE jobs SET status = 'cancelled', ended_at = 1.0")
    with fleet:
        until = time.monotonic() + 90.0
        while processes(fleet):
            fleet.tick()
            assert time.monotonic() < until
        found = fleet.job(job)
        assert found is not None
        assert found.status == "cancelled"


def test_recover_replaces_nothing_that_waiting_cures(fleet: Fleet) -> None:
    """A sound, a newer and a locked-away database stay byte for byte."""
    with fleet:
        fleet.submit("a")
    database = fleet.state / "boa.sqlite"
    engine = open_engine(sqlite_url(database))
    with engine.begin() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    engine.dispose()
    before = database.read_bytes()
    with pytest.raises(InputError, match="nothing to recover"):
        recover(fleet.settings)
    assert database.read_bytes() == before
    engine = open_engine(sqlite_url(database))
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    engine.dispose()
    before = database.read_bytes()
    with pytest.raises(StoreTooNew, match="install that boa"):
        recover(fleet.settings)
    assert database.read_bytes() == before
    database.rename(fleet.state / "aside")
    database.mkdir()
    with pytest.raises(StoreUnreachable):
        recover(fleet.settings)


def test_recover_takes_no_backup_of_another_version(fleet: Fleet) -> None:
    """A database of a development version is set aside, not migrated, and its backups are left out."""
    with fleet:
        job = fleet.submit("a")
        fleet.until_running(job)
        copy = fleet.copy
    database = fleet.state / "boa.sqlite"
    for path in (database, copy):
        engine = open_engine(sqlite_url(path))
        with engine.begin() as connection:
            connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0003'")
        engine.dispose()
    shutil.copyfile(database, fleet.state / "before")
    answer = recover(fleet.settings)
    assert answer["backup"] is None
    assert answer["jobs"] == 1
    assert Path(answer["old"]).read_bytes() == (fleet.state / "before").read_bytes()
