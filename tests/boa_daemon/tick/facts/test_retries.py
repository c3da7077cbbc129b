"""Retries: which failures are tried again, after how long, and when a job is given up or ended."""

from __future__ import annotations

from boa_daemon.tick.facts.retries import Failure, GiveUp, Retries, Silence, TryAgain


def test_waits_double_until_the_job_is_given_up() -> None:
    """They are 5, 10 and 20 s; a new checkpoint or an hour clears the count; two causes are final."""
    retries = Retries(most_failures=4, window_seconds=3600.0)
    at = [Failure(at=float(t), step=0, cause="signal") for t in (0, 10, 20, 30)]

    assert [retries.judge(at[:n], evidence="signal 11") for n in (1, 2, 3)] == [
        TryAgain(not_before=0 + 5.0), TryAgain(not_before=10 + 10.0), TryAgain(not_before=20 + 20.0),
    ]  # fmt: skip
    assert isinstance(retries.judge(at, evidence="signal 11"), GiveUp)
    for later, verdict in (
        (Failure(at=40.0, step=3), TryAgain(not_before=45.0)),
        (Failure(at=9000.0, step=0), TryAgain(not_before=9005.0)),
    ):
        assert retries.judge([*at, later], evidence="signal 11") == verdict
    for cause in ("missing-command", "out-of-memory"):
        final = Failure(at=0.0, step=0, cause=cause)  # type: ignore[arg-type]
        assert retries.judge([final], evidence="no such file") == GiveUp(
            reason=f"{cause}, which another try would repeat: no such file"
        )


def test_each_cause_of_failure_has_its_own_number_of_tries() -> None:
    """A cause with its own number is counted separately, and is tried again even if it is final otherwise."""
    retries = Retries(window_seconds=3600.0, most_by_cause={"signal": 2, "out-of-memory": 2, "error": 1})
    first = [Failure(at=0.0, step=0, cause="error"), Failure(at=1.0, step=0, cause="signal")]

    assert retries.judge(first, evidence="signal 11") == TryAgain(not_before=6.0)
    given_up = retries.judge([*first, Failure(at=2.0, step=0, cause="signal")], evidence="signal 11")
    assert given_up == GiveUp(reason="2 failures (signal) within 1.00 h at step 0, the last one: signal 11")
    assert retries.judge(first[:1], evidence="exit code 1") == GiveUp(reason="exit code 1")
    memory = Failure(at=2.0, step=0, cause="out-of-memory")
    assert retries.judge([*first, memory], evidence="no memory") == TryAgain(not_before=7.0)


def test_retries_in_a_job_file_are_tries_after_the_first_failure() -> None:
    """A number for one cause leaves three retries for all other causes."""
    assert Retries.of(0).most_failures == 1
    assert Retries.of({"signal": 7}) == Retries(most_failures=4, most_by_cause={"signal": 8})


def test_the_sentence_of_a_silence_names_what_is_missing_and_for_how_long() -> None:
    """A stall has its seconds, and a missing first report has its limit."""
    said = {
        kind: Silence(kind=kind, since=100.0, limit_seconds=1800.0).sentence(2000.0)  # type: ignore[arg-type]
        for kind in ("no-step", "no-report", "no-report-no-print")
    }
    assert said == {
        "no-step": "made no step for 1900 s",
        "no-report": "reported no step within 30.0 min (first_report_hours)",
        "no-report-no-print": "reported no step and printed nothing within 30.0 min (first_report_hours)",
    }


def test_a_silence_ends_at_its_begin_plus_its_limit() -> None:
    """It began at 100 s with a limit of 1800 s."""
    assert Silence(kind="no-step", since=100.0, limit_seconds=1800.0).ends_at == 100.0 + 1800.0


def test_one_retry_allows_two_failures() -> None:
    """Three retries allow four failures."""
    assert [Retries.of(tries).most_failures for tries in (1, 3)] == [2, 4]
