"""The daemon's log waits for nobody who reads it."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from boa_daemon.daemon.loop import log_lines
from boa_daemon.daemon.loop.log_lines import MOST_WAITING_LINES, JsonLines, LinesAside

MORE_LINES = MOST_WAITING_LINES + 5000


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """A pipe, as a pager or the journal is."""
    ends = os.pipe()
    yield ends
    for end in ends:
        with suppress(OSError):
            os.close(end)


def a_logger(descriptor: int) -> tuple[logging.Logger, LinesAside]:
    logger, handler = logging.Logger("boa"), LinesAside(descriptor)
    handler.setFormatter(JsonLines())
    logger.addHandler(handler)
    return logger, handler


def read_all(reader: int, handler: LinesAside) -> list[dict[str, object]]:
    """Return the lines that arrive until none has for a while."""
    found = b""
    os.set_blocking(reader, False)
    silent_since = time.monotonic()
    while time.monotonic() - silent_since < 2.0:
        with suppress(BlockingIOError):
            found += os.read(reader, 1 << 20)
            silent_since = time.monotonic()
    handler.flush()
    return [json.loads(line) for line in found.splitlines()]


def test_a_log_that_nobody_reads_stops_nobody(pipe: tuple[int, int]) -> None:
    """Once somebody reads again, the lines that waited come, and how many were left out."""
    logger, handler = a_logger(pipe[1])
    for number in range(MORE_LINES):
        logger.info("line %d of a job", number)
    lines = [str(line["message"]) for line in read_all(pipe[0], handler)]
    assert lines[0] == "line 0 of a job"
    left_out = MORE_LINES - (len(lines) - 1)
    assert left_out > 0
    assert lines[-1] == f"{left_out} lines of this log were left out: nobody read it"


def test_the_end_of_the_program_waits_for_the_last_lines_and_not_for_ever(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`logging` flushes its handlers at the end."""
    logger, handler = a_logger(pipe[1])
    logger.error("the last word")
    handler.flush()
    assert b"the last word" in os.read(pipe[0], 1 << 16)
    monkeypatch.setattr(log_lines, "FLUSH_SECONDS", 0.1)
    for number in range(MORE_LINES):
        logger.info("line %d", number)
    handler.flush()


@pytest.mark.first_set(1)
@pytest.mark.parametrize("how", ["closed", "nobody", "nonblocking"])
def test_a_descriptor_that_cannot_be_written_is_borne(pipe: tuple[int, int], how: str) -> None:
    """A pager that has ended, an original that is closed, a pipe that somebody made non-blocking."""
    reader, writer = pipe
    logger, handler = a_logger(writer)
    if how == "closed":
        os.close(writer)
    elif how == "nobody":
        os.close(reader)
    else:
        os.set_blocking(writer, False)
    for number in range(3000):
        logger.info("line %d", number)
    if how != "nobody":
        assert len(read_all(reader, handler)) == 3000
    handler.flush()


def test_a_line_that_cannot_be_formatted_is_said(pipe: tuple[int, int]) -> None:
    """Wrong arguments of a line are no reason to print a trace into a log of JSON."""
    logger, handler = a_logger(pipe[1])
    logger.info("%d jobs", "three")
    handler.flush()
    assert b"a line could not be formatted" in os.read(pipe[0], 1 << 16)
