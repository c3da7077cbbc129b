"""Time that passes for a daemon in a folder, on the clock of a test."""

from __future__ import annotations

from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder


def pass_time(play: DaemonInAFolder, seconds: float, *, every: float = 30.0) -> None:
    """Tick every so many seconds, for so long; when nothing is left to be done, time passes without ticks."""
    clock = play.clock
    assert isinstance(clock, ManualClock)
    until, is_over = clock.instant + seconds, False
    while clock.instant < until:
        if not is_over:
            is_over = play.is_over(play.daemon.tick())
            assert not play.daemon.standing.fault
        clock.instant += every
