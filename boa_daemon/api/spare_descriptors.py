"""A few file descriptors in reserve, so that requests are answered when no others are left.

The kernel gives the lowest free number, and a limit is on numbers: descriptors taken at the start and given
back in need are below every limit that the process had.
"""

from __future__ import annotations

import os
import resource
from contextlib import suppress

SPARE = 24


class SpareDescriptors:
    """Holds descriptors; `give` frees them, and `take` takes them again."""

    def __init__(self) -> None:
        self._held: list[int] = []
        self.take()

    def take(self) -> None:
        """Fill the reserve as far as there are descriptors."""
        with suppress(OSError):
            while len(self._held) < SPARE:
                self._held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def give(self) -> None:
        """Free the reserve."""
        while self._held:
            with suppress(OSError):
                os.close(self._held.pop())


def raise_limit() -> None:
    """Allow as many open files as the system lets this process have."""
    with suppress(OSError, ValueError):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft < hard:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
