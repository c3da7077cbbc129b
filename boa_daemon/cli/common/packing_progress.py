"""Progress while the code of a job is packed: a bar, or without a terminal a line every ten seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from boa_daemon.cli.common.output import stderr_console

QUIET_SECONDS = 1.0
"""Code that is packed faster than this shows nothing."""
LINE_SECONDS = 10.0


@contextmanager
def packing_progress() -> Iterator[Callable[[int, int], None]]:
    """Yield a function of the bytes packed and the bytes in all, which shows them on standard error."""
    console = stderr_console()
    began = shown_at = time.monotonic()
    bar = Progress(
        TextColumn("packing the code"), BarColumn(), TextColumn("{task.description}"), TimeRemainingColumn(),
        console=console, transient=True,
    )  # fmt: skip
    row = bar.add_task("", total=None)

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
            console.print(f"packing the code: {words}", markup=False, highlight=False)

    try:
        yield told
    finally:
        if bar.live.is_started:
            bar.stop()
