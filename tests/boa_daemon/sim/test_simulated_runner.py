"""An engine whose jobs only take time: their work goes on over stops, and a journal outlives the engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from boa_daemon.sim.simulated_runner import SimulatedRunner
from boa_daemon.testing import ManualClock, a_node
from boa_daemon.tick.facts.actions import StartJob, StopJob
from boa_daemon.tick.facts.job_spec import JobSpec
from boa_daemon.tick.facts.ports import Accepted, Refused
from policies.model import GpuSlot, Width


def a_runner(clock: ManualClock, journal: Path | None = None, **environment: str) -> SimulatedRunner:
    """Return an engine that was told what job a runs: two hours on one GPU, at speed one for each GPU."""
    runner = SimulatedRunner(clock, speed=lambda _name, width: float(width.gpus), journal=journal)
    runner.admit(
        JobSpec(job="a", name="a", class_name="c", run="true", environment={"HOURS": "2.0", **environment})
    )
    return runner


def start(generation: int = 1, gpus: int = 1, job: str = "a") -> StartJob:
    """Return the order to start a generation."""
    slots = tuple(GpuSlot("n1", index) for index in range(gpus))
    return StartJob(id="s", job=job, generation=generation, width=Width("gpu", gpus), slots=slots, reason="")


def stop(generation: int = 1) -> StopJob:
    """Return the order to stop a generation."""
    return StopJob(id="t", job="a", generation=generation, reason="")


def phase(runner: SimulatedRunner) -> tuple[str, str | None]:
    """Return the phase of job a and the cause of its end."""
    report = runner.poll()["a"]
    return report.phase, report.cause


@pytest.mark.parametrize(("gpus", "seconds"), [(1, 7200.0), (4, 1800.0)])
def test_a_job_ends_when_its_work_is_done(gpus: int, seconds: float) -> None:
    """To the second, at the speed of its width."""
    clock = ManualClock(100.0)
    runner = a_runner(clock)
    runner.start(start(gpus=gpus))
    clock.instant += seconds - 1.0
    assert phase(runner) == ("running", None)
    clock.instant += 1.0
    assert phase(runner) == ("finished", None)


def test_a_stopped_job_goes_on_with_what_is_left() -> None:
    """It works while it writes its checkpoint, for ten seconds; only then does it end."""
    clock = ManualClock()
    runner = a_runner(clock)
    runner.start(start())
    clock.instant = 3590.0
    runner.stop(stop())
    assert phase(runner) == ("stopping", None)
    clock.instant = 3595.0
    runner.stop(stop())
    clock.instant = 3600.0
    assert phase(runner) == ("stopped", None)
    clock.instant = 5000.0
    runner.start(start(2, gpus=2))
    clock.instant = 5000.0 + 1799.0
    assert phase(runner) == ("running", None)
    clock.instant += 1.0
    assert phase(runner) == ("finished", None)
    assert runner.started == [("a", 1), ("a", 2)]


def test_a_killed_generation_did_nothing() -> None:
    """It ends at once; what is done cannot be killed."""
    clock = ManualClock()
    runner = a_runner(clock)
    runner.start(start())
    clock.instant = 3600.0
    runner.kill("a", 1)
    assert phase(runner) == ("failed", "killed")
    runner.start(start(2))
    clock.instant += 7200.0
    runner.kill("a", 2)
    assert phase(runner) == ("finished", None)


def test_a_job_that_fails_does_so_where_it_would_have_finished() -> None:
    """Not before."""
    clock = ManualClock()
    runner = a_runner(clock, FAILS="1")
    runner.start(start())
    assert phase(runner) == ("running", None)
    clock.instant = 7200.0
    assert phase(runner) == ("failed", "error")


def test_a_generation_starts_once_and_after_the_one_before() -> None:
    """An unknown job cannot start at all."""
    runner = a_runner(ManualClock())
    assert runner.start(start()) == Accepted()
    assert runner.start(start()) == Accepted()
    assert runner.started == [("a", 1)]
    assert isinstance(runner.start(start(2)), Refused)
    runner.kill("a", 1)
    assert runner.start(start(2)) == Accepted()
    assert isinstance(runner.start(start(1)), Refused)
    refused = runner.start(start(job="b"))
    assert isinstance(refused, Refused)
    assert refused.kind == "bad-request"


def test_orders_about_another_generation_change_nothing() -> None:
    """They are accepted: what they ask for is so."""
    runner = a_runner(ManualClock())
    runner.start(start())
    assert runner.stop(stop(2)) == runner.kill("a", 2) == runner.kill("b", 1) == Accepted()
    assert phase(runner) == ("running", None)


def test_an_engine_on_the_same_journal_knows_everything(tmp_path: Path) -> None:
    """It is the machines: a killed daemon does not stop them. A forgotten job is not reported."""
    clock = ManualClock()
    runner = a_runner(clock, tmp_path / "journal")
    runner.start(start())
    clock.instant = 600.0
    runner.stop(stop())
    again = SimulatedRunner(clock, speed=lambda *_: 1.0, journal=tmp_path / "journal")
    assert again.reattach() == runner.poll()
    clock.instant = 700.0
    again.forget("a")
    again.forget("a")
    assert again.poll() == {}
    third = a_runner(clock, tmp_path / "journal")
    assert third.poll() == {}
    third.start(start(2))
    assert list(third.poll()) == ["a"]
    assert len((tmp_path / "journal").read_text().splitlines()) == 4
    assert set(third.prepare([a_node("n1")])) == {"n1"}
    assert third.logs("a", since=7).next_offset == 7
