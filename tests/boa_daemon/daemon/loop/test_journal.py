"""The log has a line for each action: a sentence for people and the action's id for machines."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content


class Kept(logging.Handler):
    """A log handler that keeps its records."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record."""
        self.records.append(record)


@pytest.fixture
def kept() -> Iterator[Kept]:
    """Yield a handler that records what the daemon logs about its actions."""
    logger, handler = logging.getLogger("boa.actions"), Kept()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)


def test_each_action_is_logged_with_its_id_and_a_reason(tmp_path: Path, kept: Kept) -> None:
    """Launch, start and termination are logged in order, and each line starts with the action's id."""
    clock = ManualClock(1_800_000_000.0)
    play = DaemonInAFolder(
        tmp_path, clock, {"cloud": {"boot_seconds": 30.0}, "daemon": {"tick_seconds": 30.0}}
    )
    try:
        play.service.submit([job_content(hours=0.1)], user="ann")
        for _ in range(60):
            play.daemon.tick()
            clock.instant += 30.0
    finally:
        play.close()
    lines = [(str(record.__dict__["action"]), record.getMessage()) for record in kept.records]
    assert [action.split("-")[1] for action, _ in lines] == ["launch", "start", "terminate"]
    for action, sentence in lines:
        assert sentence.startswith(f"{action}: ")
        assert len(sentence) > len(action) + 10
