"""Why a generation failed: from how its processes ended and from what it printed last."""

from __future__ import annotations

import re
from collections.abc import Sequence

from boa_daemon.tick.ports import FailureCause

_OUT_OF_MEMORY = re.compile(
    r"MemoryError\b|out of memory|OutOfMemoryError|Cannot allocate memory|std::bad_alloc|oom-kill",
    re.IGNORECASE,
)
_MISSING = re.compile(
    r"command not found|can't open file|ModuleNotFoundError|No such file or directory|cannot start in"
)
_DISK_FULL = re.compile(r"No space left on device|Disk quota exceeded", re.IGNORECASE)
_MISSING_CODES = frozenset({2, 126, 127})
"""A shell's codes for a command that it cannot run, and Python's for a script that is not there."""


def cause_of(code: int | None, last_lines: Sequence[str], *, out_of_memory: bool) -> tuple[FailureCause, str]:
    """Return why a command failed, and the line that says so; empty where none does.

    `code` is an exit code, negative for a signal. `out_of_memory` is what the kernel's books say.
    """
    found = _line(_OUT_OF_MEMORY, last_lines)
    if out_of_memory or found:
        return "out-of-memory", found or "the kernel ended a process for memory"
    found = _line(_MISSING, last_lines)
    if found and (code in _MISSING_CODES or "ModuleNotFoundError" in found):
        return "missing-command", found
    found = _line(_DISK_FULL, last_lines)
    if found:
        return "disk-full", found
    if code is not None and (code < 0 or code > 128):
        return "signal", ""
    return "error", last_lines[-1] if last_lines else ""


def _line(pattern: re.Pattern[str], lines: Sequence[str]) -> str:
    """Return the last line that matches; empty where none does."""
    return next((line.strip() for line in reversed(lines) if pattern.search(line)), "")
