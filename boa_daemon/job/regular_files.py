"""Safe reading of files and folders that a job may have made as it likes.  Standard library only.

Opening a pipe blocks until somebody writes, and a device has no end. A file with holes may have more bytes
than any disk, and folders may be deeper than Python's stack. The daemon reads files of jobs within its tick,
and the keeper between two heartbeats, so neither may block or fail.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

UNREADABLE = frozenset(
    (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.EAGAIN, errno.ESTALE, errno.ENOBUFS)
)
"""Errors that say nothing about a file, only that it cannot be read now."""
MOST_BYTES = 64 * 2**20
"""Size limit of documents; the longest are manifests, which list each file of a checkpoint of many ranks."""


def open_regular(file: str | Path) -> BinaryIO:
    """Open a regular file for reading, without blocking.

    Raises:
        OSError: when it cannot be opened, or is a pipe, a device, a socket or a folder.
    """
    stream = open(file, "rb", opener=_open_at_once)  # noqa: SIM115  the caller's
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise OSError(errno.EINVAL, "is not a regular file", str(file))
    return stream


def device_and_inode(path: str | Path) -> tuple[int, int] | None:
    """Return what tells a file or folder from another one at its path; None if it cannot be asked for."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


class KeptOpen:
    """A file of ours that stays open in a process that is not ours alone.

    A training script may close all descriptors, as programs do that become daemons, and open files of its own
    under their numbers. So the descriptor is looked at before each use, and the file opened again.
    """

    def __init__(self, path: str, flags: int, mode: int = 0o644) -> None:
        self._path, self._mode = path, mode
        self._flags = flags | os.O_CREAT | os.O_CLOEXEC
        self._descriptor = -1
        self._identity = (-1, -1)

    def descriptor(self) -> int:
        """Return a descriptor of the file.

        Raises:
            OSError: when it cannot be opened.
        """
        try:
            found = os.fstat(self._descriptor)
        except OSError:
            return self._open()
        return self._descriptor if (found.st_dev, found.st_ino) == self._identity else self._open()

    def _open(self) -> int:
        self._descriptor = os.open(self._path, self._flags, self._mode)
        found = os.fstat(self._descriptor)
        self._identity = (found.st_dev, found.st_ino)
        return self._descriptor


def _open_at_once(file: str, flags: int) -> int:
    return os.open(file, flags | os.O_NONBLOCK | os.O_NOCTTY)


def read_regular(file: str | Path, *, most_bytes: int = MOST_BYTES) -> bytes:
    """Return the content of a regular file.

    Raises:
        OSError: when it cannot be read, is no regular file, or holds more than `most_bytes`.
    """
    with open_regular(file) as stream:
        content = stream.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"holds more than {most_bytes:,} bytes", str(file))
    return content


def files_below(folder: Path) -> Iterator[Path]:
    """Yield what is below a folder and is no folder; links are not followed, and unreadable folders left out.

    `os.walk` and `rglob` descend by recursion, which deep folders bring to its limit.
    """
    waiting = [str(folder)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)
            else:
                yield Path(entry.path)


def fits_its_disk(size: int, place: Path) -> bool:
    """Return whether the disk of a file or folder could hold `size` bytes; more can only be holes.

    Raises:
        OSError: when `place` cannot be reached.
    """
    found = os.statvfs(place)
    return size <= found.f_blocks * found.f_frsize
