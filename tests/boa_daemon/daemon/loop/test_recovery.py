"""Recovery: with a new database beside an old engine, job numbers are not used again."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from boa_daemon.daemon.loop.assembly import DAMAGED_SECONDS, open_daemon, try_database
from boa_daemon.daemon.loop.last_state import LastStateFile
from boa_daemon.daemon.loop.recovery import recover
from boa_daemon.daemon.service.service import Service
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.daemon.settings.daemon_paths import daemon_paths
from boa_daemon.errors import InputError
from boa_daemon.store.database_setup import backup
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content
from boa_daemon.tick.facts.ports import Charge


class Shelf:
    """A runner with folders of earlier jobs, or whose folders cannot be listed."""

    def __init__(self, runner: Any, folders: list[str] | None) -> None:
        self._runner, self._folders = runner, folders

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    def job_folders(self) -> list[str]:
        if self._folders is None:
            raise OSError("no answer")
        return self._folders


@pytest.mark.parametrize(("folders", "first"), [(["a-41", "=code", "a-9"], 42), ([], 1), (None, 1)])
def test_job_numbers_continue_after_the_folders_of_the_engine(
    tmp_path: Path, folders: list[str] | None, first: int
) -> None:
    """An engine that cannot list its folders stops neither submissions nor ticks."""
    play = DaemonInAFolder(tmp_path, ManualClock(1e9), wrap_runner=lambda runner: Shelf(runner, folders))
    (job,) = play.service.submit([job_content("a")], user="ann")["jobs"]

    assert job == f"a-{first}"
    assert play.daemon.tick() is not None
    play.close()


def test_a_new_database_beside_an_old_engine_is_opened_again_before_its_first_job(tmp_path: Path) -> None:
    """The file with the next number does not make it one that was emptied."""
    settings = Settings.model_validate({"daemon": {"state_dir": str(tmp_path)}})
    (tmp_path / "jobs" / "a-41").mkdir(parents=True)
    for _ in range(2):
        daemon = open_daemon(settings)
        assert daemon.tick() is not None, daemon.standing.fault
        daemon.close()
    daemon = open_daemon(settings)
    assert Service(daemon).submit([job_content("a")], user="ann")["jobs"] == ["a-42"]
    daemon.close()


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE jobs SET spec = '{\"content\": {'",
        "UPDATE jobs SET spec = 'null'",
        "UPDATE jobs SET spec = '[]'",
        "UPDATE jobs SET spec = '{}'",
        "UPDATE jobs SET spec = ''",
        "UPDATE meta SET value = 'x' WHERE key = 'next_job'",
    ],
)
def test_a_row_that_is_cut_short_is_damage_like_any_other(tmp_path: Path, damage: str) -> None:
    """SQLite calls the file sound: the daemon names `boa recover`, which takes an older backup."""
    settings = Settings.model_validate({"daemon": {"state_dir": str(tmp_path)}})
    daemon = open_daemon(settings)
    Service(daemon).submit([job_content("a")], user="ann")
    assert daemon.storage is not None
    there, engine = daemon_paths(settings), daemon.storage.store.database.engine
    sound = backup(engine, there.backups, "20260101T000000")
    damaged = backup(engine, there.backups, "20260102T000000")
    daemon.close()
    assert sound is not None
    assert damaged is not None
    for path in (there.database, damaged):
        with closing(sqlite3.connect(path)) as file:
            file.execute(damage)
            file.commit()
    storage, why, again = try_database(settings)
    assert storage is None
    assert "boa recover" in why
    assert again == DAMAGED_SECONDS
    found = recover(settings)
    assert (found["old"] is not None, found["backup"], found["jobs"]) == (True, str(sound), 1)
    storage, why, _ = try_database(settings)
    assert (storage is not None, why) == (True, "")
    assert storage is not None
    storage.close()


def test_a_sound_database_with_jobs_is_not_replaced(tmp_path: Path) -> None:
    """There is nothing to recover."""
    settings = Settings.model_validate({"daemon": {"state_dir": str(tmp_path)}})
    daemon = open_daemon(settings)
    Service(daemon).submit([job_content("a")], user="ann")
    daemon.close()
    with pytest.raises(InputError, match="nothing to recover"):
        recover(settings)


@pytest.mark.parametrize("has_copy", [True, False], ids=["from a backup", "from nothing"])
@pytest.mark.parametrize("launches", [True, False], ids=["a launch in the last tick", "nothing in it"])
def test_what_a_lost_database_had_settled_counts_after_a_recovery(
    tmp_path: Path, has_copy: bool, launches: bool
) -> None:
    """The file of the last tick says what was spent, whatever that tick did; nothing counts twice."""
    settings = Settings.model_validate({"daemon": {"state_dir": str(tmp_path)}})
    there, began = daemon_paths(settings), time.time() - 600.0
    clock = ManualClock(began)
    daemon = open_daemon(settings, clock=clock)
    assert daemon.storage is not None
    store = daemon.storage.store
    store.record_charge(a_charge("before", clock.now()))
    if has_copy:
        backup(store.database.engine, there.backups, "20260101T000000")
    store.record_charge(a_charge("since", clock.now()))
    assert daemon.tick() is not None
    if launches:
        Service(daemon).submit([job_content("a")], user="ann")
    else:
        clock.instant += 10.0
    daemon.last_state_file = LastStateFile(there.last_state)  # One that has just written waits.
    decision = daemon.tick()
    assert decision is not None
    assert bool(decision.actions) == launches
    daemon.close()
    there.database.write_bytes(b"no database")
    recover(settings)
    for _ in range(2):
        clock.instant += 10.0
        daemon = open_daemon(settings, clock=clock)
        assert daemon.storage is not None
        assert daemon.tick() is not None
        store = daemon.storage.store
        assert store.settled_micro_dollars() == store.settled_since(began) == 3_000_000
        assert store.tick > decision.state.tick
        daemon.close()


def a_charge(node: str, at: float) -> Charge:
    """Return a bill of 1.50 dollars of a node that ended long ago, which no cloud lists any more."""
    day = int(at // 86_400.0)
    return Charge(
        node=node,
        instance_type="g5.xlarge",
        started_at=at,
        ended_at=at,
        micro_dollars=1_500_000,
        days=((day, 1_500_000),),
    )
