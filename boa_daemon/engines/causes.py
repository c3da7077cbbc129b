"""The cause of a failed generation, from exit codes, signals, OOM counters and the recorded exception.

A job's output is shown but never interpreted, because words in a log prove nothing.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from typing import Any

from boa_daemon.tick.facts.retries import FailureCause

_MISSING_CODES = frozenset({126, 127})
"""A shell's codes for a command that it cannot run or find."""
_KINDS: Mapping[str, FailureCause] = {
    "MemoryError": "out-of-memory",
    "OutOfMemoryError": "out-of-memory",
    "ModuleNotFoundError": "missing-command",
}
"""Causes by the class name of an exception of Python or torch."""
OURS = "boa: "
"""Prefix of the keeper's lines in a log."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def cause_of(end: Mapping[str, Any], failure: Mapping[str, Any] | None) -> tuple[FailureCause, str]:
    """Return the cause of a command's failure, and a sentence about it (empty if none is known).

    `end` is how a unit ended, `failure` the exception that its command recorded.
    """
    code = end["code"]
    if end.get("before_failed"):
        return "no-checkpoint", str(end["before_failed"])
    if failure is not None:
        said = str(failure["said"])
        for kind in failure["kinds"]:
            if kind in _KINDS:
                return _KINDS[kind], said
        if end["out_of_memory"] and end.get("memory_gb"):
            return "out-of-memory", f"{_memory_sentence(end)}; {said}"
        return ("disk-full" if failure["errno"] in _FULL else "error"), said
    if end["out_of_memory"]:
        return "out-of-memory", _memory_sentence(end)
    if end.get("disk_full"):
        # Whatever the code: a script that could not be written is missing, too.
        return "disk-full", "the disk of its folder is full"
    if code in _MISSING_CODES:
        return "missing-command", ""  # The last line of the shell or the keeper tells which command.
    if code is not None and (code < 0 or code > 128):
        return "signal", ""
    return "error", ""


def _memory_sentence(end: Mapping[str, Any]) -> str:
    limit = end.get("memory_gb")
    return (
        f"it used more than its memory_gb of {limit:g}" if limit else "the kernel ended a process for memory"
    )


def last_line(lines: Sequence[str]) -> str:
    """Return the command's last line that is not empty, for people; without one, the keeper's last line."""
    said = [line.strip() for line in lines if line.strip()]
    own = [line for line in said if not line.startswith(OURS)]
    return (own or said or [""])[-1]
