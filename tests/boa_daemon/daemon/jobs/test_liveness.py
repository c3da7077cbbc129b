"""Stalls and silences: only evidence over time ends a job, and a step starts the time anew."""

from __future__ import annotations

from typing import Any

import pytest

from boa_daemon.daemon.jobs.liveness import Liveness, first_report_silence
from boa_daemon.store.records import JobRecord
from boa_daemon.tick.facts.ports import RunReport
from boa_daemon.tick.facts.retries import Silence


def report(**facts: Any) -> RunReport:
    """Return what is known of the second generation of job a, which runs."""
    return RunReport(**({"job": "a", "generation": 2, "phase": "running"} | facts))


def record(*, rigid: bool = False, started_at: float | None = 100.0, **content: Any) -> JobRecord:
    """Return a job that started at 100 s."""
    return JobRecord(
        id="a",
        seq=1,
        user="eve",
        class_name="c",
        content={"elastic": not rigid, **content},
        arrived_at=0.0,
        remaining_gpu_hours=1.0,
        size_gpu_hours=1.0,
        generation=2,
        started_at=started_at,
        has_reported=not rigid,
    )


@pytest.mark.parametrize(
    ("step_seconds", "limit"), [(None, 600.0), (1.0, 600.0), (30.0, 600.0), (31.0, 620.0), (100.0, 2000.0)]
)
def test_a_job_is_stalled_after_the_time_of_twenty_of_its_steps_and_at_least_the_floor(
    step_seconds: float | None, limit: float
) -> None:
    """At the very limit, counted from the step; ten steps since its checkpoint took so long."""
    seen = report(step=15, seconds=None if step_seconds is None else 10.0 * step_seconds)
    watch = Liveness()
    assert watch.take(seen, begun_step=5, now=1000.0) is None
    assert watch.take(seen, begun_step=5, now=1000.0 + limit - 1.0) is None
    assert watch.take(seen, begun_step=5, now=1000.0 + limit) == 1000.0
    assert watch.silence("a") == Silence(
        kind="no-step", since=1000.0, limit_seconds=1.5 * limit, looks_left=2
    )


def test_a_stalled_job_is_ended_only_after_three_looks_in_a_row() -> None:
    """Fewer are left with each look, never less than none."""
    watch, seen = Liveness(floor_seconds=10.0), report(step=1)
    watch.take(seen, begun_step=None, now=0.0)
    left = []
    for now in (10.0, 20.0, 30.0, 40.0):
        assert watch.take(seen, begun_step=None, now=now) == 0.0
        left.append(watch.silence("a").looks_left)
    assert left == [2, 1, 0, 0]


def test_a_step_a_new_generation_or_a_pause_starts_the_time_anew() -> None:
    """So does a daemon that has forgotten the job; a job that is stopping is not expected to step."""
    watch = Liveness(floor_seconds=10.0)
    watch.take(report(step=1), begun_step=None, now=0.0)
    assert watch.take(report(step=2), begun_step=None, now=50.0) is None
    assert watch.take(report(step=2), begun_step=None, now=59.0) is None
    assert watch.take(report(step=2), begun_step=None, now=60.0) == 50.0
    assert watch.take(report(step=2, generation=3), begun_step=None, now=61.0) is None
    assert watch.take(report(step=2, generation=3, phase="stopping"), begun_step=None, now=90.0) is None
    assert watch.take(report(step=2, generation=3), begun_step=None, now=99.0) is None
    assert watch.take(report(step=2, generation=3), begun_step=None, now=100.0) == 90.0
    watch.forget("a")
    assert watch.take(report(step=2, generation=3), begun_step=None, now=500.0) is None


def test_a_job_that_never_made_a_step_is_not_stalled() -> None:
    """One whose earlier generation did is."""
    watch = Liveness(floor_seconds=10.0)
    for now in (0.0, 20.0, 40.0):
        assert watch.take(report(), begun_step=None, now=now) is None
    watch.take(report(), begun_step=7, now=50.0)
    assert watch.take(report(), begun_step=7, now=51.0) == 40.0


def test_a_file_says_how_long_the_first_step_may_take() -> None:
    """Counted from the start, whatever the job prints; a step ends the wait."""
    job = record(rigid=True, first_report_hours=0.5)
    silence = Silence(kind="no-report", since=100.0, limit_seconds=1800.0)
    assert first_report_silence(job, report(quiet_seconds=1.0), now=200.0) == silence
    assert first_report_silence(job, report(step=1), now=200.0) is None
    waiting = record(rigid=True, started_at=None, first_report_hours=0.5)
    assert first_report_silence(waiting, report(), now=200.0) is None


def test_a_resizable_job_without_a_word_in_its_file_may_be_silent_for_two_hours() -> None:
    """Silence begins with its last printed line, and not before its start."""
    job = record()
    silence = first_report_silence(job, report(quiet_seconds=30.0), now=500.0)
    assert silence == Silence(kind="no-report-no-print", since=470.0, limit_seconds=7200.0)
    early = first_report_silence(job, report(quiet_seconds=1000.0), now=500.0)
    assert early is not None
    assert early.since == 100.0
    assert first_report_silence(job, report(), now=500.0) is None
    assert first_report_silence(job, report(phase="stopping", quiet_seconds=1.0), now=500.0) is None


def test_a_rigid_job_without_a_word_in_its_file_may_be_silent_forever() -> None:
    """Nothing says that it reports at all."""
    assert first_report_silence(record(rigid=True), report(quiet_seconds=1e9), now=1e9) is None
