"""History is stored beside the ticks: figures each minute, progress when due, and no failure fails a tick."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from job_records import a_queue

from boa_daemon.daemon.jobs.progress import KEEP_SECONDS, Progress
from boa_daemon.daemon.watch.history_store import HistoryStore
from boa_daemon.learning.spot_history import SpotHistory
from boa_daemon.store.database import Database


def some_progress(*steps: int) -> Progress:
    """Return the progress of a job, a step every ten seconds."""
    found = Progress()
    for number, step in enumerate(steps):
        found.take("a-1", at=10.0 * number, step=step, loss=None, gpus=1, use=None)
    return found


def stored(database: Database) -> dict[str, str]:
    """Return the progress that the next process would know."""
    found = Progress()
    HistoryStore(database).restore(found)
    return found.documents()


def test_progress_is_stored_at_once_and_then_when_due(tmp_path: Path) -> None:
    """The next process goes on from the last version."""
    with a_queue(tmp_path) as queue:
        store = HistoryStore(queue.database)
        first, later = some_progress(1), some_progress(1, 2)
        for at, progress, there in (
            (1000.0, first, first),
            (1000.0 + KEEP_SECONDS - 1.0, later, first),
            (1000.0 + KEEP_SECONDS, later, later),
        ):
            store.take({"gpus": 1.0}, progress, SpotHistory({}), now=at)
            assert stored(queue.database) == there.documents()


def test_a_failed_write_is_logged_and_fails_no_tick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Figures that are lost do not keep the progress from being stored."""

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError("no room")

    with a_queue(tmp_path) as queue:
        store = HistoryStore(queue.database)
        monkeypatch.setattr(store.history, "take", refuse)
        store.take({"gpus": 1.0}, some_progress(1), SpotHistory({}), now=1000.0)
        assert stored(queue.database) == some_progress(1).documents()
        monkeypatch.setattr(store.spot, "write", refuse)
        store.keep(some_progress(1, 2), SpotHistory({}))
    assert [line.partition(":")[0] for line in caplog.messages] == [
        "the history has no figures of this minute",
        "the progress of jobs was not stored",
    ]
