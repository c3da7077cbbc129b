"""Progress trails of jobs: each one covers the whole run and stays small."""

from __future__ import annotations

from pathlib import Path

from boa_daemon.daemon.jobs.progress import MOST_JOBS, MOST_POINTS, Progress
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder


def test_a_trail_has_the_reported_steps() -> None:
    """A point has time, step, loss and GPUs; a job without reports has no point."""
    progress = Progress()
    progress.take("a-1", at=0.0, step=None, loss=None, gpus=1)
    progress.take("a-1", at=10.0, step=5, loss=2.5, gpus=1)
    assert progress.of("a-1") == [(10.0, 5, 2.5, 1, None)]
    assert progress.of("b-2") == []


def test_the_trail_of_a_long_run_covers_it_with_few_points() -> None:
    """10,000 reports give at most `MOST_POINTS` points, from the first report to nearly the last one."""
    progress = Progress()
    for number in range(10_000):
        progress.take("a-1", at=10.0 * number, step=number, loss=None, gpus=1)
    trail = progress.of("a-1")
    assert trail[0][0] == 0.0
    assert trail[-1][0] > 0.98 * 10.0 * 9_999
    assert len(trail) <= MOST_POINTS


def test_the_job_that_reported_longest_ago_is_dropped() -> None:
    """With one job more than allowed, the first job is dropped."""
    progress = Progress()
    for number in range(MOST_JOBS + 1):
        progress.take(f"j-{number}", at=1.0, step=1, loss=None, gpus=1)
    assert progress.of("j-0") == []
    assert progress.of("j-1") != []


def test_trails_survive_a_restart() -> None:
    """Stored trails are restored, newer reports win, and trails continue."""
    before, after = Progress(), Progress()
    for number in range(400):
        before.take("a-1", at=10.0 * number, step=number, loss=None, gpus=1)
        before.take("b-2", at=10.0 * number, step=number, loss=1.0 / (1 + number), gpus=2)
    before.take("c-3", at=1.0, step=1, loss=None, gpus=1)
    after.take("c-3", at=5000.0, step=9, loss=None, gpus=4)
    after.restore(before.documents())

    assert (after.of("a-1"), after.of("b-2")) == (before.of("a-1"), before.of("b-2"))
    assert after.of("c-3") == [(5000.0, 9, None, 4, None)]
    after.take("a-1", at=4010.0, step=401, loss=None, gpus=1)
    assert after.of("a-1")[-1] == (4010.0, 401, None, 1, None)
    assert len(after.of("a-1")) <= MOST_POINTS


def test_a_restarted_daemon_has_the_trails(tmp_path: Path) -> None:
    """No report comes between the restart and the check."""
    clock = ManualClock(1_800_000_000.0)
    play = DaemonInAFolder(tmp_path, clock)
    play.daemon.tick()
    play.daemon.work.progress.take("a-1", at=1.0, step=3, loss=0.5, gpus=2)
    play.close()
    again = DaemonInAFolder(tmp_path, clock)
    assert again.daemon.work.progress.of("a-1") == [(1.0, 3, 0.5, 2, None)]
    again.close()
