"""Keeper, guard or both are killed at each point of a unit's life: nothing is lost or runs twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from engine_bench import until

from boa_daemon.engines import local_units
from boa_daemon.engines.local_units import read_unit_status, send_to_keeper
from boa_daemon.job.control_group import ControlGroup
from boa_daemon.job.enclosure import group_name
from boa_daemon.job.keeper import settle
from boa_daemon.job.leavings import temporary_folder
from boa_daemon.job.processes import carrying, kill_all_carrying
from boa_daemon.job.unit import Unit, read_json, read_own

TESTS = Path(__file__).parents[1]
LOOP = f"{sys.executable} {TESTS / 'command_jobs' / 'loop.py'}"


@dataclass
class Mortal:
    """A unit on this machine, whose keepers die at `at`, with an engine that looks after it."""

    unit: Unit
    at: str = ""
    who: str = "keeper"
    points: list[str] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return self.unit.folder

    def start(self, folder: Path | None = None) -> None:
        """Start a guard with a keeper, apart, as the local engine does."""
        place = Path(self.unit.workdir)
        told = {"DIE_ONCE": f"{place}/died", "DIE_WHO": self.who, "DIE_NOTE": f"{place}/points"}
        words = [sys.executable, str(TESTS / "dying_keeper.py"), str(folder or self.folder)]
        environment = {**os.environ, **told, **({"DIE_AT": self.at} if self.at else {})}
        with (place / "keeper.err").open("ab") as errors:
            subprocess.run(words, env=environment, stdout=errors, stderr=errors, cwd="/", check=False)

    def see_through(self, order: str = "") -> dict[str, Any]:
        """Look after the unit until its end, which is returned; an order is given at the death."""
        place, begun = Path(self.unit.workdir), time.monotonic()
        self.start()
        while not (self.folder / "exit.json").exists():
            assert time.monotonic() < begun + 60.0
            read_unit_status(self.folder, keep=self.start)
            if order and ((place / "died").exists() or time.monotonic() > begun + 2.0):
                (self.folder.parent / order).touch()
                send_to_keeper(self.folder, signal.SIGTERM if order == "stop" else signal.SIGUSR1)
            time.sleep(0.05)
        until(lambda: not self.is_kept, seconds=20.0)
        self.points = list(dict.fromkeys((place / "points").read_text().splitlines()))
        return read_own(self.folder, "exit.json") or {}

    @property
    def is_kept(self) -> bool:
        status = read_unit_status(self.folder)
        return status is None or bool(status["is_kept"])

    def leavings(self) -> list[str]:
        """Return what is left of the unit on this machine."""
        left = [f"process {pid}" for pid in carrying(f"BOA_UNIT={self.unit.name}")]
        left += [
            str(file) for file in (*self.folder.glob(".*"), temporary_folder(self.folder)) if file.exists()
        ]
        return left + [str(folder) for folder in ControlGroup.find(group_name(self.unit)).folders]


@pytest.fixture
def mortal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return a function that makes a unit whose keepers die."""
    monkeypatch.setattr(local_units, "KEEPER_SECONDS", 20.0)
    monkeypatch.setattr(local_units, "TRY_SECONDS", 1.0)
    made: list[Mortal] = []

    def make(run: str, at: str = "", who: str = "keeper", **changes: Any) -> Mortal:
        place = tmp_path / str(len(made))
        (place / "checkpoint").mkdir(parents=True)
        name, progress = f"mortal-{os.getpid()}-{len(made)}", str(place / "g1" / "own" / "progress.json")
        known = {"BOA_UNIT": name, "BOA_JOB_ID": "a", "BOA_GENERATION": "1", "BOA_PROGRESS_FILE": progress}
        values: dict[str, Any] = {
            "folder": place / "g1" / "n0",
            "workdir": str(place),
            "progress_file": progress,
            "checkpoint_dir": str(place / "checkpoint"),
            "environment": {**known, "BOA_CHECKPOINT_DIR": str(place / "checkpoint")},
            **{slot: f"echo {slot} >> {place}/errands" for slot in ("bring", "before", "keep", "after")},
        }
        unit = Unit(name=name, job="a", generation=1, rank=0, run=run, **(values | changes))
        unit.write()
        made.append(Mortal(unit, at, who))
        return made[-1]

    yield make
    for one in made:
        kill_all_carrying(f"BOA_UNIT={one.unit.name}")


def check_plain(one: Mortal) -> None:
    """See a short command through."""
    end = one.see_through()
    place = Path(one.unit.workdir)
    ran = (place / "ran").read_text() if (place / "ran").exists() else ""
    assert ran in ("begin\nend\n", ""), "it runs once, to its end, or not at all"
    if one.who == "both" or not ran:
        # Nobody saw how it ended, or it has not begun: then it is started anew.
        assert end.get("agent_lost") or end["code"] in (7, None)
    else:
        assert (end["code"], end.get("agent_lost")) == (7, None)
    assert ran or one.who != "keeper" or "guard|" in one.at
    assert "after" in (place / "errands").read_text()
    if one.who == "keeper":
        assert not one.leavings()


def check_stop(one: Mortal) -> None:
    """Stop a training that saves, and whose next command must not run."""
    end = one.see_through("stop")
    place = Path(one.unit.workdir)
    step = (read_json(one.unit.progress_file) or {}).get("step", 0)
    assert step <= (read_json(place / "checkpoint" / "manifest.json") or {}).get("step", 0)
    assert not (place / "never").exists()
    assert end["stop_asked"] or end.get("agent_lost") or not (place / "ran").exists()
    if one.who == "keeper":
        assert end["code"] in (-signal.SIGTERM, None)
        assert not one.leavings()


PLAIN = "echo begin >> ran; sleep 0.3; echo end >> ran; exit 7"
STOP = f"echo begin >> ran; {LOOP} --save 0.2 && echo >> never; echo >> never"
POINTS = {
    "while its start is noted": "keeper|os.rename:.course.json",
    "once its start is noted": "keeper|mkfifo",
    "when its process is about to begin": "keeper|subprocess.Popen:|_start",
    "when its process is to note itself": "child|os.rename:.course.json",
    "when its process has noted itself": "child|open:cgroup.procs",
    "when it has ended": "keeper|waitid: done|ended_children<_listen<_watch",
    "in the last errand": "keeper|waitid: done|ended_children<_listen<_do_errand<_write_exit",
    "when the end is to be recorded": "keeper|os.rename:.exit.json",
    "when the end is recorded": "keeper|subprocess.Popen:|remove_trees",
    "in the middle of its papers": "keeper|os.rename:.keeper.json",
}


@pytest.mark.first_set(2)
@pytest.mark.parametrize("at", POINTS.values(), ids=list(POINTS))
def test_a_killed_keeper_costs_nothing(mortal: Any, at: str) -> None:
    """The command runs once, its code is known, and nothing is left."""
    check_plain(mortal(PLAIN, at))


@pytest.mark.first_set(1)
@pytest.mark.parametrize("at", [POINTS["in the last errand"], POINTS["when the end is to be recorded"]])
def test_an_end_that_was_known_is_recorded_though_guard_and_keeper_died(mortal: Any, at: str) -> None:
    """They had the last errand still to do, which is done once more."""
    one = mortal(PLAIN, at, "both")
    assert one.see_through()["code"] == 7
    assert (Path(one.unit.workdir) / "ran").read_text() == "begin\nend\n"


def test_a_group_that_nobody_has_noted_is_removed(mortal: Any) -> None:
    """Its keeper dies when it has made it; the next one is told to stop, and makes none."""
    one = mortal(PLAIN, "keeper|open:.course.json")
    one.see_through("stop")
    assert not one.leavings()


@pytest.mark.exhaustive
@pytest.mark.parametrize("who", ["keeper", "guard", "both"])
@pytest.mark.parametrize("course", ["plain", "stop"])
def test_a_death_at_any_point_costs_nothing(mortal: Any, course: str, who: str) -> None:
    """The points are those that an undisturbed unit meets: every third, or all with BOA_TEST_ALL_DEATHS=1."""
    run, check = {"plain": (PLAIN, check_plain), "stop": (STOP, check_stop)}[course]
    undisturbed = mortal(run)
    check(undisturbed)
    failed = []
    for point in undisturbed.points[:: 1 if os.environ.get("BOA_TEST_ALL_DEATHS") else 3]:
        try:
            check(mortal(run, point, who))
        except AssertionError as error:
            failed.append(f"{point}: {error}")
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("whom", ["keeper", "guard"])
def test_who_is_suspended_goes_on(mortal: Any, whom: str) -> None:
    """A unit whose keeper or guard somebody has suspended comes to its end, and its guard ends, too."""
    one = mortal("while [ ! -e go ]; do sleep 0.05; done; exit 7")
    one.start()
    until(lambda: (read_json(one.folder / "course.json") or {}).get("child", 0) > 0, seconds=20.0)
    kept = read_json(one.folder / "keeper.json") or {}
    os.kill(kept["pid" if whom == "keeper" else "guard"], signal.SIGSTOP)
    (Path(one.unit.workdir) / "go").touch()
    until((one.folder / "exit.json").exists, seconds=20.0)
    until(lambda: not one.is_kept, seconds=20.0)
    assert (read_own(one.folder, "exit.json") or {})["code"] == 7


def test_a_unit_that_has_a_keeper_after_all_is_not_ended(mortal: Any) -> None:
    """A keeper may come late on a machine that is busy, when the engine has just found none."""
    one = mortal("while [ ! -e go ]; do sleep 0.05; done; exit 7")
    one.start()
    until(lambda: (read_json(one.folder / "course.json") or {}).get("child", 0) > 0, seconds=20.0)
    settle(one.folder)
    assert not (one.folder / "exit.json").exists()
    (Path(one.unit.workdir) / "go").touch()
    until((one.folder / "exit.json").exists, seconds=20.0)
    assert (read_own(one.folder, "exit.json") or {})["code"] == 7
