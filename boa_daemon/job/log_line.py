"""What the helper says in the job's log."""

from __future__ import annotations

import sys
from contextlib import suppress


def log_line(sentence: str, *, speaker: str = "boa") -> None:
    """Write a sentence into the job's log. A full disk, a closed pipe or a closed file ends no training."""
    with suppress(OSError, ValueError):
        print(f"{speaker}: {sentence}", file=sys.stderr, flush=True)  # noqa: T201  the job's own log
