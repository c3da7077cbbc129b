"""What an ended unit may leave on its node: shared memory, semaphores and temporary folders that nobody uses.

Shared memory outlives the processes that made it. On a rented node it is memory that the next job lacks,
and a name that the next job cannot take. The kernel does not say who made a file in /dev/shm. So a file is
removed only if it belongs to the unit's user, came after the unit's start and is open in no process. Nothing
is removed while another unit of the same user runs on this node: it may keep files there.
Standard library only.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

SHARED_MEMORY = Path("/dev/shm")
PROC = Path("/proc")
TEMPORARY = re.compile(r"pymp-.*|tmp[a-z0-9_]{8}|torchelastic_.*|torch_shm_.*|wandb-.*|\.?ray_tmp.*")
"""Names that programs give to the folders and files that they mean to remove themselves."""
_IPC_RMID = 0
_SPARE_SECONDS = 1.0
"""System V times are whole seconds."""


def remove_leavings(
    uid: int,
    unit: str,
    *,
    since: float,
    shared: Path = SHARED_MEMORY,
    temporary: Path | None = None,
    proc: Path = PROC,
) -> list[str]:
    """Remove what an ended unit left in memory and among temporary files; return what was removed.

    Args:
        uid: the unit's user; what belongs to others stays.
        unit: the unit's name, which its processes have as `BOA_UNIT`.
        since: when the unit started, in seconds since the Unix epoch.
        shared: where shared memory has its names.
        temporary: the folder of temporary files; by default this process's.
        proc: the processes of this machine.
    """
    if _has_other_unit(proc, uid, unit):
        return []
    temporary = Path(tempfile.gettempdir()) if temporary is None else temporary
    left = [file for file in _below(shared) if _is_left(file, uid, since)]
    left += [
        path for path in _entries(temporary) if TEMPORARY.fullmatch(path.name) and _is_left(path, uid, since)
    ]
    used = _used(proc) if left else set()
    removed = [str(path) for path in left if not _is_used(path, used) and _removed(path)]
    return removed + _remove_system_v(uid, since, proc)


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


def _below(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder; links are not followed."""
    for top, _, names in os.walk(folder):
        yield from (Path(top) / name for name in names)


def _is_left(path: Path, uid: int, since: float) -> bool:
    """Return whether a file or folder belongs to the user and came after `since`."""
    with suppress(OSError):
        state = path.lstat()
        return state.st_uid == uid and state.st_ctime >= since
    return False


def _is_used(path: Path, used: set[tuple[int, int]]) -> bool:
    """Return whether a process has a file, or one in a folder, open or mapped; also if that is not known."""
    with suppress(OSError):
        paths = [path, *_below(path)] if path.is_dir() and not path.is_symlink() else [path]
        return any((state.st_dev, state.st_ino) in used for state in (one.lstat() for one in paths))
    return True


def _removed(path: Path) -> bool:
    """Remove a file or a folder; return whether it is gone."""
    with suppress(OSError):
        if stat.S_ISDIR(path.lstat().st_mode):
            shutil.rmtree(path)
        else:
            path.unlink()
        return True
    return False


def _used(proc: Path) -> set[tuple[int, int]]:
    """Return device and inode of each file that a process has open, mapped, or as its folder."""
    found = set()
    for process in _processes(proc):
        for entry in [process / "cwd", *_entries(process / "fd")]:
            with suppress(OSError):
                state = entry.stat()
                found.add((state.st_dev, state.st_ino))
        with suppress(OSError, ValueError):
            for line in (process / "maps").read_text(errors="replace").splitlines():
                _, _, _, device, inode, *_ = line.split(None, 5)
                major, minor = device.split(":")
                found.add((os.makedev(int(major, 16), int(minor, 16)), int(inode)))
    return found


def _remove_system_v(uid: int, since: float, proc: Path) -> list[str]:
    """Remove a user's System V segments to which nobody is attached, semaphores and queues."""
    libc: Any = ctypes.CDLL(None, use_errno=True)
    calls: dict[str, Callable[[int], int]] = {
        "shm": lambda number: libc.shmctl(number, _IPC_RMID, None),
        "sem": lambda number: libc.semctl(number, 0, _IPC_RMID, None),
        "msg": lambda number: libc.msgctl(number, _IPC_RMID, None),
    }
    removed = []
    for kind, call in calls.items():
        for row in _rows(proc / "sysvipc" / kind):
            is_unused = not row.get("nattch") and row["ctime"] >= since - _SPARE_SECONDS
            if row["cuid"] == uid and is_unused and call(row[f"{kind}id" if kind != "msg" else "msqid"]) == 0:
                removed.append(f"System V {kind}")
    return removed


def _rows(file: Path) -> list[dict[str, int]]:
    """Return the rows of a table of /proc/sysvipc; none if the kernel has no such table."""
    with suppress(OSError, ValueError):
        header, *lines = file.read_text().splitlines()
        names = header.split()
        return [dict(zip(names, map(int, line.split()), strict=False)) for line in lines]
    return []
