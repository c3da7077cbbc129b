"""The forms of the daemon's log: readable lines for a terminal, JSON for everything else.

Lines are written by a thread of their own. A terminal that was stopped (Ctrl-S), a pager or a journal that no
longer reads would stop the thread that logs, and all others with it: no tick, no lease renewed.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import sys
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from boa_daemon.inputs.plain_text import plain_text

MOST_WAITING_LINES = 10_000
"""Lines that wait for a reader; further ones are left out, and counted."""
FLUSH_SECONDS = 2.0
"""Longest time that the end of the program waits for a reader."""
AGAIN_SECONDS = 0.1
_FIELDS = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime"}


class PlainLines(logging.Formatter):
    """A log format for a terminal, which must not obey what jobs and clouds said."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a log record as text without control characters."""
        return plain_text(super().format(record))


class JsonLines(logging.Formatter):
    """A log format for journald: one JSON document per line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a log record as a JSON document."""
        document: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        document |= {key: value for key, value in record.__dict__.items() if key not in _FIELDS}
        if record.exc_info:
            document["trace"] = self.formatException(record.exc_info)
        return json.dumps(document, default=str)


class LinesAside(logging.Handler):
    """Writes lines to a descriptor from a thread of its own, so that nobody waits for who reads them."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        # A copy: after somebody closed the original, its number may be another file's.
        self._descriptor = os.dup(descriptor)
        self._lines: queue.Queue[str] = queue.Queue(MOST_WAITING_LINES)
        self._left_out = 0
        self._thread = threading.Thread(target=self._write_on, name="boa-log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Take a line, or count it if too many wait."""
        try:
            self._lines.put_nowait(self.format(record))
        except queue.Full:
            self._left_out += 1
        except Exception as error:
            with suppress(queue.Full):
                self._lines.put_nowait(f"a line could not be formatted: {error}: {record.msg!r}")

    def flush(self) -> None:
        """Wait until all lines are written, for a while; `logging` calls this at the program's end."""
        until = time.monotonic() + FLUSH_SECONDS
        while self._lines.unfinished_tasks and self._thread.is_alive() and time.monotonic() < until:
            time.sleep(0.005)

    def _write_on(self) -> None:
        while True:
            self._write(self._lines.get())
            self._lines.task_done()
            if self._left_out and self._lines.empty():
                left_out, self._left_out = self._left_out, 0
                said = f"{left_out} lines of this log were left out: nobody read it"
                made = logging.makeLogRecord({"msg": said, "levelname": "WARNING", "name": "boa"})
                self._write(self.format(made))

    def _write(self, line: str) -> None:
        """Write a line; a descriptor that cannot be written loses it, as a closed terminal's."""
        # Not through `sys.stderr`: its lock, held here for ever, would abort the end of the program.
        left = f"{line}\n".encode(errors="backslashreplace")
        while left:
            try:
                left = left[os.write(self._descriptor, left) :]
            except BlockingIOError:
                time.sleep(AGAIN_SECONDS)
            except OSError:
                return


def set_up_logs() -> None:
    """Log readable lines to a terminal, and JSON to everything else."""
    handler: logging.Handler
    try:
        handler = LinesAside(sys.stderr.fileno())
    except (OSError, ValueError, AttributeError):
        handler = logging.StreamHandler(sys.stderr)  # Something in this process stands for it.
    if sys.stderr.isatty():
        handler.setFormatter(PlainLines("%(asctime)s %(levelname)s %(message)s", "%H:%M:%S"))
    else:
        handler.setFormatter(JsonLines())
    root = logging.getLogger("boa")
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    root.propagate = False
    # What strangers' connections make these say has the daemon's form, and a limit (`api/log_limits.py`).
    for name in ("uvicorn.error", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.propagate = False
