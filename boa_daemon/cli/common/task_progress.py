"""Shared by the verbs with many runs: workers, the cache of finished runs, and progress."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, TypeAlias

import typer
from rich.progress import BarColumn, Progress, TextColumn

from boa_daemon.cli.common.output import stderr_console
from boa_daemon.tasks.tasks import AnswerCache, Tasks
from boa_daemon.tasks.workers import workers_on

OnOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--on",
        metavar="WHERE",
        help="Where to run: local, local:4 or ray://HOST. Default: a process per core.",
    ),
]
OutOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(help="Folder of finished runs, which are reused. Default: one in your cache folder."),
]
MINUTE = 60.0
FEW = 8
"""Up to this number of parts their mean time tells the time left."""


@dataclass(slots=True)
class TaskProgress:
    """Progress of a command: parts done, total, and the best result so far in a few words."""

    tasks: Tasks
    total: int
    what: str
    each_minute: Callable[[], None] = lambda: None
    done: int = 0
    best: str = ""
    began: float = field(default_factory=time.monotonic)
    _ends: list[float] = field(default_factory=list)

    def step(self, best: str = "") -> None:
        """Count one part as done."""
        self.done += 1
        self._ends.append(time.monotonic())
        self.best = best or self.best

    def words(self) -> str:
        """Return the progress in words: parts, runs, rate, time left, best result."""
        seconds = max(time.monotonic() - self.began, 1e-9)
        parts = [
            f"{self.done} of {self.total} {self.what}",
            f"{self.tasks.done} runs, {self.tasks.done / seconds:.1f}/s",
        ]
        parts += [f"{self.tasks.found} from the cache"] if self.tasks.found else []
        left = self.seconds_left(time.monotonic())
        if left is not None:
            parts.append(
                f"about {left / MINUTE:.0f} min left" if left >= 90.0 else f"about {left:.0f} s left"
            )
        parts += [f"best so far: {self.best}"] if self.best else []
        return ", ".join(parts)

    def seconds_left(self, now: float) -> float | None:
        """Return the time left, at the pace of the last quarter of the parts; None if it is not known.

        Parts from the cache take no time and come first, so they say nothing about the others.
        """
        if not 0 < self.done < self.total:
            return None
        # Few parts end in bursts, as many at once as there are workers.
        last = max(FEW, self.done // 4)
        begin = self._ends[-last - 1] if self.done > last else self.began
        return max(now - begin, 0.0) / min(last, self.done) * (self.total - self.done)


@contextmanager
def tasks_with_progress(on: str | None, out: Path | None, total: int, what: str) -> Iterator[TaskProgress]:
    """Yield tasks with workers and a cache; show progress as a bar, or without a terminal once a minute.

    On Ctrl-C, print which runs are kept.
    """
    kept = AnswerCache.for_user() if out is None else AnswerCache(out)
    console = stderr_console()
    over = threading.Event()
    with Tasks(workers_on(on), kept) as tasks:
        headway = TaskProgress(tasks=tasks, total=total, what=what)
        bar = Progress(
            BarColumn(), TextColumn("{task.description}"), console=console, transient=True,
            disable=not console.is_terminal,
        )  # fmt: skip
        row = bar.add_task(what, total=total)

        def watch() -> None:
            next_line = time.monotonic() + MINUTE
            while not over.wait(0.25):
                bar.update(row, completed=headway.done, description=headway.words())
                if time.monotonic() >= next_line:
                    next_line += MINUTE
                    headway.each_minute()
                    if not console.is_terminal:
                        console.print(headway.words(), markup=False, highlight=False, soft_wrap=True)

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            with bar:
                yield headway
        except KeyboardInterrupt:
            where = "lost" if kept.folder is None else f"kept in {kept.folder}; the same command resumes"
            console.print(
                f"Stopped: {headway.done} of {total} {what} are done, "
                f"{tasks.done + tasks.found} runs {where}.",
                markup=False,
                soft_wrap=True,
            )
            raise
        finally:
            over.set()
            watcher.join()
