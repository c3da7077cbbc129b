"""What the helper says goes into the job's log, and ends no training where it cannot be written."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from typing import TextIO

import pytest

from boa_daemon.job.log_line import log_line


def closed_file() -> TextIO:
    stream = io.StringIO()
    stream.close()
    return stream


def closed_descriptor() -> TextIO:
    reading, writing = os.pipe()
    stream = os.fdopen(writing, "w", closefd=False)
    os.close(reading)
    os.close(writing)
    return stream


def without_reader() -> TextIO:
    reading, writing = os.pipe()
    os.close(reading)
    return os.fdopen(writing, "w", closefd=False)


def full() -> TextIO:
    return os.fdopen(os.open("/dev/full", os.O_WRONLY), "w", closefd=False)


def not_blocking() -> TextIO:
    """Nobody reads, and the pipe has no room."""
    _, writing = os.pipe()
    os.set_blocking(writing, False)
    try:
        while True:
            os.write(writing, b"x" * 65536)
    except BlockingIOError:
        return os.fdopen(writing, "w", closefd=False)


@pytest.mark.parametrize(
    "stream", [closed_file, closed_descriptor, without_reader, full, not_blocking, lambda: None]
)
def test_a_log_that_cannot_be_written_ends_no_training(
    monkeypatch: pytest.MonkeyPatch, stream: Callable[[], TextIO | None]
) -> None:
    monkeypatch.setattr(sys, "stderr", stream())
    log_line("a report is left out")


def test_a_line_names_its_speaker(capsys: pytest.CaptureFixture[str]) -> None:
    log_line("saved step 3")
    log_line("off", speaker="boa gate")
    assert capsys.readouterr().err == "boa: saved step 3\nboa gate: off\n"
