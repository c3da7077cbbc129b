"""What callers may see of a job that is not theirs: what is listed here, and nothing else.

Sizes, times, money and codes of a job explain to everybody why the site is as it is. Its texts belong to
its user: the command, the environment, values of a matrix, what it printed, and the sentence on how it ended,
which quotes what it printed. So a tick, whose reasons and records everybody may read, knows the end of a job
only in the words of `public_cause`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from boa_daemon.inputs.job_file import PUBLIC_KEYS
from boa_daemon.store.records import JobRecord

HIDDEN = "(only for its user)"
ROW = frozenset(
    {
        "id", "name", "group", "index", "user", "team", "class", "status", "gpus", "gpu_type", "nodes",
        "generation", "step", "lost_steps", "failures", "exit_code", "stalled_since", "not_before",
        "arrived_at", "started_at", "first_started_at", "ran_seconds", "ended_at", "is_rigid",
        "lost_gpu_hours", "usd", "waits_for", "place_in_queue",
        "starts_at",
    }
)  # fmt: skip
"""Fields of a job's row that everybody may see."""
FILE = PUBLIC_KEYS | {"ordered_gpus"}
"""Keys of a job's file that everybody may see: those that its declaration says, and an ordered width."""


def row_for(row: Mapping[str, Any], record: JobRecord, *, is_readable: bool) -> dict[str, Any]:
    """Return a job's row for a caller; fields that the caller may not see are empty."""
    if is_readable:
        return dict(row)
    seen = {key: value if key in ROW else _empty(value) for key, value in row.items()}
    return {**seen, "cause": public_cause(record) if record.cause else ""}


def file_for(file: Mapping[str, Any], *, is_readable: bool) -> dict[str, Any]:
    """Return the content of a job's file for a caller; what the caller may not see is empty or `HIDDEN`."""
    if is_readable:
        return dict(file)
    return {key: value if key in FILE else _empty(value, HIDDEN) for key, value in file.items()}


def public_cause(record: JobRecord) -> str:
    """Return how a job ended last, in words of ours alone: the code of the cause and the exit code."""
    exit_code = "" if record.exit_code is None else f"exit code {record.exit_code}"
    cause = record.failed[-1][2] if record.failed else ""
    return ", ".join(part for part in (cause, exit_code) if part) or "its end is known to its user"


def in_full(reason: str, record: JobRecord) -> str:
    """Return a tick's reason for giving a job up, with the job's own words in place of the public ones."""
    public = public_cause(record)
    return f"{reason.removesuffix(public)}{record.cause}" if reason.endswith(public) else reason


def _empty(value: Any, text: str = "") -> Any:
    """Return the empty value of the same kind; of a text that is not empty, `text`."""
    if isinstance(value, str):
        return text if value else ""
    if isinstance(value, Mapping):
        return {}
    return [] if isinstance(value, list | tuple) else None
