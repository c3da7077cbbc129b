"""Advances the clock of a test and ticks a daemon meanwhile."""

from __future__ import annotations

from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder


def pass_time(play: DaemonInAFolder, seconds: float, *, every: float = 30.0) -> None:
    """Tick every `every` seconds for `seconds`; once everything is done, only the clock advances."""
    clock = play.clock
    assert isinstance(clock, ManualClock)
    until, is_over = clock.instant + seconds, False
    while clock.instant < until:
        if not is_over:
            is_over = play.is_over(play.daemon.tick())
            assert not play.daemon.standing.fault
        clock.instant += every
