"""Headway: in words, once a minute where there is no terminal, and what is kept when it is stopped."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from some_tasks import a_square

from boa_daemon.cli import task_progress as module
from boa_daemon.cli.task_progress import TaskProgress, tasks_with_progress
from boa_daemon.comparing.tasks import Tasks


def test_words_say_how_far_how_fast_how_long_and_what_leads() -> None:
    """Two of eight in ten seconds leave thirty; what was kept is told from what ran."""
    tasks = Tasks()
    tasks.done, tasks.found = 20, 3
    headway = TaskProgress(tasks=tasks, total=8, what="cells", began=time.monotonic() - 10.0)
    assert headway.words() == "0 of 8 cells, 20 runs, 2.0/s, 3 from the cache"
    headway.step()
    headway.step("efficiency")

    assert headway.words() == (
        "2 of 8 cells, 20 runs, 2.0/s, 3 from the cache, about 30 s left, best so far: efficiency"
    )
    headway.began -= 990.0
    assert "about 50 min left" in headway.words()


def test_a_pipe_gets_a_line_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And nothing of a bar; the page of partial results is written as often."""
    monkeypatch.setattr(module, "MINUTE", 0.1)
    looks: list[int] = []
    with tasks_with_progress("local:1", tmp_path, 2, "cells") as headway:
        headway.each_minute = lambda: looks.append(headway.done)
        headway.tasks.run(a_square, 2)
        headway.step("boa")
        deadline = time.monotonic() + 60.0
        while 1 not in looks and time.monotonic() < deadline:
            time.sleep(0.02)
    lines = capsys.readouterr().err.splitlines()

    assert 1 in looks
    (first, *_) = (line for line in lines if line.startswith("1 of 2 cells, 1 runs"))
    assert "best so far: boa" in first


def test_what_is_stopped_says_what_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In which folder, and that the same command resumes."""

    def stopped() -> None:
        with tasks_with_progress("local:1", tmp_path, 2, "cells") as headway:
            headway.tasks.run(a_square, 2)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()

    said = capsys.readouterr().err
    assert said == f"Stopped: 0 of 2 cells are done, 1 runs kept in {tmp_path}; the same command resumes.\n"
