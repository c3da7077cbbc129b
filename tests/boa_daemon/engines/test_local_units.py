"""`engines/local_units.py`: a unit that has lost its keeper gets another one, or is ended."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from boa_daemon.engines import local_units
from boa_daemon.engines.local_units import KEEPER_SECONDS, MOST_TRIES, TRIES, TRY_SECONDS, read_unit_status
from boa_daemon.job.course import COURSE
from boa_daemon.job.unit import Unit, write_json


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """Return the folder of a unit whose keeper was started and is gone."""
    folder = tmp_path / "a" / "g1" / "n0"
    made = Unit(
        name="boa-a-g1-n0",
        job="a",
        generation=1,
        rank=0,
        run="true",
        folder=folder,
        workdir=str(tmp_path),
        progress_file=str(folder.parent / "progress.json"),
        checkpoint_dir=str(tmp_path / "checkpoint"),
    )
    made.write()
    write_json(folder / "keeper.json", {"pid": 2**22 + 1, "ticks": 1, "boot": ""})
    return folder


class Keepers:
    """Counts the keepers that are asked for; none of them comes."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, folder: Path) -> None:
        """Start a keeper."""
        self.count += 1


def has_begun(folder: Path, monkeypatch: pytest.MonkeyPatch, *, child: int = 7) -> None:
    """Let the unit's command be started, and its course be a minute old."""
    (folder / COURSE).touch()
    set_back(folder / COURSE, 60.0)
    monkeypatch.setattr(local_units, "read_course", lambda _folder: SimpleNamespace(child=child))


def set_back(file: Path, seconds: float) -> None:
    """Make a file older."""
    os.utime(file, (time.time() - seconds, time.time() - seconds))


def test_after_ten_keepers_in_vain_a_unit_is_ended(unit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until then it counts as running; no try comes sooner than three seconds after the one before."""
    has_begun(unit, monkeypatch)
    keepers = Keepers()
    for number in range(1, MOST_TRIES + 1):
        for _ in range(2):
            status = read_unit_status(unit, keep=keepers)
            assert status is not None
            assert status["exit"] is None
        assert keepers.count == number
        # Long ago, or in a time to come, because the clock was set back meanwhile.
        set_back(unit / TRIES, TRY_SECONDS + 1.0 if number % 2 else -7200.0)
        local_units._TRIES.clear()
    status = read_unit_status(unit, keep=keepers)
    assert status is not None
    assert status["exit"] is not None
    assert status["exit"]["agent_lost"]
    assert keepers.count == MOST_TRIES


def test_a_keeper_that_came_and_died_does_not_use_up_the_tries_of_the_next(
    unit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has noted the course anew, after the last try."""
    has_begun(unit, monkeypatch)
    (unit / TRIES).write_text(str(MOST_TRIES))
    set_back(unit / TRIES, 90.0)
    keepers = Keepers()
    status = read_unit_status(unit, keep=keepers)
    assert status is not None
    assert (status["exit"], keepers.count, (unit / TRIES).read_text()) == (None, 1, "1")


@pytest.mark.parametrize("child", [0, 7])
def test_without_a_started_command_or_a_way_to_keep_it_a_unit_is_ended(
    unit: Path, monkeypatch: pytest.MonkeyPatch, child: int
) -> None:
    """There is nothing that could go on."""
    has_begun(unit, monkeypatch, child=child)
    keepers = Keepers()
    status = read_unit_status(unit, keep=keepers if child == 0 else None)
    assert status is not None
    assert status["exit"] is not None
    assert keepers.count == 0


@pytest.mark.parametrize("odd", ["a folder", "a full folder", "a link", "a link to nothing", "a pipe"])
def test_whatever_stands_in_the_place_of_its_lock_a_unit_is_ended(unit: Path, odd: str) -> None:
    """A command of the keeper's user can put anything there; the unit would hold its GPUs for ever."""
    lock, other = unit / "keeper.lock", unit.parent / "other"
    if "folder" in odd:
        (lock / "full" if "full" in odd else lock).mkdir(parents=True)
    elif "link" in odd:
        lock.symlink_to(other)
        if odd == "a link":
            other.write_text("theirs")
    else:
        os.mkfifo(lock)
    status = read_unit_status(unit)
    assert status is not None
    assert status["exit"] is not None
    assert other.exists() is (odd == "a link")


@pytest.mark.parametrize(
    ("age", "is_over"),
    [
        (0.0, False),
        (KEEPER_SECONDS - 9.0, False),
        (KEEPER_SECONDS + 9.0, True),
        # The clock was set back by two hours: else nobody would notice for two hours.
        (-7200.0, True),
    ],
)
def test_a_keeper_has_a_minute_to_come(unit: Path, age: float, is_over: bool) -> None:
    """A unit that was just written is not ended for want of one."""
    (unit / "keeper.json").unlink()
    set_back(unit / "unit.json", age)
    status = read_unit_status(unit)
    assert status is not None
    assert (status["exit"] is not None) is is_over
