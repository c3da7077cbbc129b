"""Write a file whole: a reader sees the old content or the new, also after a crash or on a full disk."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path


def write_whole(path: str | Path, content: str | bytes, *, mode: int | None = None) -> None:
    """Replace a file's content: write beside it, flush to the disk, rename.

    A symbolic link keeps pointing where it points. The file keeps its permissions unless `mode` is given; a
    new file gets `mode`, else 0644 less the process's mask. A device or a pipe is written to as it is.

    Raises:
        OSError: when the folder cannot be written or the disk is full; the old file is unchanged.
    """
    target = Path(os.path.realpath(path))
    data = content.encode("utf-8") if isinstance(content, str) else content
    try:
        present = target.stat().st_mode
    except FileNotFoundError:
        present = stat.S_IFREG | (0o644 & ~_mask())
    if not stat.S_ISREG(present):
        target.write_bytes(data)  # A device or a pipe, such as /dev/stdout, must not become a file.
        return
    if mode is None:
        mode = stat.S_IMODE(present)
    handle, aside = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        os.replace(aside, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(aside)
        raise
    with suppress(OSError):  # Some file systems cannot flush a folder; the rename is done all the same.
        folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _mask() -> int:
    """Return the process's file mode mask, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
