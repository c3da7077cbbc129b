"""Keep strangers from filling the log: a few lines a minute of each kind, and how many more there were."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

WINDOW_SECONDS, MOST_LINES = 60.0, 5
"""Per kind of line, which is its text without its values."""
LOGGERS = ("uvicorn.error", "asyncio", "boa.api")
"""Loggers whose lines a stranger's connection can cause."""


class FewLines(logging.Filter):
    """Passes a few lines of each kind per minute; the first line of the next minute counts those left out."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._monotonic, self._lock = monotonic, threading.Lock()
        self._kinds: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a line is written."""
        kind, now = f"{record.levelno}:{str(record.msg)[:80]}", self._monotonic()
        with self._lock:
            began, count = self._kinds.get(kind, (now, 0))
            left_out = 0
            if now - began >= WINDOW_SECONDS:
                left_out, began, count = max(count - MOST_LINES, 0), now, 0
            if len(self._kinds) > 200:
                self._kinds.clear()
            self._kinds[kind] = (began, count + 1)
        if count >= MOST_LINES:
            return False
        if record.exc_info and count:
            # The same trace again says nothing new.
            record.exc_info = record.exc_text = None
        if left_out:
            record.msg = f"{record.getMessage()} (and {left_out} more lines like it)"
            record.args = ()
        return True


def limit_lines() -> None:
    """Limit the lines of the loggers that strangers can make write."""
    for name in LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(each, FewLines) for each in logger.filters):
            logger.addFilter(FewLines())
