"""Trails of jobs: they span the whole run, and stay small."""

from __future__ import annotations

from boa_daemon.daemon.progress import MOST_JOBS, MOST_POINTS, Progress


def test_a_trail_has_what_was_reported() -> None:
    """An instant, a step, a loss and GPUs; a job that reports nothing has none."""
    progress = Progress()
    progress.take("a-1", at=0.0, step=None, loss=None, gpus=1)
    progress.take("a-1", at=10.0, step=5, loss=2.5, gpus=1)
    assert progress.of("a-1") == [(10.0, 5, 2.5, 1)]
    assert progress.of("b-2") == []


def test_a_long_run_is_spanned_by_few_points() -> None:
    """After 10,000 reports the first is there, the newest is near, and there are no more than allowed."""
    progress = Progress()
    for number in range(10_000):
        progress.take("a-1", at=10.0 * number, step=number, loss=None, gpus=1)
    trail = progress.of("a-1")
    assert trail[0][0] == 0.0
    assert trail[-1][0] > 0.98 * 10.0 * 9_999
    assert len(trail) <= MOST_POINTS


def test_the_jobs_that_reported_longest_ago_are_forgotten() -> None:
    """One more than allowed: the first is gone."""
    progress = Progress()
    for number in range(MOST_JOBS + 1):
        progress.take(f"j-{number}", at=1.0, step=1, loss=None, gpus=1)
    assert progress.of("j-0") == []
    assert progress.of("j-1") != []
