"""Write a file whole: a reader sees the old content or the new, also after a crash or on a full disk.

The one place that writes beside a file and renames. Standard library only, because jobs use it too.
"""

from __future__ import annotations

import os
import re
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def whole_file(path: str | Path, *, mode: int | None = None, durable: bool = True) -> Iterator[Path]:
    """Give the path of an empty file beside `path`, which takes its place if the block ends without error.

    A symbolic link keeps pointing where it
    points. The file keeps its permissions unless `mode` is given; a new file gets `mode`, else 0644 less the
    process's mask. `durable` flushes file and folder to the disk: without it the file is whole for readers,
    but a power cut may lose it.

    Raises:
        OSError: when the folder cannot be written or the disk is full; the old file is unchanged.
    """
    target = Path(os.path.realpath(path))
    aside = target.with_name(f".{target.name}.{os.getpid()}-{threading.get_ident()}")
    with suppress(FileNotFoundError):
        os.unlink(aside)  # What a killed process of this number left.
    if mode is None:
        mode = _mode_of(target)
    # The kernel takes the mask off the mode of a new file; one that is to be private never is readable.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    os.close(os.open(aside, flags, 0o644 if mode is None else 0o600))
    try:
        yield aside
        if mode is not None:
            os.chmod(aside, mode)
        if durable:
            flush(aside)
        os.replace(aside, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(aside)
        raise
    if durable:
        with suppress(OSError):  # Some file systems cannot flush a folder; the rename is done all the same.
            flush(target.parent)


def remove_torn(folder: Path, *, unless_of_last_seconds: float = 0.0) -> None:
    """Remove what processes that were killed had begun to write beside the files of a folder.

    Processes of another machine or container are not known to live: where one may write in the folder, name
    the time within which it would have gone on writing. A folder that cannot be read, and a file that cannot
    be removed, stay as they are.
    """
    threads = {thread.ident for thread in threading.enumerate()} - {threading.get_ident()}
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        found = _ASIDE.fullmatch(name)
        if found is None:
            continue
        pid, thread = int(found[1]), int(found[2])
        # In a container each daemon has the number of the one before.
        is_written = thread in threads if pid == os.getpid() else os.path.exists(f"/proc/{pid}")
        with suppress(OSError):
            is_fresh = time.time() - os.stat(folder / name).st_mtime < unless_of_last_seconds
            if not is_written and not is_fresh:
                os.unlink(folder / name)


_ASIDE = re.compile(r"\..+\.([0-9]+)-([0-9]+)(?:-journal|-wal|-shm)?")
"""Name of a file that `whole_file` gives, and of what SQLite puts beside it."""


def write_whole(
    path: str | Path, content: str | bytes, *, mode: int | None = None, durable: bool = True
) -> None:
    """Replace a file's content, as `whole_file` does; a device or a pipe is written to as it is.

    Raises:
        OSError: when the folder cannot be written or the disk is full; the old file is unchanged.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    if not _is_file_or_new(path):
        Path(path).write_bytes(data)  # Such as /dev/stdout, which must not become a file.
        return
    with whole_file(path, mode=mode, durable=durable) as aside:
        aside.write_bytes(data)


def _is_file_or_new(path: str | Path) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except FileNotFoundError:
        return True


def _mode_of(target: Path) -> int | None:
    """Return the permissions of a file; None if there is none yet."""
    try:
        return stat.S_IMODE(target.stat().st_mode)
    except FileNotFoundError:
        return None


def flush(path: Path) -> None:
    """Write a file or a folder to the disk.

    Raises:
        OSError: when the disk is full or fails.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
