"""What the daemon does now and then beside its ticks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from boa_daemon.daemon.loop import clockwork
from boa_daemon.daemon.loop.clockwork import Clockwork
from boa_daemon.daemon.settings.daemon_paths import daemon_paths
from boa_daemon.daemon.watch.month_report import instant_of_month
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
