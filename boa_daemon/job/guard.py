"""The guard of a unit: the process that starts the unit's keeper, and another one whenever that is killed.

The guard does nothing else, so that little can happen to it. Orphans of a killed keeper become its children,
and it notes how the command's first process ended, which only a parent learns. Orders that come while there
is no keeper reach the next one. If the guard is killed, the keeper goes on; if both are, the unit's engine
starts a guard and a keeper for what lives on. Standard library only.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from boa_daemon.job.course import COURSE, OUTPUT, read_course, reopen_output
from boa_daemon.job.processes import ended_children, is_alive, order, send
from boa_daemon.job.unit import keepers_of, read_own, sealed_document, write_in_room

FIRST = "first.json"
"""File in which the guard notes how the command's first process ended, if that became its child."""
MOST_KEEPERS, WITHIN_SECONDS = 20, 60.0
"""After so many keepers within this time the unit is ended, because none can live."""
PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.05, 2.0
"""The pause before the next keeper: it doubles with each that has died, up to the longest. So a fault that
passes within half a minute (no processes, no descriptors, no memory) does not end the unit."""
READABLE_SECONDS = 5.0
"""How long the guard waits for a record that cannot be read, for want of descriptors or because of a disk."""
UNNOTED_SECONDS = 0.5
"""How often it tries to note how the command's first process ended, until it has."""
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGCHLD)
PR_SET_CHILD_SUBREAPER = 36


class Orders:
    """What was ordered while a unit had no keeper: when a stop was, and whether an end at once was."""

    def __init__(self) -> None:
        self.stop_asked_at: float | None = None
        self.is_kill_asked = False

    def take(self, number: int) -> None:
        """Note the order of a signal."""
        if number == signal.SIGUSR1:
            self.is_kill_asked = True
        elif number != signal.SIGCHLD and self.stop_asked_at is None:
            self.stop_asked_at = time.monotonic()


def stand_in(folder: Path, lock: int) -> Orders:
    """Wait in the place of a killed guard until its keeper has ended; return what was ordered meanwhile.

    The keeper holds `lock`, a descriptor, as long as it lives. Orders are passed on to it.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    orders = Orders()
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return orders
        info = signal.sigtimedwait(SIGNALS, UNNOTED_SECONDS)
        if info is not None and info.si_signo != signal.SIGCHLD:
            orders.take(info.si_signo)
            with suppress(OSError):
                for pid, ticks in keepers_of(read_own(folder, "keeper.json")):
                    if is_alive(pid, ticks):
                        order(pid, signal.Signals(info.si_signo))


class Guard:
    """Keeps a keeper for one unit; `keep` is what a keeper does, with the orders and the guard's process.

    `orders` are those that came before it.
    """

    def __init__(
        self, folder: Path, keep: Callable[[Orders, int], int], orders: Orders | None = None
    ) -> None:
        self._folder, self._keep = folder, keep
        self._orders = orders or Orders()
        self._keeper = 0
        self._output: int | None = None
        self._unnoted: dict[int, int] = {}

    def run(self) -> bool:
        """Run keepers until one has ended its unit; return whether one has, or the unit is gone."""
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        starts: list[float] = []
        while True:
            starts = [at for at in starts if at > time.monotonic() - WITHIN_SECONDS]
            if len(starts) >= MOST_KEEPERS:
                return False
            starts.append(time.monotonic())
            try:
                self._start()
            except OSError:
                pass  # No memory for a process: tried again.
            else:
                self._wait()
            if not self._folder.is_dir() or self._has_ended():
                return True
            time.sleep(min(PAUSE_SECONDS * 2.0 ** (len(starts) - 1), LONGEST_PAUSE_SECONDS))

    def _has_ended(self) -> bool:
        """Return whether the unit's end is recorded; a record that cannot be read now is waited for."""
        until = time.monotonic() + READABLE_SECONDS
        while True:
            try:
                return read_own(self._folder, "exit.json") is not None
            except OSError:
                if time.monotonic() > until:
                    return False
            time.sleep(PAUSE_SECONDS)

    def _start(self) -> None:
        """Start a keeper as a copy of this process: it needs no file that might be gone by now."""
        guard = os.getpid()
        self._keeper = os.fork()
        if self._keeper:
            return
        code = 1
        try:
            code = self._keep(self._orders, guard)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        except BaseException:
            traceback.print_exc()
        finally:
            with suppress(OSError, ValueError):
                sys.stderr.flush()
            os._exit(code)

    def _wait(self) -> None:
        """Wait for the keeper's end, and pass orders on to it."""
        while not self._reap():
            self._hold_output()
            info = signal.sigtimedwait(SIGNALS, UNNOTED_SECONDS if self._unnoted else 5.0)
            if info is not None and info.si_signo != signal.SIGCHLD:
                self._orders.take(info.si_signo)
                order(self._keeper, signal.Signals(info.si_signo))

    def _hold_output(self) -> None:
        """Hold the pipe of the command's output open.

        What a command wrote last before it ended is then there for the next keeper, if this one is killed. A
        keeper that has made the pipe wakes the guard.
        """
        with suppress(OSError):
            inode = os.stat(self._folder / OUTPUT, follow_symlinks=False).st_ino
            if self._output is not None and os.fstat(self._output).st_ino != inode:
                os.close(self._output)
                self._output = None
            if self._output is None:
                self._output = reopen_output(self._folder)

    def _reap(self) -> bool:
        """Reap ended children, and note how the command's first process ended; return if the keeper has."""
        has_ended = False
        with suppress(ChildProcessError):
            if os.waitid(os.P_PID, self._keeper, os.WSTOPPED | os.WNOHANG) is not None:
                send([self._keeper], signal.SIGCONT)  # Somebody has suspended it, and nobody would go on.
        for pid, status in ended_children():
            if pid == self._keeper:
                has_ended = True
            else:
                self._unnoted[pid] = status
        with suppress(OSError):
            self._note()
        return has_ended

    def _note(self) -> None:
        """Note how the command's first process ended, if it is among those that have.

        Raises:
            OSError: when its files cannot be read or written now; it is tried again.
        """
        if not self._unnoted:
            return
        read_own(self._folder, COURSE)  # Raises, where `read_course` would find none.
        course = read_course(self._folder)
        if course is not None and not course.has_ended and course.child in self._unnoted:
            note = {"pid": course.child, "status": self._unnoted[course.child]}
            write_in_room(self._folder / FIRST, sealed_document(self._folder, note))
        self._unnoted.clear()
