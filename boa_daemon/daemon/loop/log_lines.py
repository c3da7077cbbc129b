"""The forms of the daemon's log: readable lines for a terminal, JSON for everything else."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

from boa_daemon.inputs.plain_text import plain_text

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


def set_up_logs() -> None:
    """Log readable lines to a terminal, and JSON to everything else."""
    handler = logging.StreamHandler(sys.stderr)
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
