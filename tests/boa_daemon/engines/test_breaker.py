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


def test_each_kind_of_failure_has_its_own_tries() -> None:
    """One that is named is counted by itself, and tried also where another try would meet it again."""
    breaker = RestartBreaker(most_failures=4, most_by_cause={"signal": 2, "out-of-memory": 2, "error": 1})
    crash = RunReport(job="a", generation=1, phase="failed", cause="signal", evidence="signal 11")
    memory = replace(crash, cause="out-of-memory")
    first = [Failure(at=0.0, step=0, cause="error"), Failure(at=1.0, step=0, cause="signal")]

    assert breaker.judge(crash, first) == TryAgain(not_before=6.0)
    given_up = breaker.judge(crash, [*first, Failure(at=2.0, step=0, cause="signal")])
    assert given_up == GiveUp(reason="2 failures (signal) within 1.00 h at step 0, the last one: signal 11")
    assert isinstance(breaker.judge(replace(crash, cause="error"), first[:1]), GiveUp)
    assert breaker.judge(memory, [*first, Failure(at=2.0, step=0, cause="out-of-memory")]) == TryAgain(
        not_before=7.0
    )
