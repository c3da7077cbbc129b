"""Processes in /proc: which are alive, which descend from which, and which have a variable set."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from boa_daemon.job.regular_files import UNREADABLE

PROC = Path("/proc")


def take_back_signals() -> None:
    """Take signals as usual, whatever the program ignores or blocks that started this one.

    Where a parent ignored SIGCHLD, as shells with `trap '' CHLD` and some entrypoints do, nobody
    learns how a process ended.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def started_ticks(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot; None if it is gone or a zombie.

    The kernel reuses process ids; a process id together with its start time is unique.
    """
    try:
        return _started_ticks(pid)
    except OSError:
        return None


def _started_ticks(pid: int) -> int | None:
    """Return the same.

    Raises:
        OSError: when it cannot be read now.
    """
    try:
        fields = stat_fields(PROC / str(pid))
    except OSError as error:
        if error.errno in UNREADABLE:
            raise
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def parent_of(pid: int) -> int | None:
    """Return the parent of a process; None if the process is gone."""
    try:
        return int(stat_fields(PROC / str(pid))[1])
    except OSError:
        return None


def is_suspended(pid: int) -> bool:
    """Return whether a signal has suspended a process (SIGSTOP, or one of a terminal)."""
    try:
        return stat_fields(PROC / str(pid))[0] == "T"
    except OSError:
        return False


def catches(pid: int, number: signal.Signals) -> bool:
    """Return whether a process has a handler for a signal."""
    return _is_in_mask(pid, "SigCgt:", number)


def ignores(pid: int, number: signal.Signals) -> bool:
    """Return whether a process ignores a signal."""
    return _is_in_mask(pid, "SigIgn:", number)


def _is_in_mask(pid: int, name: str, number: signal.Signals) -> bool:
    with suppress(OSError, ValueError):
        for line in (PROC / str(pid) / "status").read_text().splitlines():
            if line.startswith(name):
                return bool(int(line.split()[1], 16) & 1 << (number - 1))
    return False


def stat_fields(folder: Path) -> list[str]:
    """Return what /proc/PID/stat, or that of a thread, holds after the program's name: its state comes first.

    Raises:
        OSError: when it cannot be read now.
    """
    return (folder / "stat").read_text().rpartition(")")[2].split()


def is_alive(pid: int, ticks: int) -> bool:
    """Return whether the process with this id and this start time still runs.

    Without a descriptor to read its start time with, a process with this id counts as the one that is meant.
    """
    try:
        found = _started_ticks(pid)
    except OSError:
        with suppress(PermissionError):
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                return False
        return True
    return found == ticks


def boot_id() -> str:
    """Return the name of this boot of the machine; empty if the kernel does not tell it."""
    with suppress(OSError):
        return (PROC / "sys" / "kernel" / "random" / "boot_id").read_text().strip()
    return ""


def descendants(pid: int) -> list[int]:
    """Return the descendants of a process, children first, zombies included."""
    found: list[int] = []
    queue = [pid]
    while queue:
        below = list(children(queue.pop(0)))
        found += below
        queue += below
    return found


def children(pid: int) -> Iterator[int]:
    """Yield the children of all threads of a process."""
    for file in (PROC / str(pid) / "task").glob("*/children"):
        with suppress(OSError):
            yield from map(int, file.read_text().split())


def ended_children() -> Iterator[tuple[int, int]]:
    """Yield our children that have ended, with their status as of `waitpid`; needs neither /proc nor a file.

    Each is reaped when the caller goes on: until then it can note the status, which can be read once.
    """
    with suppress(ChildProcessError):
        while (found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
            yield found.si_pid, found.si_status << 8 if found.si_code == os.CLD_EXITED else found.si_status
            os.waitpid(found.si_pid, 0)


def carrying(variable: str) -> list[int]:
    """Return the other processes that we may read and whose environment has `variable` ("NAME=value")."""
    pids = [int(folder.name) for folder in PROC.iterdir() if folder.name.isdigit()]
    return [pid for pid in pids if pid != os.getpid() and carries(pid, variable)]


def carries(pid: int, variable: str) -> bool:
    """Return whether the environment of a process has `variable` ("NAME=value"), if we may read it."""
    with suppress(OSError):
        return variable.encode() in (PROC / str(pid) / "environ").read_bytes().split(b"\0")
    return False


def kill_all_carrying(variable: str, *, rounds: int = 5) -> int:
    """Kill all processes whose environment has `variable`, and those they fork meanwhile; return how many."""
    killed: set[int] = set()
    for _ in range(rounds):
        alive = [pid for pid in carrying(variable) if started_ticks(pid) is not None]
        if not alive:
            break
        send(alive, signal.SIGKILL)
        killed.update(alive)
        time.sleep(0.05)
    return len(killed)


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to processes; ignore those that are gone or belong to somebody else."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def order(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process that has to act on it, also if somebody has suspended it."""
    for one in (number, signal.SIGCONT):
        send([pid], one)
