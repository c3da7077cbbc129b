"""`api/log_limits.py`: a few lines a minute of each kind, and how many more there were."""

from __future__ import annotations

import logging
import sys
from typing import Any

import pytest

from boa_daemon.api.log_limits import LOGGERS, MOST_LINES, WINDOW_SECONDS, FewLines, limit_lines


class Log:
    """A filter and its clock."""

    def __init__(self) -> None:
        self.now = 100.0
        self.filter = FewLines(lambda: self.now)

    def lines(
        self, count: int, text: str = "from %s", *values: Any, level: int = logging.WARNING, **more: Any
    ) -> list[str]:
        """Return the lines of some records that are written."""
        found = []
        for number in range(count):
            record = logging.LogRecord(
                "boa.api", level, "", 0, text, values or (number,), more.get("exc_info")
            )
            if self.filter.filter(record):
                found.append(record.getMessage() + (" with its trace" if record.exc_info else ""))
        return found


def test_a_kind_has_five_lines_a_minute_whatever_its_values() -> None:
    """Others have their own: another text, or another level."""
    log = Log()
    assert log.lines(9) == [f"from {number}" for number in range(MOST_LINES)]
    assert len(log.lines(2, "other %s")) == 2
    assert len(log.lines(2, level=logging.ERROR)) == 2
    log.now += WINDOW_SECONDS - 0.1
    assert log.lines(1) == []


def test_the_first_line_of_the_next_minute_counts_those_left_out() -> None:
    """Once, and not where none were."""
    log = Log()
    log.lines(MOST_LINES + 3)
    log.lines(MOST_LINES, "quiet %s")
    log.now += WINDOW_SECONDS
    assert log.lines(2, "from %s", "x 100%") == ["from x 100% (and 3 more lines like it)", "from x 100%"]
    assert log.lines(1, "quiet %s", "y") == ["quiet y"]
    log.now += WINDOW_SECONDS
    assert log.lines(1, "from %s", "z") == ["from z"]


def test_a_trace_is_written_once() -> None:
    """The same again says nothing new."""
    try:
        raise ValueError("x")
    except ValueError:
        found = Log().lines(3, "failed: %s", "why", exc_info=sys.exc_info())
    assert found == ["failed: why with its trace", "failed: why", "failed: why"]


def test_kinds_without_end_do_not_fill_the_memory() -> None:
    """Each stranger may make lines of another text."""
    log = Log()
    for number in range(1000):
        log.lines(1, f"kind {number} %s")
    assert len(log.filter._kinds) <= 201


def test_loggers_are_limited_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often a server starts in a process."""
    for name in LOGGERS:
        monkeypatch.setattr(logging.getLogger(name), "filters", [])
    for _ in range(2):
        limit_lines()
    for name in LOGGERS:
        assert [type(each) for each in logging.getLogger(name).filters] == [FewLines]
