"""A file lock that allows one daemon per state folder."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from boa_daemon.daemon.settings.daemon_paths import StateFile
from boa_daemon.errors import BoaError, InputError
from boa_daemon.inputs.os_troubles import trouble_of_os


class AlreadyRunning(BoaError):
    """Another daemon uses the state folder."""


class Lock:
    """Locks a folder for one process; the kernel releases the lock however the process ends."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / StateFile.lock
        self._file: TextIO | None = None

    def take(self) -> None:
        """Take the lock.

        Raises:
            AlreadyRunning: when another process has the lock.
            OSError: when the file cannot be opened or locked now.
            InputError: when the file system knows no locks.
        """
        try:
            file = self._path.open("a+", encoding="utf-8")
        except OSError as error:
            if trouble_of_os(error) not in ("full", "read-only"):
                raise
            # The lock is the kernel's: a file that can only be read is as good.
            try:
                file = self._path.open(encoding="utf-8")
            except FileNotFoundError:
                raise error from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            file.close()
            raise AlreadyRunning(
                f"another daemon (process {holder}) has {self._path.parent}. Stop it first, or set state_dir"
            ) from None
        except OSError as error:
            file.close()
            if trouble_of_os(error) is not None:
                raise
            raise InputError(
                f"files in {self._path.parent} cannot be locked: {error.strerror or error}",
                hint="Set [daemon] state_dir to a folder on another file system",
                setting=("daemon", "state_dir"),
            ) from None
        # On a full disk the lock still holds; only the process id is missing from the file.
        with suppress(OSError):
            os.ftruncate(file.fileno(), 0)
            os.write(file.fileno(), str(os.getpid()).encode())
        self._file = file

    def give_back(self) -> None:
        """Release the lock."""
        if self._file is not None:
            self._file.close()
            self._file = None
