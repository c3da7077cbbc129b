"""What a service on one machine needs: to be the only one."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from boa_daemon.errors import BoaError


class AlreadyRunning(BoaError):
    """Another daemon has the state folder."""


class Lock:
    """Holds a folder for one process; the kernel gives it back however the process ends."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "daemon.lock"
        self._file: TextIO | None = None

    def take(self) -> None:
        """Take the lock.

        Raises:
            AlreadyRunning: when another process has it.
        """
        file = self._path.open("a+", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            file.close()
            raise AlreadyRunning(
                f"another daemon (process {holder}) has {self._path.parent}. Stop it first, or set state_dir"
            ) from None
        # On a full disk the lock holds all the same; only who has it is not written there.
        with suppress(OSError):
            os.ftruncate(file.fileno(), 0)
            os.write(file.fileno(), str(os.getpid()).encode())
        self._file = file

    def give_back(self) -> None:
        """Let the next daemon in."""
        if self._file is not None:
            self._file.close()
            self._file = None
