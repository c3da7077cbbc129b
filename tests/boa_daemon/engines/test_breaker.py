"""The restart breaker: which failures are tried again, and after how long."""

from __future__ import annotations

from dataclasses import replace

from boa_daemon.engines.breaker import Failure, GiveUp, RestartBreaker, TryAgain
from boa_daemon.tick.ports import RunReport


def test_the_breaker_waits_longer_each_time_and_gives_up() -> None:
    """5, 10, 20 s and then a person; a new checkpoint in between, or an hour, clears the count."""
    breaker = RestartBreaker(most_failures=4, first_wait_seconds=5.0, window_seconds=3600.0)
    crash = RunReport(job="a", generation=1, phase="failed", cause="signal", evidence="signal 11")
    at = [Failure(at=float(t), step=0) for t in (0, 10, 20, 30)]

    assert [breaker.judge(crash, at[:n]) for n in (1, 2, 3)] == [
        TryAgain(not_before=0 + 5.0), TryAgain(not_before=10 + 10.0), TryAgain(not_before=20 + 20.0),
    ]  # fmt: skip
    assert isinstance(breaker.judge(crash, at), GiveUp)
    assert breaker.judge(crash, [*at, Failure(at=40.0, step=3)]) == TryAgain(not_before=45.0)
    assert breaker.judge(crash, [*at, Failure(at=9000.0, step=0)]) == TryAgain(not_before=9005.0)
    missing = replace(crash, cause="missing-command")
    assert isinstance(breaker.judge(missing, at[:1]), GiveUp)
