"""Progress of long commands: its wording, its lines without a terminal, and the message when stopped."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from some_tasks import a_square

from boa_daemon.cli.common import task_progress as module
from boa_daemon.cli.common.task_progress import TaskProgress, tasks_with_progress
from boa_daemon.tasks.tasks import Tasks


def test_progress_shows_done_rate_cache_hits_time_left_and_the_leader() -> None:
    """Two of eight cells in ten seconds leave thirty seconds."""
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


def test_parts_from_the_cache_say_nothing_about_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixty parts at once, then twenty in 200 s: the twenty others take 200 s, not 50."""
    now = 1000.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    headway = TaskProgress(tasks=Tasks(), total=100, what="cells", began=now)
    for _ in range(60):
        headway.step()
    for _ in range(60, 80):
        now += 10.0
        headway.step()
    assert headway.seconds_left(now) == pytest.approx(200.0)


def test_a_pipe_gets_one_progress_line_per_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The hook for partial results is called as often."""
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


def test_an_interrupted_command_says_how_many_runs_are_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message names the folder and says that the same command resumes."""

    def stopped() -> None:
        with tasks_with_progress("local:1", tmp_path, 2, "cells") as headway:
            headway.tasks.run(a_square, 2)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()

    said = capsys.readouterr().err
    assert said == f"Stopped: 0 of 2 cells are done, 1 runs kept in {tmp_path}; the same command resumes.\n"
