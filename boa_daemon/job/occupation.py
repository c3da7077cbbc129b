"""Whether processes still do something: what of a command that has saved would be cut short by its end.

A process that has saved may upload, evaluate or clear up for as long as its grace lasts. It may also sleep in
a loop, serve nobody, or wait for a thread that will never end, while its GPUs stand idle. What can be seen
from outside tells these apart: processor time, bytes read and written, waiting for a disk, a process that was
started meanwhile, and a connection to anything but the command itself. A connection counts however quiet
it is, because an upload may wait long for its answer. Standard library only.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from contextlib import suppress

from boa_daemon.job.processes import PROC, descendants, started_ticks, stat_fields

LEAST_SECONDS = 1.0
"""Time between two looks."""
CORES, BYTES_PER_SECOND = 0.03, 16_000.0
"""What a process uses at least that works; a loop that looks every 10 ms whether there is work uses less."""
MOST_PROCESSES, MOST_FILES = 1000, 2000
"""Whatever has more processes, or one with more open files, counts as at work: to look at them takes long."""
_TABLES = ("tcp", "tcp6", "udp", "udp6")
_NO_CONNECTION = ("06", "07", "08", "0A", "0B")
"""States of sockets that nobody is at the other end of: listening, or closed by the other end."""
_MAPPED = "0000000000000000FFFF0000"
"""How an IPv4 address in a table of IPv6 begins."""


class Occupation:
    """Looks at processes and what they have started, again and again."""

    def __init__(self) -> None:
        self._known: dict[int, int] = {}
        self._used: dict[int, tuple[int, int]] = {}
        self._looked_at: float | None = None
        self.began = self.silent_since = time.monotonic()
        """When this began, and when something was last seen to work; of the monotonic clock."""

    def look(self, pids: Collection[int], family: Collection[int]) -> None:
        """Look once more at `pids`, unless that was a moment ago; `family` is the whole command."""
        now = time.monotonic()
        if self._looked_at is not None and now < self._looked_at + LEAST_SECONDS:
            return
        line = {below for pid in pids for below in (pid, *descendants(pid))}
        if len(line) > MOST_PROCESSES or len(family) > MOST_PROCESSES:
            self.silent_since = now
            return
        seconds = None if self._looked_at is None else now - self._looked_at
        found = {pid: ticks for pid in line if (ticks := started_ticks(pid)) is not None}
        if seconds is None:
            self._known = found
        used = {pid: amount for pid in found if (amount := _used_by(pid)) is not None}
        # All are looked at, whatever is found first: the next look compares.
        is_at_work = [
            any(self._known.get(pid) != ticks for pid, ticks in found.items()),
            seconds is None or any(self._works(pid, used, seconds) for pid in found),
            _is_connected(line, {*family, *line}),
        ]
        self._used, self._looked_at = used, now
        if any(is_at_work):
            self.silent_since = now

    def _works(self, pid: int, used: dict[int, tuple[int, int]], seconds: float) -> bool:
        if pid not in used or pid not in self._used or _waits_for_disk(pid):
            return True
        ticks, moved = (after - before for after, before in zip(used[pid], self._used[pid]))
        cores = ticks / os.sysconf("SC_CLK_TCK") / seconds
        return cores >= CORES or moved / seconds >= BYTES_PER_SECOND


def _used_by(pid: int) -> tuple[int, int] | None:
    """Return the clock ticks and the bytes that a process has used; 0 bytes if that is not told."""
    try:
        fields = stat_fields(PROC / str(pid))
    except OSError:
        return None
    moved = 0
    with suppress(OSError, ValueError):
        rows = dict(row.split(": ") for row in (PROC / str(pid) / "io").read_text().splitlines())
        moved = int(rows["rchar"]) + int(rows["wchar"])
    return int(fields[11]) + int(fields[12]), moved


def _waits_for_disk(pid: int) -> bool:
    for thread in (PROC / str(pid) / "task").glob("*"):
        with suppress(OSError):
            if stat_fields(thread)[0] == "D":
                return True
    return False


def _is_connected(pids: Collection[int], family: Collection[int]) -> bool:
    """Return whether one of `pids` is connected to what is not of the family; also if that is not known."""
    ours = {pid: found for pid in family if (found := _sockets_of(pid)) is not None}
    if any(pid not in ours and started_ticks(pid) is not None for pid in pids):
        return True
    mine = set().union(*(ours[pid] for pid in pids if pid in ours))
    known = set().union(*ours.values())
    # Most see the same network.
    networks = {_network_of(pid): pid for pid in pids} if mine else {}
    rows = {row for pid in networks.values() for row in _connections(pid)}
    ends = {here for here, _, inode in rows if inode in known}
    return any(inode in mine and there not in ends for _, there, inode in rows)


def _sockets_of(pid: int) -> set[str] | None:
    """Return the inodes of the sockets that a process has open; None if they cannot be read, or are many."""
    found: set[str] = set()
    try:
        for at, file in enumerate((PROC / str(pid) / "fd").iterdir()):
            if at >= MOST_FILES:
                return None
            with suppress(FileNotFoundError):
                target = os.readlink(file)
                if target.startswith("socket:["):
                    found.add(target[8:-1])
    except OSError:
        return None
    return found


def _network_of(pid: int) -> str:
    try:
        return os.readlink(PROC / str(pid) / "ns" / "net")
    except OSError:
        return ""


def _connections(pid: int) -> list[tuple[str, str, str]]:
    """Return both ends and the inode of each connection in the network that a process sees."""
    found = []
    for table in _TABLES:
        with suppress(OSError):
            for line in (PROC / str(pid) / "net" / table).read_text().splitlines()[1:]:
                _, here, there, state, *rest = line.split()
                if state not in _NO_CONNECTION:
                    found.append((here.removeprefix(_MAPPED), there.removeprefix(_MAPPED), rest[5]))
    return found
