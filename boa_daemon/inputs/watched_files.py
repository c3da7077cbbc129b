"""Files of people that are read again when they change: tokens and certificates are renewed while we run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import Generic, TypeVar

Value = TypeVar("Value")
_Stamp = tuple[tuple[int, int, int], ...]


class WatchedFiles(Generic[Value]):
    """The value of one or more files; `read` makes it, and is called again when a file has changed.

    If the new contents cannot be used, as while a file is being written, the last good value stays in force,
    and `fault` says why. The first value must be good.
    """

    def __init__(self, paths: Sequence[Path], read: Callable[[], Value]) -> None:
        self._paths, self._read, self._lock = tuple(paths), read, Lock()
        self._stamp = self._stamped()
        self._value = read()
        self.fault = ""

    def get(self) -> Value:
        """Return the value, read again if a file has changed; costs one `stat` for each file."""
        stamp = self._stamped()
        if stamp == self._stamp:
            return self._value
        with self._lock:
            if stamp != self._stamp:
                try:
                    self._value, self.fault = self._read(), ""
                except Exception as error:
                    # Whatever is wrong with the new file, the service goes on with the old one.
                    names = ", ".join(map(str, self._paths))
                    self.fault = f"{names} changed and cannot be used; the last good one stays: {error}"
                self._stamp = stamp
        return self._value

    def _stamped(self) -> _Stamp:
        return tuple(_stamp(path) for path in self._paths)


def _stamp(path: Path) -> tuple[int, int, int]:
    """Return what changes when a file does; zeros for a file that is not there."""
    try:
        found = path.stat()
    except OSError:
        return (0, 0, 0)
    return (found.st_mtime_ns, found.st_size, found.st_ino)
