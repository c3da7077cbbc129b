"""The demo with real processes: what is simulated of it, without running it."""

from __future__ import annotations

import shlex

import pytest

from boa_daemon.daemon.service import real_run
from boa_daemon.daemon.service.real_run import JOB_KINDS, PACE, PacedClock, PacedEngine, uninterrupted_loss
from boa_daemon.engines.local import LocalEngine
from boa_daemon.testing import ManualClock
from boa_daemon.tick.facts.ports import RunReport


def test_a_second_counts_as_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock begins at the machine's own time."""
    machine = ManualClock(10.0)
    monkeypatch.setattr(real_run.time, "monotonic", machine.now)
    monkeypatch.setattr(real_run.time, "time", lambda: 5000.0)
    clock = PacedClock()
    assert clock.now() == 5000.0
    machine.instant = 12.0
    assert clock.now() == 5000.0 + 2.0 * PACE


def test_reported_seconds_of_work_are_on_the_fast_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Speeds that are learned of them would be sixty times too high otherwise."""
    reports = {
        "a": RunReport(job="a", generation=1, phase="running", seconds=2.0, samples=5.0),
        "b": RunReport(job="b", generation=1, phase="running"),
    }
    engine = PacedEngine.__new__(PacedEngine)
    for name in ("poll", "reattach"):
        monkeypatch.setattr(LocalEngine, name, lambda _engine: reports)
        found = getattr(engine, name)()
        assert (found["a"].seconds, found["a"].samples, found["b"].seconds) == (2.0 * PACE, 5.0, None)


@pytest.mark.parametrize("kind", JOB_KINDS, ids=lambda kind: kind.name)
def test_the_class_of_a_job_is_what_its_trainer_does(kind: real_run.JobKind) -> None:
    """On one worker a step takes its eight shards and what is serial; jobs of all kinds arrive alike."""
    words = shlex.split(kind.command)
    given = dict(zip(words[2::2], map(float, words[3::2]), strict=True))
    step = 8 * given["--pause"] + given["--serial"]
    document = kind.document
    (phase,) = document["phases"]
    assert phase["size_gpu_hours"] * 3600.0 == pytest.approx(given["--steps"] * step * PACE)
    assert document["arrivals_per_hour"] * len(JOB_KINDS) == pytest.approx(10.0)
    assert phase["speedup"]["amdahl"]["parallel_fraction"] == kind.believed_parallel


def test_a_trainer_that_is_not_interrupted_learns() -> None:
    """The loss of the first step is that of weights of zero, and falls."""
    first, later = uninterrupted_loss(1), uninterrupted_loss(6)
    assert first == pytest.approx(sum(number**2 for number in range(16)), rel=0.2)
    assert later < 0.8 * first
