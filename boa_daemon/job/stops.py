"""An ordered stop: the processes that must save are told first, and the others only when these have ended.

The processes of a command that use `boa_daemon.job` register, each with a lock on one file of the unit. A
stop takes these steps:

1. The keeper suspends the shells that wait for registered processes, so that their next command does not
   start, and makes the unit's request file.
2. It reads which processes are registered. If none is, all processes of the command get SIGTERM at once.
3. Registered processes find the request at their next step, save and end. One that has not looked for a
   request yet gets SIGTERM, if it catches it. All other processes (loader workers, pools, pipes, launchers)
   run on.
4. A registered process that is done with everything says so, and waits until the keeper has suspended the
   other shells, too: one may look again and again for the end of a training that it has not started.
   One that has saved and goes on with something else says that, too: it has its grace while it works, and
   gets SIGTERM once nothing works any more (`occupation`).
5. When the registered processes have ended, the others get SIGTERM. When the grace is over, all are killed.

A registered process that has had no step and is in no loop (an evaluator that looks for checkpoints) has
nothing to save. It says so when it gets SIGTERM in step 3, by a read lock, and counts as one of the others
once another registered process has been asked. If it is alone, it keeps the whole grace: nobody knows better.

No registered process is missed. A process registers after its handler of SIGTERM is in place, and looks for
the request after that. If it registered before step 2, the keeper counts it, and the request was there
before. If it registers later, the request is there at its first look; if SIGTERM of step 2 meets it, the
handler catches it, or the process has not registered yet and has done no step.

The lock is a POSIX record lock: the kernel drops it when the process ends or becomes another program, does
not pass it on to forked workers, and names its holder, also across containers. So nothing is believed that a
job could write into a file, and only processes of the unit's own family get signals. Where files cannot be
locked, a process counts as not registered; it still sees the request.

A stop outlives its keeper: its steps are noted before they are taken (`OrderedStop.state`), and the next
keeper goes on from there. The keeper locks a file, too, its lease. Processes in a loop of `boa_daemon.job`
that find the lease without a holder for `LEASE_SECONDS` save and end by themselves. Standard library only.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import signal
import stat
import struct
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boa_daemon.job.control_group import ControlGroup
from boa_daemon.job.course import OUTPUT
from boa_daemon.job.occupation import Occupation
from boa_daemon.job.processes import PROC, catches, descendants, ignores, is_suspended, parent_of, send
from boa_daemon.job.regular_files import KeptOpen, open_regular
from boa_daemon.job.shell_traps import signals_to_end
from boa_daemon.job.unit import Unit

STOP_FILE = "BOA_STOP_FILE"
"""Variable with the path of the file whose existence asks for a stop."""
REGISTER = "BOA_REGISTER_FILE"
"""Variable with the path of the file on which the command's processes register."""
LEASE = "BOA_LEASE_FILE"
"""Variable with the path of the file that the unit's keeper has locked while it lives."""
LEAVE = "BOA_LEAVE_FILE"
"""Variable with the path of the file that lets processes end that are done with everything."""
LEASE_SECONDS, LEASE_LOOK_SECONDS = 600.0, 10.0
"""A command without a keeper saves and ends after this time; how often a process of it looks."""
LEAVE_SECONDS = 0.5
"""Time for helper processes to exit by themselves after the command's end, before any signal."""
LAST_SIGNAL_SECONDS = 5.0
"""How long before the end of its grace (at most a tenth of it) a process that looks for a stop gets SIGTERM.

It may have left its loop, and a handler of its own may still do something useful.
"""
_LOCK = struct.Struct("@hhqqi0q")
"""`struct flock` of 64-bit Linux: type, whence, start, length, process."""
_WAITERS = re.compile(
    r"(?:ba|da|z|k|pdk|mk|lok|ok|ya|fi|c|tc|rba|po|o|y|hu|pw)?sh|ash|busybox|elvish|nu|[gb]?make|ninja|just|task|xargs|find|g?time"
)
"""Programs that only wait for the command that they have started, and then start the next one."""
_RUNNERS = re.compile(
    "parallel|sem|snakemake|dvc|wandb|guild|rake|scons|waf|doit|inv|invoke|fab|tox|nox|luigi|npm|npx|pnpm|yarn|bun|"
    "run-s|npm-run-all|concurrently|run-parts|tsp|hatch|pdm|poe|pixi|mise|rye|xonsh"
)
"""Programs that start one command after another, and may pass output on; many are scripts."""
_FOLLOWERS = ("su", "runuser", "sudo", "script", "nsenter", "unshare", "newgrp", "sg", "login")
"""Programs that suspend themselves with the program that they have started, until somebody wakes them."""
SHELL_SECONDS = 5.0
"""How long a process that is about to end waits until shells are suspended: a new keeper needs seconds."""
TEXT_SECONDS = 2.0
"""For how long the scripts of shells are read at most; those whose turn comes later get SIGTERM."""
SILENT_SECONDS = 10.0
"""After so much time in which nothing works, a process that has saved gets SIGTERM."""
_MOST_LOOKS = 8192
"""How often the kernel is asked for one more lock: a job may hold as many as it likes."""


class Registration:
    """This process in its unit's register: one byte is locked, and a second one once it looks for a stop."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        file = environment.get(REGISTER, "")
        self._file = KeptOpen(file, os.O_RDWR | os.O_NOFOLLOW, 0o600) if file else None
        self._leave = environment.get(LEAVE, "")

    def enter(self) -> None:
        """Register this process; does nothing outside a unit, or where files cannot be locked."""
        self._lock(1)

    def looks(self) -> None:
        """Note that this process looks for a stop at this step and at those that follow.

        Each look takes the place anew. Whoever closes a descriptor of the register in this process drops its
        lock, and a fork that goes on with the loop has none.
        """
        self._lock(2)

    def idles(self) -> None:
        """Note that this process knows of the stop and has nothing to save."""
        self._lock(1, fcntl.LOCK_SH)

    def has_saved(self) -> None:
        """Note that all that this process has done is saved, and that it does no further step."""
        if self._lock(1):
            self._lock(1, fcntl.LOCK_SH, second=True)

    def is_let_go(self) -> bool:
        """Return whether the keeper waits for no process any more that has saved."""
        return os.path.exists(self._leave)

    def leaves(self) -> None:
        """Note that this process is about to end, and wait until the keeper is ready for that.

        Where nobody keeps the unit, a shell may start its next command after `SHELL_SECONDS`. A keeper of an
        older release names no file to wait for.
        """
        is_seen = self._lock(2, fcntl.LOCK_SH) and bool(self._leave)
        until = time.monotonic() + SHELL_SECONDS
        while is_seen and not self.is_let_go() and time.monotonic() < until:
            time.sleep(0.01)

    def _lock(self, length: int, kind: int = fcntl.LOCK_EX, *, second: bool = False) -> bool:
        """Lock this process's place, or its second byte; return whether that has worked."""
        if self._file is not None:
            with suppress(OSError):
                place = 2 * os.getpid() + second
                fcntl.lockf(self._file.descriptor(), kind | fcntl.LOCK_NB, length, place)
                return True
        return False


class Lease:
    """The lease of a unit's keeper, as a process of the command sees it.

    It counts only for a process that has seen it held: where locks do not reach, it says nothing.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._file = environment.get(LEASE, "")
        self._look_at = 0.0
        self._held_at: float | None = None

    def is_over(self) -> bool:
        """Return whether the unit has had no keeper for `LEASE_SECONDS`; costs little when called often."""
        now = time.monotonic()
        if now < self._look_at or not self._file:
            return False
        self._look_at = now + LEASE_LOOK_SECONDS
        if _is_locked(Path(self._file)):
            self._held_at = now
        return self._held_at is not None and now - self._held_at >= LEASE_SECONDS


def hold_lease(unit: Unit) -> int | None:
    """Lock the lease of a unit until this process ends; return the descriptor, None if it cannot be locked.

    Only one process holds it. The descriptor must not be closed, and the file not be opened again.
    """
    with suppress(OSError), unit.as_user():
        handle = os.open(lease_file(unit), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        with suppress(OSError):
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
        return handle
    return None


def lease_file(unit: Unit) -> Path:
    """Return the file that a unit's keeper has locked while it lives."""
    return unit.own / "lease"


def _is_locked(file: Path) -> bool:
    """Return whether another process has locked a file; also if that cannot be known."""
    try:
        with open_regular(file) as stream:
            asked = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
            return bool(_LOCK.unpack(fcntl.fcntl(stream, fcntl.F_GETLK, asked))[0] != fcntl.F_UNLCK)
    except OSError as error:
        return error.errno not in (errno.ENOENT, errno.ENOTDIR)


@dataclass(frozen=True)
class Registered:
    """A registered process: its id, as the keeper sees it, and whether it looks for a stop at each step.

    One that is idle knows of the stop and has nothing to save. One that has saved does no further step, and
    one that leaves has done everything else, too.
    """

    pid: int
    looks: bool
    is_idle: bool = False
    leaves: bool = False
    has_saved: bool = False


def registered(file: Path) -> list[Registered]:
    """Return the living processes that are registered on a file; empty if it cannot be read.

    The kernel names any lock of a range, and not the first one: it keeps them in the order in which their
    processes came. So what is before and what is behind each lock is looked through, too.
    """
    locks: dict[tuple[int, int], set[tuple[bool, bool]]] = {}
    with suppress(OSError), open_regular(file) as stream:
        ranges = [(0, 0)]  # Begin and end; 0 for no end.
        for _ in range(_MOST_LOOKS):
            if not ranges:
                break
            start, end = ranges.pop()
            asked = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, start, end and end - start, 0)
            kind, _, begin, length, pid = _LOCK.unpack(fcntl.fcntl(stream, fcntl.F_GETLK, asked))
            if kind == fcntl.F_UNLCK:
                continue
            # Processes that our namespace lacks all have the number 0: they differ by their places.
            held = locks.setdefault((pid, 0 if pid else begin // 2), set())
            # The first byte, the second one, or both; to be read, or to be written.
            held.update(
                (bool(second), kind == fcntl.F_RDLCK)
                for second in (0, 1)
                if length != 1 or begin % 2 == second
            )
            if begin > start:
                ranges.append((start, begin))
            if length and (not end or begin + length < end):
                ranges.append((begin + length, end))
    return [_registered(one[0], held) for one, held in sorted(locks.items())]


def _registered(pid: int, held: set[tuple[bool, bool]]) -> Registered:
    """Return what the locks of a process say: for each whether it is the second byte, and one to be read."""
    first, second = (
        {is_read for is_second, is_read in held if is_second is which} for which in (False, True)
    )
    return Registered(
        pid,
        looks=bool(second),
        is_idle=first == {True} and not second,
        leaves=first == second == {True},
        has_saved=second == {True},
    )


def let_shell_be_suspended(register: str, seconds: float = SHELL_SECONDS) -> None:
    """Wait until the shell that waits for this process is suspended by a stop, at most so many seconds.

    A training that begins during a stop ends before the keeper has seen it, and its shell would go on;
    the shells of one command have the same file `register` among their variables.
    """
    shell = parent_of(os.getpid())
    while shell and _has_variable(shell, REGISTER, register) and not only_waits(_program(shell)):
        shell = parent_of(shell)
    if not shell or not _has_variable(shell, REGISTER, register):
        return
    until = time.monotonic() + seconds
    while not is_suspended(shell) and time.monotonic() < until:
        time.sleep(0.05)


def _has_variable(pid: int, name: str, value: str) -> bool:
    try:
        return f"{name}={value}".encode() in (PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def make_request(unit: Unit) -> bool:
    """Make a unit's request file; return whether it is there now."""
    return _make(unit, request_file(unit))


def _make(unit: Unit, file: Path) -> bool:
    try:
        with unit.as_user():
            os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644))
    except OSError as error:
        return error.errno == errno.EEXIST
    return True


def request_file(unit: Unit) -> Path:
    """Return the file that asks a unit's command to stop."""
    return unit.own / "stop"


def leave_file(unit: Unit) -> Path:
    """Return the file that lets the processes of a unit's command end that are done with everything."""
    return unit.own / "leave"


def register_file(unit: Unit) -> Path:
    """Return the file on which the processes of a unit's command register."""
    return unit.own / "register"


def variables(unit: Unit) -> dict[str, str]:
    """Return the variables by which the command's processes find these files."""
    return {
        STOP_FILE: str(request_file(unit)),
        REGISTER: str(register_file(unit)),
        LEASE: str(lease_file(unit)),
        LEAVE: str(leave_file(unit)),
    }


_NO_GROUP = ControlGroup()


class OrderedStop:
    """A stop of a unit's command, whose first process is `child`; `family` returns all living ones.

    `note` is called before each step that sends signals, so that another keeper can go on from `before`, the
    newest `state`. A signal may then be sent a second time, and none is left out. `group` is the command's
    control group.
    """

    def __init__(
        self,
        unit: Unit,
        child: int,
        family: Callable[[], list[int]],
        note: Callable[[OrderedStop], None] = lambda _stop: None,
        *,
        group: ControlGroup = _NO_GROUP,
        before: Mapping[str, Any] | None = None,
    ) -> None:
        self._group = group
        self._unit, self._child, self._family, self._note = unit, child, family, note
        self._began = time.monotonic()
        self._told: set[int] = set()
        self._shells: list[int] = []
        self._suspended: list[int] = []
        self._frozen: list[int] = []
        self._released: list[int] = []
        self._there: set[int] = set()
        self._sought: set[int] = set()
        self._followers: list[int] = []
        self._asked: set[int] = set()
        self._idle: list[int] = []
        self._leave_until: float | None = None
        self._has_told_all = self._lets_leave = False
        self._occupation: Occupation | None = None
        self._says_who_lives = True
        if before is not None:
            self._resume(before)
            return
        self.had_request = False
        """Whether the request file could be made."""
        savers = self.savers()
        self.asks_first = bool(savers)
        """Whether registered processes were asked first; else all processes got SIGTERM at once."""
        self.counted = len(savers)
        # Before the request: a process that saves at once has ended before its shell could be found.
        self._suspend_shells(savers)
        self.had_request = make_request(unit)
        savers = self.savers()
        self.asks_first |= bool(savers)
        self.counted = max(self.counted, len(savers))
        self._note(self)
        if not self.asks_first:
            living = family()
            self._told = {pid for pid in living if _group_of(pid) == child}
            if child in living:
                os.killpg(child, signal.SIGTERM)
            else:
                send(self._told, signal.SIGTERM)  # Its number may name another group by now.
            self._note(self)
            return
        self._suspend_shells(savers)
        self._tell([one.pid for one in savers if not (one.looks and self.had_request) and one.pid > 0])

    @property
    def state(self) -> dict[str, Any]:
        """How far the stop has come, as values of JSON; times are of this boot's monotonic clock."""
        return {
            "began": self._began,
            "told": sorted(self._told),
            "asked": sorted(self._asked),
            "shells": self._shells,
            "suspended": self._suspended,
            "frozen": self._frozen,
            "followers": self._followers,
            "released": self._released,
            "there": sorted(self._there),
            "leave_until": self._leave_until,
            "has_told_all": self._has_told_all,
            "had_request": self.had_request,
            "asks_first": self.asks_first,
            "counted": self.counted,
        }

    def _resume(self, before: Mapping[str, Any]) -> None:
        """Go on with a stop that another keeper began: what it had noted is done once more."""
        self._began, self._told = before["began"], set(before["told"])
        self._asked = set(before.get("asked", ()))
        self._shells, self._suspended = list(before["shells"]), list(before["suspended"])
        self._followers = list(before.get("followers", ()))
        self._frozen = list(before.get("frozen", ()))
        self._released, self._there = list(before.get("released", ())), set(before.get("there", ()))
        self._leave_until, self._has_told_all = before["leave_until"], before["has_told_all"]
        self.had_request = make_request(self._unit)
        self.asks_first, self.counted = before["asks_first"], before["counted"]
        family = set(self._family())
        if not self.asks_first:
            self._tell([pid for pid in family if _group_of(pid) == self._child])
        elif self._shells and self.savers():
            send([pid for pid in self._suspended if pid in family], signal.SIGSTOP)
            self._group.freeze(pid for pid in self._frozen if pid in family)
            waiting = [one for one in self.savers() if not ((one.looks and self.had_request) or one.is_idle)]
            self._tell([one.pid for one in waiting if one.pid > 0])

    def __str__(self) -> str:
        """Say which way the stop goes."""
        if not self.asks_first:
            return (
                "a stop: SIGTERM to all processes of the command, because none of them is in a loop of "
                "boa_daemon.job"
            )
        who = "the process that uses" if self.counted == 1 else f"the {self.counted} processes that use"
        return f"a stop: {who} boa_daemon.job can save; the others get SIGTERM afterwards"

    def savers(self) -> list[Registered]:
        """Return the living processes that are to save: registered, and sure to learn of the request.

        Those that are idle are among them only if no other one was asked.
        """
        family = set(self._family())
        with self._unit.as_user():
            found = registered(register_file(self._unit))
        # The processes of a container may descend from a service of the node; they end with `child`.
        apart = bool(self._unit.image) and self._child in family
        idle = [one for one in found if one.is_idle and one.pid in family]
        asked = [
            one
            for one in found
            if one not in idle
            and ((one.looks or catches_sigterm(one.pid)) if one.pid in family else apart and one.looks)
        ]
        self._idle = [one.pid for one in idle]
        self._asked = self._asked.union(one.pid for one in asked).difference(self._idle)
        return asked if self._asked else idle

    def go_on(self) -> str:
        """Take the next step of the stop, if it is time for it; never waits. Return a line for the log."""
        now = time.monotonic()
        if self.asks_first:
            savers = self.savers()
            if savers:
                self._wake(savers)
                # One that began its first step after the order has a shell that was not looked for.
                if any(one.pid not in self._sought for one in savers):
                    self._suspend_shells(savers)
                if all(one.leaves for one in savers):
                    self._let_leave()
                elif said := self._look_at_work(savers):
                    return said
                last = min(LAST_SIGNAL_SECONDS, self._unit.grace_seconds / 10.0)
                if now >= self._began + self._unit.grace_seconds - last:
                    self._tell([one.pid for one in savers if catches_sigterm(one.pid)])
                return ""
            self._release_shells()
        elif self._child in self._family():
            return ""
        if self._leave_until is None:
            self._leave_until = now + LEAVE_SECONDS
        elif now >= self._leave_until and not self._has_told_all:
            # Once: what a shell starts in its trap has the rest of the grace.
            self._told.difference_update(self._idle)  # Its first SIGTERM only asked what it has to save.
            self._tell([pid for pid in self._family() if pid not in self._of_traps()])
            self._has_told_all = True
            self._note(self)
            if self.asks_first and self._idle:
                count = len(self._idle)
                who = "a process" if count == 1 else f"{count} processes"
                return (
                    f"a stop: {who} that used boa_daemon.job without a step had nothing to save, and got "
                    "SIGTERM after those that had"
                )
        return ""

    def _of_traps(self) -> set[int]:
        """Return what released shells have started since: the programs of their traps."""
        return {below for shell in self._released for below in descendants(shell)} - self._there

    def _let_leave(self) -> None:
        """Let processes end that wait for it, once no shell can see it."""
        if not self._lets_leave:
            self._suspend_other_shells()
            self._lets_leave = _make(self._unit, leave_file(self._unit))

    def _look_at_work(self, savers: list[Registered]) -> str:
        """End what has saved and then does nothing; return a line for the log, once about each.

        What works on has the rest of the grace: an upload of what was saved must not be cut short.
        """
        if not all(one.has_saved or one.is_idle for one in savers):
            self._occupation = None
            return ""
        family, now = set(self._family()), time.monotonic()
        if self._lets_leave or any(one.pid not in family for one in savers):
            return ""  # Told already; or in a container that is no process of ours.
        self._occupation = self._occupation or Occupation()
        self._occupation.look([one.pid for one in savers], family)
        if now - self._occupation.silent_since >= SILENT_SECONDS:
            self._let_leave()
            self._told.difference_update(one.pid for one in savers)
            self._tell([one.pid for one in savers])
            return (
                f"a stop: all is saved, and what goes on has done nothing for {SILENT_SECONDS:g} s: it gets "
                "SIGTERM. A script should end when job.should_stop() says so"
            )
        if self._says_who_lives and now - self._occupation.began >= SILENT_SECONDS:
            self._says_who_lives = False
            return (
                "a stop: all is saved, but the script goes on with something else, and has the rest of its "
                f"{self._unit.grace_seconds:g} s. It should end when job.should_stop() says so; a smaller "
                "stop_grace_seconds ends it sooner"
            )
        return ""

    def _tell(self, pids: list[int]) -> None:
        """Send SIGTERM to processes of the family that have not got it yet."""
        family = set(self._family())
        fresh = [pid for pid in pids if pid not in self._told and pid in family]
        send(fresh, signal.SIGTERM)
        self._told.update(fresh)
        if fresh:
            self._note(self)

    def _wake(self, savers: list[Registered]) -> None:
        """Let registered processes go on that somebody else has suspended, and what they have started.

        It may have been a shell that we have suspended in between (`kill -STOP`, a pause, `kill -CONT`).
        """
        ours = {*self._suspended, *self._frozen, *self._followers}
        found = {below for one in savers for below in (one.pid, *descendants(one.pid))}
        # The lock of a container's process may be held by another's: only the family gets signals.
        found &= set(self._family())
        send([pid for pid in found - ours if is_suspended(pid)], signal.SIGCONT)

    def _suspend_shells(self, savers: list[Registered]) -> None:
        """Suspend the shells that wait for registered processes, after they are noted.

        One may have become a training since it was looked at (`first & exec second`): it must save, too.
        """
        self._sought |= {one.pid for one in savers}
        before = set(self._shells)
        awake = before.intersection(one.pid for one in savers)
        suspended, frozen = (awake.intersection(each) for each in (self._suspended, self._frozen))
        for each in (self._shells, self._suspended, self._frozen):
            each[:] = [pid for pid in each if pid not in awake]
        self._find_shells(savers)
        if before != set(self._shells):
            self._note(self)
            send(suspended, signal.SIGCONT)
            self._group.release(frozen)
            self._hold_shells()

    def _find_shells(self, savers: list[Registered]) -> None:
        """Find the shells that wait for a registered process; they are suspended.

        Otherwise `python train.py && upload` would upload what is not finished. A shell below a program that
        would be suspended with it, and that passes the output of a terminal on, is frozen, or runs on where
        nothing can be frozen.
        """
        saving = {one.pid for one in savers}
        for one in savers:
            may_be_suspended = True
            for above in self._line_above(one.pid):
                program = _program(above)
                is_shell = only_waits(program)
                if program in _FOLLOWERS:
                    may_be_suspended &= not _passes_terminal_on(above)
                    self._followers += [above] if above not in self._followers else []
                if is_shell and above not in self._shells and above not in saving:
                    self._shells.append(above)
                    (self._suspended if may_be_suspended else self._frozen).append(above)

    def _suspend_other_shells(self) -> None:
        """Suspend the shells that none of the registered processes descends from, after they are noted.

        So are programs that run commands one after another: only now, since these may pass output on. A
        shell that reads from a pipe runs on: a process may wait until what it writes has been read.
        """
        saving, output = {one.pid for one in self.savers()}, self._unit.folder / OUTPUT
        for pid in self._family():
            is_new = pid not in self._shells and pid not in saving
            is_shell = only_waits(_program(pid)) and not _reads_pipe(pid, output)
            if is_new and (is_shell or _runs_commands(pid)):
                self._shells.append(pid)
                is_served = any(map(_passes_terminal_on, self._line_above(pid)))
                (self._frozen if is_served else self._suspended).append(pid)
        self._note(self)
        self._hold_shells()

    def _hold_shells(self) -> None:
        send(self._suspended, signal.SIGSTOP)
        if self._frozen:
            self._group.freeze(self._frozen)

    def _line_above(self, pid: int) -> list[int]:
        """Return the processes of the family that a process descends from, its parent last."""
        family, line = set(self._family()), list[int]()
        above = parent_of(pid)
        while above in family and above is not None:
            line.insert(0, above)
            above = parent_of(above)
        return line

    def _release_shells(self) -> None:
        """End the shells that wait for registered processes: SIGTERM is pending when they go on."""
        if self._shells:
            # The kernel keeps SIGTERM from a namespace's first process without a handler, and then nothing in
            # there can hold the shell back.
            send(filter(_is_deaf, self._shells), signal.SIGKILL)
            until, ends = time.monotonic() + TEXT_SECONDS, dict[int, tuple[signal.Signals, ...]]()
            with self._unit.as_user():
                for pid in self._shells:
                    is_time = time.monotonic() < until
                    ends[pid] = _signals_to_end(pid) if is_time else (signal.SIGTERM,)
            self._tell([pid for pid in self._shells if signal.SIGTERM in ends[pid]])
            self._told.update(self._shells)
            family = set(self._family())
            for pid in family.intersection(self._shells):
                others = [number for number in ends[pid] if number != signal.SIGTERM]
                for number in others:
                    # One that ignores it, too, would go on.
                    send([pid], signal.SIGKILL if ignores(pid, number) else number)
            self._released, self._there = list(self._shells), family
            send([pid for pid in (*self._suspended, *self._followers) if pid in family], signal.SIGCONT)
            self._group.thaw()
            self._shells = []
            self._note(self)


@dataclass(frozen=True)
class Loss:
    """What an ordered stop has lost: the steps after `begin`, and why, with what to change."""

    steps: int
    begin: int
    why: str

    def __str__(self) -> str:
        what = f"{self.steps} step{'' if self.steps == 1 else 's'}"
        return f"the stop lost {what}, all after step {self.begin}: {self.why}"


def loss_of(
    stop: OrderedStop,
    reported: Mapping[str, Any],
    saved: Mapping[str, Any],
    unit: Unit,
    *,
    is_late: bool,
    said: str = "",
) -> Loss | None:
    """Return what a stop has lost; None if no loss is known.

    `reported` and `saved` are the unit's newest report and manifest, which the job has written; `said` is the
    exception that ended the command during the stop, empty for none. The stop `is_late` if its grace ended
    before the processes that had to save.
    """
    step, begin = reported.get("step"), saved.get("step", 0)
    if not (isinstance(step, int) and isinstance(begin, int) and step > begin):
        return None
    if reported.get("generation") != unit.generation:
        return None
    if is_late:
        gap, save = (_number(reported.get(name)) for name in ("gap_seconds", "save_seconds"))
        took = f"up to {gap:.0f} s passed between two steps" if gap else "it had made one step"
        took += f", and a save took {save:.0f} s" if save else ""
        why = f"no save was complete within its grace of {unit.grace_seconds:g} s ({took}); if it only needs "
        why += "longer, raise stop_grace_seconds"
    elif stop.asks_first and said:
        why = f"the process that was asked to save ended with {said}; {_advice(said, unit)}"
    elif stop.asks_first:
        why = "the process that was asked to save ended without a checkpoint; its log may say why"
    else:
        why = (
            "its processes got SIGTERM and ended without a checkpoint; loop over job.steps(), or save when "
            "job.should_checkpoint() says so"
        )
    return Loss(step - begin, begin, why)


def _advice(said: str, unit: Unit) -> str:
    """Return what to change so that a save succeeds that ended with an exception."""
    texts = {code: os.strerror(code) for code in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES)}
    if any(texts[code] in said for code in (errno.ENOSPC, errno.EDQUOT)):
        return f"make room for two checkpoints in {unit.checkpoint_dir}"
    if any(text in said for text in texts.values()):
        return f"let the job write to {unit.checkpoint_dir}"
    return "mend what failed, and save with every=, so that a failed save costs less"


def _number(value: Any) -> float:
    """Return a number of seconds from a job's report, 0 for anything else."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and 0.0 <= value < 1e9 else 0.0


def catches_sigterm(pid: int) -> bool:
    """Return whether a process has a handler for SIGTERM."""
    return catches(pid, signal.SIGTERM)


def _reads_pipe(pid: int, output: Path) -> bool:
    """Return whether a process may read from a pipe other than the command's output, or that is not known."""
    here = PROC / str(pid)
    try:
        for file in (here / "fd").iterdir():
            if stat.S_ISFIFO(file.stat().st_mode) and not (output.exists() and file.samefile(output)):
                words = (here / "fdinfo" / file.name).read_text().split()
                if int(words[words.index("flags:") + 1], 8) & os.O_ACCMODE != os.O_WRONLY:
                    return True
    except (OSError, ValueError):
        return True
    return False


def _is_deaf(pid: int) -> bool:
    """Return whether a process is the first of a namespace of its own, and has no handler for SIGTERM."""
    with suppress(OSError):
        for line in (PROC / str(pid) / "status").read_text().splitlines():
            if line.startswith("NSpid:"):
                _, *numbers = line.split()
                return len(numbers) > 1 and numbers[-1] == "1" and not catches_sigterm(pid)
    return False


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def only_waits(program: str) -> bool:
    """Return whether a program is one of `_WAITERS`; its name may have a version (`zsh-5.9`, `ksh93`)."""
    return bool(_WAITERS.fullmatch(re.sub(r"(?:[-.]?\d[\d.]*|-static)+$", "", program)))


def _runs_commands(pid: int) -> bool:
    """Return whether a process is one of `_RUNNERS`, by its first words."""
    try:
        words = (PROC / str(pid) / "cmdline").read_bytes().split(b"\0")[:4]
    except OSError:
        return False
    return any(_RUNNERS.fullmatch(os.path.basename(os.fsdecode(word.partition(b" ")[0]))) for word in words)


def _signals_to_end(pid: int) -> tuple[signal.Signals, ...]:
    """Return the signals by which a suspended process ends."""
    program = _program(pid)
    return signals_to_end(pid, program) if only_waits(program) else (signal.SIGTERM,)


def _passes_terminal_on(pid: int) -> bool:
    """Return whether a process would be suspended with its child, and passes the output of a terminal on."""
    return _program(pid) in _FOLLOWERS and _serves_terminal(pid)


def _serves_terminal(pid: int) -> bool:
    """Return whether a process has made a terminal, whose output it passes on; also if that is not known."""
    try:
        return any(os.readlink(file).endswith("/ptmx") for file in (PROC / str(pid) / "fd").iterdir())
    except OSError:
        return True


def _program(pid: int) -> str:
    """Return the file name of the program that a process runs; for a script, that of its interpreter."""
    try:
        return os.path.basename(os.readlink(PROC / str(pid) / "exe").removesuffix(" (deleted)"))
    except OSError:
        return ""
