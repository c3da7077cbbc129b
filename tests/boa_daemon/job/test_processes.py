"""`job/processes.py`: processes by what /proc says of them, on a /proc that a test writes."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from boa_daemon.job import processes
from boa_daemon.job.processes import (
    boot_id,
    carries,
    carrying,
    descendants,
    ended_children,
    is_alive,
    is_suspended,
    order,
    parent_of,
    send,
    started_ticks,
)


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder in place of /proc."""
    monkeypatch.setattr(processes, "PROC", tmp_path)
    return tmp_path


def a_process(
    proc: Path, pid: int, *, parent: int = 1, state: str = "S", ticks: int = 0, name: str = "python",
    environment: bytes = b"", below: tuple[tuple[int, ...], ...] = (),
) -> None:  # fmt: skip
    """Write a process; `below` are the children of each of its threads."""
    folder = proc / str(pid)
    folder.mkdir()
    fields = [state, str(parent), *(["0"] * 17), str(ticks or pid * 10), "7"]
    (folder / "stat").write_text(f"{pid} ({name}) {' '.join(fields)}\n")
    (folder / "environ").write_bytes(environment)
    for number, children in enumerate(below):
        thread = folder / "task" / str(pid + number)
        thread.mkdir(parents=True)
        (thread / "children").write_text("".join(f"{child} " for child in children))


@pytest.mark.parametrize("name", ["python", "a) b (c", "x y", ")", "S 1 2"])
def test_a_program_may_be_called_anything(proc: Path, name: str) -> None:
    """Its name has brackets and spaces as it likes."""
    a_process(proc, 50, parent=7, ticks=123, name=name)
    assert (started_ticks(50), parent_of(50), is_suspended(50)) == (123, 7, False)


def test_a_process_lives_while_its_id_has_its_start_time(proc: Path) -> None:
    """The kernel gives an id again; a zombie, or what is gone, is not alive."""
    for pid, state in ((50, "S"), (51, "Z"), (52, "X"), (53, "T"), (54, "D")):
        a_process(proc, pid, state=state)
    assert [is_alive(pid, pid * 10) for pid in (50, 51, 52, 53, 54, 99)] == [
        True,
        False,
        False,
        True,
        True,
        False,
    ]
    assert not is_alive(50, 501)
    assert [is_suspended(pid) for pid in (50, 53, 99)] == [False, True, False]
    assert (started_ticks(99), parent_of(99)) == (None, None)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOMEM])
def test_without_a_descriptor_a_process_with_the_id_counts_as_the_one(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not to know is not to be dead: a keeper would else be started twice."""

    def refuse(pid: int) -> list[str]:
        raise OSError(number, "no")

    monkeypatch.setattr(processes, "stat_fields", refuse)
    sent: list[int] = []

    def kill(pid: int, which: int) -> None:
        sent.append(which)
        if pid == 51:
            raise ProcessLookupError
        if pid == 52:
            raise PermissionError

    monkeypatch.setattr(processes.os, "kill", kill)
    assert [is_alive(pid, 1) for pid in (50, 51, 52)] == [True, False, True]
    assert (sent, started_ticks(50)) == ([0, 0, 0], None)


def test_descendants_are_those_of_all_threads_children_first(proc: Path) -> None:
    """One that ends meanwhile has none."""
    a_process(proc, 50, below=((60, 61), (62,)))
    a_process(proc, 61, below=((70,),))
    a_process(proc, 70, below=((),))
    found = descendants(50)
    assert (sorted(found[:3]), found[3:]) == ([60, 61, 62], [70])
    assert descendants(99) == []


def test_a_process_is_found_by_a_whole_variable_of_its_environment(proc: Path) -> None:
    """Not by a part of one, and never this process."""
    mine = b"A=1\0BOA_UNIT=u1\0"
    for pid, environment in (
        (50, mine),
        (51, b"BOA_UNIT=u10\0"),
        (52, b"X_BOA_UNIT=u1\0"),
        (os.getpid(), mine),
    ):
        a_process(proc, pid, environment=environment)
    (proc / "self").mkdir()
    assert carrying("BOA_UNIT=u1") == [50]
    assert [carries(pid, "BOA_UNIT=u1") for pid in (50, 51, 99)] == [True, False, False]


def test_a_boot_has_a_name_where_the_kernel_tells_it(proc: Path) -> None:
    """Else all boots are one."""
    assert boot_id() == ""
    folder = proc / "sys" / "kernel" / "random"
    folder.mkdir(parents=True)
    (folder / "boot_id").write_text("abc\n")
    assert boot_id() == "abc"


def test_a_signal_reaches_all_that_can_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is gone or another's is passed over; an order wakes what is suspended, after it was given."""
    sent: list[tuple[int, int]] = []

    def kill(pid: int, number: int) -> None:
        sent.append((pid, number))
        if pid < 50:
            raise ProcessLookupError if pid % 2 else PermissionError

    monkeypatch.setattr(processes.os, "kill", kill)
    send([41, 42, 50], signal.SIGTERM)
    order(51, signal.SIGUSR1)
    assert sent == [(41, 15), (42, 15), (50, 15), (51, signal.SIGUSR1), (51, signal.SIGCONT)]


def test_children_that_ended_are_told_with_their_status_before_they_are_reaped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As `waitpid` gives it: the code in the high byte, or the signal."""
    ended = [(50, os.CLD_EXITED, 3), (51, os.CLD_KILLED, signal.SIGKILL)]
    reaped: list[int] = []

    def waitid(kind: int, pid: int, options: int) -> Any:
        assert (kind, options) == (os.P_ALL, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        pid, code, status = ended[len(reaped)] if len(reaped) < len(ended) else (0, 0, 0)
        return SimpleNamespace(si_pid=pid, si_code=code, si_status=status) if pid else None

    monkeypatch.setattr(processes.os, "waitid", waitid)
    monkeypatch.setattr(processes.os, "waitpid", lambda pid, options: reaped.append(pid))
    found = []
    for pid, status in ended_children():
        assert pid not in reaped
        found.append((pid, os.waitstatus_to_exitcode(status)))
    assert (found, reaped) == ([(50, 3), (51, -signal.SIGKILL)], [50, 51])

    def childless(*_: object) -> None:
        raise ChildProcessError

    monkeypatch.setattr(processes.os, "waitid", childless)
    assert list(ended_children()) == []
