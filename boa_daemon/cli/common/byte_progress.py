"""Progress of work on many bytes: a bar, or without a terminal a line every ten seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from boa_daemon.cli.common.output import stderr_console

QUIET_SECONDS = 1.0
"""Work that takes less than this shows nothing."""
LINE_SECONDS = 10.0


@contextmanager
def byte_progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function of the bytes done and the bytes in all, which shows them on standard error.

    `what` is what is done, such as ``packing the code``.
    """
    console = stderr_console()
    began = shown_at = time.monotonic()
    bar = Progress(
        TextColumn("{task.fields[what]}"),
        BarColumn(),
        TextColumn("{task.description}"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )
    row = bar.add_task("", total=None, what=what)

    def told(done: int, total: int) -> None:
        nonlocal shown_at
        now = time.monotonic()
        words = f"{done / 1e6:,.0f} of {total / 1e6:,.0f} MB"
        if now - began < QUIET_SECONDS:
            return
        if console.is_terminal:
            bar.start()
            bar.update(row, completed=done, total=total, description=words)
        elif now - shown_at >= LINE_SECONDS:
            shown_at = now
            console.print(f"{what}: {words}", markup=False, highlight=False)

    try:
        yield told
    finally:
        if bar.live.is_started:
            bar.stop()
