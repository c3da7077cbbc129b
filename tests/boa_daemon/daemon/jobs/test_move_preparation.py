"""Preparing a move: the next start waits until it is prepared, for a limited time, and keeps its nodes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from boa_daemon.daemon.jobs.job_view import JobView
from boa_daemon.daemon.jobs.move_preparation import FORGOTTEN_SECONDS, MOST_SECONDS
from boa_daemon.testing import ManualClock
from boa_daemon.tick.facts.actions import StartJob
from policies.model import GpuSlot, Width


class Readier:
    """A runner that records preparations and answers with `answer`."""

    def __init__(self) -> None:
        self.asked: list[StartJob] = []
        self.answer: bool | Exception = False

    def ahead(self, action: StartJob) -> bool:
        self.asked.append(action)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def a_start(generation: int = 2, node: str = "n2") -> StartJob:
    """Return the start of a job's next generation on another node."""
    slots = (GpuSlot(node, 0),)
    return StartJob(id="t", job="a", generation=generation, width=Width("gpu", 1), slots=slots, reason="")


@pytest.fixture
def parts() -> tuple[JobView, Readier, ManualClock, list[str]]:
    """Return a view of a job in its first generation, its runner, its clock and its alerts."""
    runner, clock, said = Readier(), ManualClock(0.0), list[str]()
    queue: Any = SimpleNamespace(instances={}, active={"a": SimpleNamespace(id="a", generation=1)})
    work = JobView(
        queue,
        runner,  # type: ignore[arg-type]
        clock,
        class_of=lambda _name: None,
        alert=lambda _key, sentence: said.append(sentence),
    )
    return work, runner, clock, said


def test_a_move_waits_until_its_next_start_is_prepared(
    parts: tuple[JobView, Readier, ManualClock, list[str]],
) -> None:
    """The target node counts as awaited until the move is forgotten, and again once the job is stopping."""
    work, runner, clock, _ = parts
    assert work.awaited_nodes() == frozenset()
    assert not work.is_ready_for(a_start())
    assert work.awaited_nodes() == {"n2"}
    runner.answer = True
    assert work.is_ready_for(a_start(node="n3"))
    assert work.awaited_nodes() == {"n3"}
    clock.instant = FORGOTTEN_SECONDS + 1.0
    assert work.awaited_nodes() == frozenset()
    work._stopping.add("a")
    assert work.awaited_nodes() == {"n3"}


def test_a_move_waits_for_its_preparation_for_a_limited_time(
    parts: tuple[JobView, Readier, ManualClock, list[str]],
) -> None:
    """After `MOST_SECONDS` the job moves unprepared; a later move has its own limit."""
    work, runner, clock, _ = parts
    assert not work.is_ready_for(a_start())
    clock.instant = MOST_SECONDS + 1.0
    assert work.is_ready_for(a_start())
    work._queue.active["a"].generation = 2
    assert not work.is_ready_for(a_start(generation=3))
    assert len(runner.asked) == 2


def test_a_failed_preparation_does_not_delay_a_move(
    parts: tuple[JobView, Readier, ManualClock, list[str]],
) -> None:
    """An alert names the error; a first start, or an engine without preparation, is not asked."""
    work, runner, _, said = parts
    runner.answer = OSError("no space left on device")
    assert work.is_ready_for(a_start())
    assert said == ["job a moves without being made ready: no space left on device"]
    assert work.is_ready_for(a_start(generation=1))
    assert len(runner.asked) == 1
    work._readying._runner = object()  # type: ignore[assignment]
    assert work.is_ready_for(a_start())
