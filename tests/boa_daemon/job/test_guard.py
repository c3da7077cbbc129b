"""The guard: it keeps a keeper for its unit, passes orders on, and sees how the command ended."""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_bench import until
from small_disk import a_small_disk

from boa_daemon.engines.local_units import send_to_keeper
from boa_daemon.job import guard
from boa_daemon.job.course import OUTPUT
from boa_daemon.job.guard import Guard, Orders
from boa_daemon.job.processes import children, descendants, kill_all_carrying, started_ticks
from boa_daemon.job.unit import Unit, read_json, read_own


@pytest.fixture
def unit(tmp_path: Path) -> Iterator[Any]:
    """Return a function that starts a unit with a command; it gives the unit and its guard."""
    begun: list[tuple[Unit, subprocess.Popen[bytes]]] = []

    def start(run: str, **changes: Any) -> tuple[Unit, subprocess.Popen[bytes]]:
        values: dict[str, Any] = {
            "name": f"guarded-{os.getpid()}",
            "job": "a",
            "generation": 1,
            "rank": 0,
            "run": run,
            "folder": tmp_path / "g1" / "n0",
            "workdir": str(tmp_path),
            "progress_file": str(tmp_path / "g1" / "own" / "progress.json"),
            "checkpoint_dir": str(tmp_path / "checkpoint"),
            "environment": {"BOA_UNIT": f"guarded-{os.getpid()}"},
        }
        made = Unit(**(values | changes))
        made.write()
        words = [sys.executable, "-m", "boa_daemon.job.keeper", "--foreground", str(made.folder)]
        begun.append((made, subprocess.Popen(words)))
        return begun[-1]

    yield start
    for made, process in begun:
        process.kill()
        for pid in (read_json(made.folder / "keeper.json") or {}).get("pid", 0), *descendants(process.pid):
            if pid and started_ticks(pid):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        kill_all_carrying(f"BOA_UNIT={made.name}")


def keeper(unit: Unit) -> int:
    return int((read_json(unit.folder / "keeper.json") or {}).get("pid", 0))


def kill_keeper(unit: Unit) -> None:
    """Kill the keeper, and wait until the next one has written its papers."""
    before = keeper(unit)
    os.kill(before, signal.SIGKILL)
    until(lambda: keeper(unit) != before)


def printed(unit: Unit) -> str:
    return "".join(file.read_text() for file in sorted(unit.folder.glob("out-*.log")))


def test_what_a_command_prints_last_is_there_though_no_keeper_lives(unit: Any, tmp_path: Path) -> None:
    """It writes and ends after its keeper was killed and before there is another one."""
    made, process = unit("echo told; while [ ! -e go ]; do sleep 0.05; done; echo late; touch ended")
    until(lambda: "told" in printed(made))
    until(lambda: has_open(process.pid, made.folder / OUTPUT))
    process.send_signal(signal.SIGSTOP)
    os.kill(keeper(made), signal.SIGKILL)
    (tmp_path / "go").touch()
    until((tmp_path / "ended").exists)
    time.sleep(0.1)
    process.send_signal(signal.SIGCONT)
    assert process.wait() == 0
    assert "late" in printed(made)
    assert not list(made.folder.glob(".*"))


@pytest.mark.first_set(1)
@pytest.mark.parametrize(
    ("end", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", -9), ("kill -ABRT $$", -6)]
)
def test_the_code_of_a_command_is_known_though_its_keeper_was_killed(unit: Any, end: str, code: int) -> None:
    """Also all that it prints: nothing of the command meets a closed pipe."""
    made, process = unit("ulimit -c 0; for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.2; done; " + end)
    until(lambda: "2" in printed(made))
    kill_keeper(made)
    until(lambda: "5" in printed(made))
    kill_keeper(made)
    assert process.wait(timeout=60) == 0
    found = read_own(made.folder, "exit.json") or {}
    assert (found["code"], found["stop_asked"], found.get("agent_lost")) == (code, False, None)
    assert [line for line in printed(made).splitlines() if line.isdigit()] == list("12345678")


@pytest.mark.first_set(1)
@pytest.mark.parametrize("go_on", ["", "sleep 0.2; "])
def test_a_command_that_has_begun_is_kept_though_its_keeper_dies_at_once(
    unit: Any, tmp_path: Path, go_on: str
) -> None:
    """The first thing that the command does is to end its keeper, which has not yet seen its begin."""
    made, process = unit(f"kill -9 $PPID; {go_on}echo ran >> ran; exit 7")
    assert process.wait(timeout=60) == 0
    found = read_own(made.folder, "exit.json") or {}
    assert (found["code"], found.get("agent_lost")) == (7, None)
    assert (tmp_path / "ran").read_text() == "ran\n"


def test_a_command_that_has_removed_its_folder_is_kept_on(unit: Any, tmp_path: Path) -> None:
    """It was started early, and had its turn: a next keeper lets it go on once more, as far as it can."""
    made, process = unit("echo told; while [ ! -e end ]; do sleep 0.05; done; exit 7", waits="start")
    until((made.folder / "ready").exists)
    (made.folder / "go").touch()
    until(lambda: (read_json(made.folder / "course.json") or {}).get("child", 0) > 0)
    until((made.own / "go").exists)
    shutil.rmtree(made.own)
    kill_keeper(made)
    until(lambda: "another one goes on" in printed(made))
    (tmp_path / "end").touch()
    assert process.wait(timeout=60) == 0
    assert printed(made).count("another one goes on") == 1
    assert (read_own(made.folder, "exit.json") or {})["code"] == 7


def test_a_next_keeper_does_not_touch_what_the_guard_may_be_writing(unit: Any) -> None:
    """The guard notes the command's end as soon as there is one, a next keeper or none."""
    made, process = unit("echo told; sleep 600")
    until(lambda: "told" in printed(made))
    (made.folder / ".first.json.room").unlink()
    kill_keeper(made)
    until(lambda: "another one goes on" in printed(made))
    assert not (made.folder / ".first.json.room").exists()
    process.terminate()
    assert process.wait(timeout=60) == 0


@pytest.mark.first_set(1)
@pytest.mark.parametrize("where", ["bring", "before", "keep", "after"])
def test_what_a_killed_keeper_had_going_is_done_anew(unit: Any, tmp_path: Path, where: str) -> None:
    """An errand that was cut short runs once more, alone, and the command runs once."""
    going = tmp_path / "going"
    errand = f"echo $$ >> {going}; [ $(wc -l < {going}) -gt 1 ] || sleep 600"
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "manifest.json").write_text("{}")
    changes = {where: errand} if where != "keep" else {"keep": errand, "after": "true"}
    made, process = unit(f"echo ran >> {tmp_path}/ran", **changes)
    until(lambda: going.exists() and len(going.read_text()) > 1)
    first = int(going.read_text().split()[0])
    kill_keeper(made)
    assert process.wait(timeout=60) == 0
    assert started_ticks(first) is None
    assert (tmp_path / "ran").read_text() == "ran\n"
    assert len(going.read_text().split()) == 2
    assert (read_own(made.folder, "exit.json") or {})["code"] == 0


@pytest.mark.parametrize("whom", ["keeper", "guard"])
def test_an_order_reaches_the_command_whoever_was_killed(unit: Any, whom: str) -> None:
    """The guard passes orders on; without it the keeper goes on by itself."""
    made, process = unit("echo ready; sleep 600")
    until(lambda: "ready" in printed(made))
    if whom == "keeper":
        os.kill(keeper(made), signal.SIGKILL)
        process.terminate()  # At once: the next keeper may not be there yet.
    else:
        process.kill()
        process.wait()
        os.kill(keeper(made), signal.SIGTERM)
    until((made.folder / "exit.json").exists, seconds=30.0)
    found = read_own(made.folder, "exit.json") or {}
    assert (found["stop_asked"], found["code"]) == (True, -signal.SIGTERM)


@pytest.mark.parametrize(("what", "number"), [("stop", signal.SIGTERM), ("kill", signal.SIGUSR1)])
def test_an_order_that_a_killed_guard_takes_along_is_obeyed(
    unit: Any, what: str, number: signal.Signals
) -> None:
    """An engine notes it beside the units before it sends a signal, which may reach a dying process."""
    made, process = unit("echo ready; sleep 600")
    until(lambda: "ready" in printed(made))
    (made.folder.parent / what).touch()
    process.kill()
    process.send_signal(number)
    until((made.folder / "exit.json").exists, seconds=30.0)
    found = read_own(made.folder, "exit.json") or {}
    assert (found["stop_asked"], found["killed"]) == (what == "stop", what == "kill")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_guard_that_is_started_again_stands_in_and_passes_orders_on(
    unit: Any, number: signal.Signals
) -> None:
    """As systemd does on a rented node: the second guard ends well, after the unit."""
    made, guard = unit("trap 'echo told; exit 3' TERM; echo begun; while :; do sleep 0.1; done")
    until(lambda: "begun" in printed(made))
    before = keeper(made)
    guard.kill()
    guard.wait()
    words = [sys.executable, "-m", "boa_daemon.job.keeper", "--foreground", str(made.folder)]
    with subprocess.Popen(words) as second:
        until(lambda: has_open(second.pid, made.folder / "keeper.lock"))
        time.sleep(0.3)
        assert keeper(made) == before, "it goes on"
        second.send_signal(number)
        assert second.wait(timeout=60) == 0
    end = read_own(made.folder, "exit.json") or {}
    assert (end["stop_asked"], end["killed"]) == (number == signal.SIGTERM, number == signal.SIGUSR1)
    assert ("told" in printed(made)) is (number == signal.SIGTERM)


def has_open(pid: int, file: Path) -> bool:
    """Return whether a process has a file open."""
    handles = Path(f"/proc/{pid}/fd")
    return any(os.path.realpath(handle) == str(file) for handle in handles.iterdir())


@pytest.mark.parametrize("whom", ["keeper", "guard"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_an_order_is_obeyed_whoever_was_suspended(unit: Any, whom: str, number: signal.Signals) -> None:
    """A job that is paid for ends, though somebody has stopped who looks after it."""
    made, process = unit("echo ready; exec sleep 600")
    until(lambda: "ready" in printed(made))
    os.kill(keeper(made) if whom == "keeper" else process.pid, signal.SIGSTOP)
    send_to_keeper(made.folder, number)
    assert process.wait(timeout=30) == 0
    found = read_own(made.folder, "exit.json") or {}
    assert found["stop_asked" if number == signal.SIGTERM else "killed"]


def test_a_unit_whose_keepers_cannot_live_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """After some tries the guard gives up, and says what was wrong."""
    monkeypatch.setattr(guard, "PAUSE_SECONDS", 0.0)

    def keep(_orders: Orders, _guard: int) -> int:
        raise OSError("the disk is gone")

    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    try:
        assert not Guard(tmp_path, keep).run()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        ctypes.CDLL(None).prctl(guard.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    assert capfd.readouterr().err.count("OSError: the disk is gone") == guard.MOST_KEEPERS


def test_a_full_disk_does_not_end_a_command_whose_keeper_was_killed(unit: Any, tmp_path: Path) -> None:
    """Not a byte is left from then on: reports go on, and the command's code and the end are known."""
    with a_small_disk(megabytes=4) as disk:
        if disk is None:
            return
        made, process = unit(
            "echo told; while [ ! -e go ]; do sleep 0.05; done",
            folder=disk.folder / "g1" / "n0",
            beat=f"touch {tmp_path}/reported",
            beat_seconds=0.5,
            after=f"touch {tmp_path}/last",
        )
        until(lambda: "told" in printed(made))
        disk.fill()
        (made.folder / "word.err").unlink(missing_ok=True)
        os.kill(keeper(made), signal.SIGKILL)
        time.sleep(0.5)
        (tmp_path / "reported").unlink(missing_ok=True)
        until((tmp_path / "reported").exists)
        (tmp_path / "go").touch()
        assert process.wait(timeout=60) == 0
        found = read_own(made.folder, "exit.json") or {}
        assert (found["code"], found["stop_asked"], found.get("agent_lost")) == (0, False, None)
        assert (tmp_path / "last").exists()


def test_a_guard_without_descriptors_starts_no_second_keeper(unit: Any, tmp_path: Path) -> None:
    """It learns of its keeper's end from the kernel, and of nothing else."""
    made, process = unit("echo told; while [ ! -e go ]; do sleep 0.05; done")
    until(lambda: "told" in printed(made))
    limits = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (3, limits[1]))
    process.send_signal(signal.SIGCHLD)
    time.sleep(0.5)
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, limits)
    assert list(children(process.pid)) == [keeper(made)]
    (tmp_path / "go").touch()
    assert process.wait(timeout=60) == 0
    found = read_own(made.folder, "exit.json") or {}
    assert (found["code"], found["stop_asked"]) == (0, False)
    assert "another one goes on" not in printed(made)


def test_the_end_is_noted_once_the_guard_has_descriptors_again(unit: Any, tmp_path: Path) -> None:
    """Only the parent learns how a process ended, and only once."""
    made, process = unit("echo told; while [ ! -e go ]; do sleep 0.05; done; exit 7")
    until(lambda: "told" in printed(made))
    first = keeper(made)
    os.kill(first, signal.SIGKILL)
    until(lambda: "another one goes on" in printed(made))
    limits = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (3, limits[1]))
    (tmp_path / "go").touch()
    time.sleep(1.5)
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, limits)
    assert process.wait(timeout=60) == 0
    found = read_own(made.folder, "exit.json") or {}
    assert (found["code"], found.get("agent_lost")) == (7, None)


def test_the_guard_bears_half_a_minute_in_which_no_keeper_can_live(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that has no processes or no memory for a while has them again, and the command lives."""
    pauses: list[float] = []
    ours, sleep = threading.get_ident(), time.sleep

    def pause(seconds: float) -> None:
        if threading.get_ident() == ours:
            pauses.append(seconds)
        else:
            sleep(seconds)  # Threads of other tests' servers may still live.

    monkeypatch.setattr(time, "sleep", pause)

    def keep(_orders: Orders, _guard: int) -> int:
        os._exit(1)

    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    try:
        assert not Guard(tmp_path, keep).run()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        ctypes.CDLL(None).prctl(guard.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    assert pauses[0] == 0.05
    assert 30.0 < sum(pauses) < guard.WITHIN_SECONDS


def test_orders_are_remembered() -> None:
    """The first stop counts: its grace begins then."""
    orders = Orders()
    orders.take(signal.SIGCHLD)
    assert orders.stop_asked_at is None
    orders.take(signal.SIGTERM)
    at = orders.stop_asked_at
    assert at is not None
    assert at <= time.monotonic()
    orders.take(signal.SIGTERM)
    orders.take(signal.SIGUSR1)
    assert (orders.stop_asked_at, orders.is_kill_asked) == (at, True)
