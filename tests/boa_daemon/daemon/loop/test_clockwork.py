"""What the daemon does now and then beside its ticks."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from boa_daemon.daemon.loop import clockwork
from boa_daemon.daemon.loop.clockwork import Clockwork
from boa_daemon.daemon.settings.daemon_paths import daemon_paths
from boa_daemon.daemon.watch.month_report import instant_of_month
from boa_daemon.store.database_setup import backups_in
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder

DECEMBER = instant_of_month("2026-12")


def test_months_are_reported_once_and_again_after_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look every half minute reckons no month a second time, also for teams that spent nothing."""
    play = DaemonInAFolder(tmp_path, ManualClock(DECEMBER - 600.0), {"teams": {"red": {"members": ["ann"]}}})
    asked: list[float] = []
    faults = [OSError("disk full")]

    def send(*_: Any, now: float, **__: Any) -> None:
        asked.append(now)
        if faults:
            raise faults.pop()

    monkeypatch.setattr(clockwork, "send_team_reports", send)
    try:
        play.daemon.tick()
        clock = Clockwork(play.daemon, daemon_paths(play.daemon.settings))
        for at in (DECEMBER - 60.0, DECEMBER - 30.0, DECEMBER - 1.0, DECEMBER, DECEMBER + 30.0):
            play.clock.instant = at
            clock._look_at_nets()
    finally:
        play.close()
    assert asked == [DECEMBER - 60.0, DECEMBER - 30.0, DECEMBER]


def test_copies_that_somebody_takes_away_are_made_again_and_told(tmp_path: Path) -> None:
    """An empty folder looks well to a probe that only writes, and the next copy may be hours away."""
    play = DaemonInAFolder(tmp_path, ManualClock(DECEMBER), {"daemon": {"state_dir": str(tmp_path)}})
    there = daemon_paths(play.daemon.settings)
    try:
        play.daemon.tick()
        clock = Clockwork(play.daemon, there)
        clock._backup()
        assert len(backups_in(there.backups)) == 1
        shutil.rmtree(there.backups)
        clock._look_at_nets()
        assert len(backups_in(there.backups)) == 1
        assert any("taken away" in row["sentence"] for row in play.daemon.alerts.latest(9))
        clock._look_at_nets()
        assert sum("taken away" in row["sentence"] for row in play.daemon.alerts.latest(9)) == 1
    finally:
        play.close()
