"""A log of limited size, in segments that are named by the offset of their first byte; the oldest go first.

Offsets count all bytes ever printed, so a reader's position stays valid when segments are removed.
"""

from __future__ import annotations

import ctypes
import os
import select
import threading
import time
from contextlib import suppress
from fnmatch import fnmatch
from io import FileIO
from pathlib import Path

from boa_daemon.job.regular_files import files_below

SEGMENTS = 4
"""Number of segments in the size limit; one more may exist at a time."""
NEWEST_BYTES = 64 * 1024
BLOCK_BYTES = 1 << 16
"""At most so much is moved from a command's pipe at once."""
_NONBLOCK = 2
"""`SPLICE_F_NONBLOCK`."""


class LogWriter:
    """Appends to the newest segment, and removes the oldest."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self._folder, self._segment_bytes = folder, max(limit_bytes // SEGMENTS, 1024)
        segments = _segments(folder)
        self._offset = _end(segments)
        self._file: FileIO | None = None
        self._begins = self._offset
        self._is_at_line_start = _ends_a_line(segments)
        self._lock = threading.Lock()

    def write(self, block: bytes) -> None:
        """Append a block; on a full disk the block is dropped, so that the job never waits."""
        with self._lock:
            self._append(block)

    def take(self, pipe: int) -> bool:
        """Append what is in a pipe, waiting for it; return whether more may come.

        The kernel moves the bytes from the pipe into the file. A keeper that is killed has thus written each
        byte or left it to the next one. Before Python 3.10, where a file system cannot do that, and on a full
        disk, they are read and written.
        """
        waiting = select.poll()  # `select` refuses descriptors from 1,024 on.
        waiting.register(pipe, select.POLLIN)
        waiting.poll()
        with self._lock:
            try:
                moved = self._move(pipe)
            except BlockingIOError:
                return True  # Somebody else has taken it.
            except (OSError, AttributeError):
                pass
            else:
                return moved > 0
            block = os.read(pipe, BLOCK_BYTES)
            self._append(block)
            return bool(block)

    def _move(self, pipe: int) -> int:
        """Move what is in a pipe to the end of the newest segment; return how many bytes that were.

        Raises:
            OSError: when the kernel cannot do that with this file, or cannot do it now.
            AttributeError: when Python cannot.
        """
        file = self._newest()
        moved = os.splice(pipe, file.fileno(), BLOCK_BYTES, flags=_NONBLOCK)  # novermin: AttributeError below
        self._offset += moved
        if moved:
            self._is_at_line_start = os.pread(file.fileno(), 1, file.tell() - 1) == b"\n"
        return moved

    def write_line(self, line: str) -> None:
        """Append a line of the keeper, between the lines of the command; any thread may call this.

        Names of files in it may be no text: what cannot be encoded is written as `?`.
        """
        with self._lock:
            self._append(f"{'' if self._is_at_line_start else chr(10)}{line}\n".encode(errors="replace"))

    def _append(self, block: bytes) -> None:
        with suppress(OSError):
            self._newest().write(block)
            self._offset += len(block)
            self._is_at_line_start = block.endswith(b"\n") if block else self._is_at_line_start

    def close(self) -> None:
        """Close the newest segment."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _newest(self) -> FileIO:
        """Return the newest segment, at its end; it is a new one if the last is full."""
        if self._file is None or self._offset - self._begins >= self._segment_bytes:
            self._turn()
        assert self._file is not None
        self._file.seek(0, os.SEEK_END)
        return self._file

    def _turn(self) -> None:
        self.close()
        self._begins = self._offset
        # Not for appending only: the kernel moves nothing from a pipe into such a file.
        segment = self._folder / f"out-{self._begins:015d}.log"
        self._file = FileIO(os.open(segment, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644), "r+")
        for old in _segments(self._folder)[: -SEGMENTS - 1]:
            old.unlink(missing_ok=True)


def read_log(folder: Path, since: int, limit_bytes: int = 1 << 20) -> tuple[bytes, int, int]:
    """Return (at most `limit_bytes` from offset `since` on, the next offset, how many bytes are gone)."""
    for _ in range(3):
        segments = _segments(folder)
        if not segments:
            return b"", since, 0
        first = _begin(segments[0])
        at = max(since, first)
        try:
            found = b"".join(_read(segment, at, limit_bytes) for segment in segments)[:limit_bytes]
        except FileNotFoundError:
            continue  # The oldest segment was removed meanwhile.
        return found, at + len(found), max(0, first - since)
    return b"", since, 0


def last_lines(folder: Path, count: int = 20) -> tuple[str, ...]:
    """Return the last lines, each cut to 500 characters."""
    end = _end(_segments(folder))
    block, _, _ = read_log(folder, max(0, end - NEWEST_BYTES), NEWEST_BYTES)
    return tuple(line[:500] for line in block.decode(errors="replace").splitlines()[-count:])


def quiet_seconds(folder: Path) -> float | None:
    """Return the seconds since the last output, or since the start of the command; None before the start."""
    segments = _segments(folder)
    try:
        return max(time.time() - segments[-1].stat().st_mtime, 0.0) if segments else None
    except FileNotFoundError:
        return 0.0  # Newer segments have replaced it just now.


def _read(segment: Path, at: int, limit_bytes: int) -> bytes:
    """Return a segment's bytes from an offset of the whole log on."""
    skip = max(0, at - _begin(segment))
    with segment.open("rb") as file:
        file.seek(skip)
        return file.read(limit_bytes)


def _segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("out-*.log"))


def _begin(segment: Path) -> int:
    return int(segment.stem.partition("-")[2])


def _ends_a_line(segments: list[Path]) -> bool:
    """Return whether the next byte begins a line; a killed keeper may have been in the middle of one."""
    with suppress(OSError):
        for segment in reversed(segments):
            with segment.open("rb") as file:
                if file.seek(0, os.SEEK_END):
                    file.seek(-1, os.SEEK_END)
                    return file.read() == b"\n"
    return True


def _end(segments: list[Path]) -> int:
    """Return the offset after the newest byte."""
    try:
        return _begin(segments[-1]) + segments[-1].stat().st_size if segments else 0
    except FileNotFoundError:
        return _begin(segments[-1])


RANK_FILES = "ranks"
"""Folder in a unit's folder where torchrun writes each rank's output before copying it to the node's log."""
RANK_MARK = "[rank ${rank}] "
"""Prefix of a rank's lines in the log of its node, in torchrun's notation."""
_PUNCH_A_HOLE = 0x01 | 0x02


def trim_rank_files(folder: Path, limit_bytes: int) -> None:
    """Free the disk space of the old parts of the ranks' files, without changing their sizes (hole punching).

    Their writers do not notice. The old parts are in the node's log already; torchrun copies only new output.
    """
    files = [
        file
        for file in files_below(folder / RANK_FILES)
        if fnmatch(file.name, "std*.log") and file.is_file() and not file.is_symlink()
    ]
    keep = max(limit_bytes // (len(files) + 1), 1 << 20)
    libc = ctypes.CDLL(None, use_errno=True)
    for file in files:
        try:
            size, held = file.stat().st_size, file.stat().st_blocks * 512
            if held > keep + (1 << 20):
                handle = os.open(file, os.O_RDWR)
                libc.fallocate(handle, _PUNCH_A_HOLE, ctypes.c_long(0), ctypes.c_long(size - keep))
                os.close(handle)
        except OSError:
            continue
