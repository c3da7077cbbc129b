"""A disk of a few megabytes in memory that can be filled and made read-only; it needs root."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path


class SmallDisk:
    """A mounted disk; `folder` is its root."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fill(self) -> None:
        """Leave no byte free."""
        handle = os.open(self.folder / "fill", os.O_WRONLY | os.O_CREAT)
        for block in (b"x" * 65536, b"x"):
            with contextlib.suppress(OSError):
                while True:
                    os.write(handle, block)
        os.close(handle)

    def clear(self) -> None:
        """Free what `fill` took."""
        (self.folder / "fill").unlink(missing_ok=True)

    def freeze(self) -> None:
        """Make the disk read-only; no file may be open for writing."""
        subprocess.run(["mount", "-o", "remount,ro", str(self.folder)], check=True, capture_output=True)

    def thaw(self) -> None:
        """Make the disk writable again."""
        subprocess.run(["mount", "-o", "remount,rw", str(self.folder)], check=True, capture_output=True)


@contextlib.contextmanager
def a_small_disk(megabytes: int = 24) -> Iterator[SmallDisk | None]:
    """Yield a new disk; None if this user may not mount one."""
    with tempfile.TemporaryDirectory(prefix="boa-disk") as name:
        folder = Path(name)
        options = f"size={megabytes}m,mode=0711"
        mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", name]
        try:
            mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
        except OSError:
            mounted = False
        if not mounted:
            yield None
            return
        try:
            yield SmallDisk(folder)
        finally:
            subprocess.run(["umount", "--lazy", name], check=True)
