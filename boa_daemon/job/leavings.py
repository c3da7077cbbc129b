"""What an ended unit may leave on its node: temporary files, shared memory and semaphores that nobody uses.

Temporary files: a unit has a folder of its own for them (`TMPDIR`), so all that is in there is the unit's.

Shared memory outlives the processes that made it. On a rented node it is memory that the next job lacks,
and a name that the next job cannot take. The kernel does not say who made a file in /dev/shm. So a file is
removed only if it belongs to the unit's user, came after the unit's start and is open in no process. On a
machine where the user may also run programs apart from BOA, it must also look like what `shm_open` makes: a
file that only its owner may read. A copy that a person makes there usually has other rights. Nothing is
removed while another unit of the same user runs on this node: it may keep files there. Standard library only.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from boa_daemon.job.regular_files import files_below

SHARED_MEMORY = Path("/dev/shm")
PROC = Path("/proc")
_IPC_RMID = 0
_GETPID = 11
"""`semctl`: the process that used a semaphore last, 0 for none."""
_SPARE_SECONDS = 1.0
"""System V times are whole seconds."""


def temporary_folder(folder: Path) -> Path:
    """Return the folder for temporary files of the unit in `folder`, the same after a restart.

    Its path is short: names of sockets in there may have 107 bytes.
    """
    return Path(tempfile.gettempdir()) / f"boa-{hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]}"


def make_temporary_folder(folder: Path, uid: int) -> Path | None:
    """Make the folder for temporary files of a unit; None if something of another user is in its place.

    Call it with the rights of the unit's user, `uid`.
    """
    path = temporary_folder(folder)
    with suppress(OSError):
        path.mkdir(0o700)
    with suppress(OSError):
        found = path.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == uid and not found.st_mode & 0o077:
            return path
    return None


def remove_trees(*folders: Path, **given: Any) -> None:
    """Remove folders with all that is in them, as the user that `given`, options of `Popen`, may name.

    `shutil.rmtree` descends by recursion, and a job may have left more folders within each other.
    """
    with suppress(OSError, ValueError):  # Also no user that the kernel knows.
        subprocess.run(
            ["rm", "-rf", "--", *map(str, folders)],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
            **given,
        )


def remove_leavings(
    uid: int,
    unit: str,
    *,
    since: float,
    is_shared: bool = False,
    shared: Path = SHARED_MEMORY,
    proc: Path = PROC,
) -> list[str]:
    """Remove what an ended unit left in memory; return what was removed.

    Args:
        uid: the unit's user; what belongs to others stays.
        unit: the unit's name, which its processes have as `BOA_UNIT`.
        since: when the unit started, in seconds since the Unix epoch.
        is_shared: whether the user may also run programs apart from BOA on this machine.
        shared: where shared memory has its names.
        proc: the processes of this machine.
    """
    if _has_other_unit(proc, uid, unit):
        return []
    left = [file for file in files_below(shared) if _is_left(file, uid, since)]
    if is_shared:
        left = [file for file in left if file.parent == shared and _is_of_shm_open(file)]
    used = _used(proc) if left else set()
    removed = [str(path) for path in left if not _is_used(path, used) and _removed(path)]
    return removed + _remove_system_v(uid, since, proc, is_shared=is_shared)


def _has_other_unit(proc: Path, uid: int, unit: str) -> bool:
    """Return whether a process of the user belongs to another unit."""
    for process in _processes(proc):
        with suppress(OSError):
            if process.stat().st_uid != uid:
                continue
            for variable in (process / "environ").read_bytes().split(b"\0"):
                name, _, value = variable.partition(b"=")
                if name == b"BOA_UNIT" and value != unit.encode():
                    return True
    return False


def _processes(proc: Path) -> Iterator[Path]:
    return (process for process in _entries(proc) if process.name.isdigit())


def _entries(folder: Path) -> list[Path]:
    with suppress(OSError):
        return list(folder.iterdir())
    return []


def _is_left(path: Path, uid: int, since: float) -> bool:
    """Return whether a file belongs to the user and came after `since`."""
    with suppress(OSError):
        state = path.lstat()
        return state.st_uid == uid and state.st_ctime >= since
    return False


def _is_of_shm_open(path: Path) -> bool:
    """Return whether a file is as programs make shared memory: regular, and only for its owner."""
    with suppress(OSError):
        found = path.lstat()
        return stat.S_ISREG(found.st_mode) and not found.st_mode & 0o077
    return False


def _is_used(path: Path, used: set[tuple[int, int]]) -> bool:
    """Return whether a process has a file open or mapped; also if that is not known."""
    with suppress(OSError):
        state = path.lstat()
        return (state.st_dev, state.st_ino) in used
    return True


def _removed(path: Path) -> bool:
    """Remove a file; return whether it is gone."""
    with suppress(OSError):
        path.unlink()
        return True
    return False


def _used(proc: Path) -> set[tuple[int, int]]:
    """Return device and inode of each file that a process has open or mapped."""
    found = set()
    for process in _processes(proc):
        for entry in _entries(process / "fd"):
            with suppress(OSError):
                state = entry.stat()
                found.add((state.st_dev, state.st_ino))
        with suppress(OSError, ValueError):
            for line in (process / "maps").read_text(errors="replace").splitlines():
                _, _, _, device, inode, *_ = line.split(None, 5)
                major, minor = device.split(":")
                found.add((os.makedev(int(major, 16), int(minor, 16)), int(inode)))
    return found


def _remove_system_v(uid: int, since: float, proc: Path, *, is_shared: bool) -> list[str]:
    """Remove a user's System V segments to which nobody is attached, semaphores and queues."""
    libc: Any = ctypes.CDLL(None, use_errno=True)
    calls: dict[str, Callable[[int], int]] = {
        "shm": lambda number: libc.shmctl(number, _IPC_RMID, None),
        "sem": lambda number: libc.semctl(number, 0, _IPC_RMID, None),
        "msg": lambda number: libc.msgctl(number, _IPC_RMID, None),
    }
    numbers = {"shm": "shmid", "sem": "semid", "msg": "msqid"}
    removed = []
    for kind, call in calls.items():
        for row in _rows(proc / "sysvipc" / kind):
            number = row[numbers[kind]]
            if row["cuid"] != uid or row.get("nattch") or row["ctime"] < since - _SPARE_SECONDS:
                continue
            users = [row.get(name, 0) for name in ("cpid", "lpid", "lspid", "lrpid")]
            users += [libc.semctl(number, 0, _GETPID)] if kind == "sem" else []
            if is_shared and any(pid > 0 and (proc / str(pid)).exists() for pid in users):
                continue
            if call(number) == 0:
                removed.append(f"System V {kind}")
    return removed


def _rows(file: Path) -> list[dict[str, int]]:
    """Return the rows of a table of /proc/sysvipc; none if the kernel has no such table."""
    with suppress(OSError, ValueError):
        header, *lines = file.read_text().splitlines()
        names = header.split()
        return [dict(zip(names, map(int, line.split()))) for line in lines]
    return []
