"""What the learner hears of jobs: speeds at a width, and sizes over the scale of a job."""

from __future__ import annotations

from typing import Any, cast

import pytest

from boa_daemon.daemon.jobs.job_facts import JobFacts
from boa_daemon.daemon.jobs.learner_feed import LearnerFeed, kept_fraction
from boa_daemon.learning.learner import Learner
from boa_daemon.store.queue import JobQueue
from boa_daemon.store.records import JobRecord
from boa_daemon.testing import a_class
from boa_daemon.tick.facts.ports import Manifest, RunReport
from policies.model import JobClass, Phase, Width
from policies.speedup import Table

SAVED = Manifest(generation=1, step=40, sha256="0", path="step-40")
PHASES = JobClass(
    name="c",
    phases=(
        Phase(size_gpu_hours=1.0, speedups={"gpu": Table(gpus=(1, 2), speeds=(1.0, 1.2))}),
        Phase(size_gpu_hours=3.0, speedups={"gpu": Table(gpus=(1, 2), speeds=(1.0, 1.8))}),
    ),
)


def a_record(**changes: Any) -> JobRecord:
    """Return a job of class c, on two GPUs, that has done 3 of its 4 GPU-hours, at twice the usual size."""
    values: dict[str, Any] = {
        "id": "a-1",
        "seq": 1,
        "user": "ann",
        "class_name": "c[max_gpus=2]",
        "content": {"name": "a", "elastic": True, "scale": 2.0},
        "arrived_at": 0.0,
        "size_gpu_hours": 4.0,
        "remaining_gpu_hours": 1.0,
        "width": Width("gpu", 2),
    }
    return JobRecord(**(values | changes))


def a_report(**changes: Any) -> RunReport:
    """Return the report of a running generation."""
    return RunReport(**({"job": "a-1", "generation": 1, "phase": "running"} | changes))


class Heard(Learner):
    """A learner that notes what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[Any, ...]] = []

    def take(
        self, report: RunReport, *, class_name: str, width: Width, now: float, over_first_phase: float = 1.0
    ) -> None:
        self.told.append((class_name, width.gpus, now, over_first_phase))

    def ended(self, job: str, *, class_name: str, work_gpu_hours: float, at: float, is_whole: bool) -> None:
        self.told.append((class_name, work_gpu_hours, at, is_whole))


def heard(job_class: JobClass | None = None) -> tuple[Heard, LearnerFeed]:
    """Return a learner and what feeds it, where every job has this class."""
    facts = JobFacts(cast(JobQueue, None), class_of=lambda _name: job_class, spread_of=lambda _name: 0.0)
    learner = Heard()
    return learner, LearnerFeed(learner, facts, lambda _name: job_class)


@pytest.mark.parametrize(
    ("job_class", "factor"), [(None, 1.0), (a_class("c", sizes=(4.0,)), 1.0), (PHASES, pytest.approx(1.5))]
)
def test_a_speed_counts_for_the_class_itself_and_over_that_of_the_first_phase(
    job_class: JobClass | None, factor: float
) -> None:
    """The limits behind a class's name are left off; the job is in its second phase, three quarters done."""
    learner, feed = heard(job_class)
    feed.take(a_record(), a_report(), 9.0)
    assert learner.told == [("c", 2, 9.0, factor)]


@pytest.mark.parametrize(
    ("job", "report"),
    [(a_record(width=None), a_report()), (a_record(), a_report(phase="unknown"))],
)
def test_nothing_is_learned_without_a_width_or_a_known_phase(job: JobRecord, report: RunReport) -> None:
    """The speed would be that of no width, or of no time."""
    learner, feed = heard()
    feed.take(job, report, 9.0)
    assert learner.told == []


@pytest.mark.parametrize(
    ("left", "is_whole", "told"),
    [
        (1.0, True, [("c", 1.5, 9.0, True)]),
        (1.0, False, [("c", 1.5, 9.0, False)]),
        (3.97, False, []),
        (3.97, True, [("c", pytest.approx(0.015), 9.0, True)]),
        (3.96, False, [("c", pytest.approx(0.02), 9.0, False)]),
    ],
)
def test_the_size_of_a_job_is_its_work_over_its_scale(
    left: float, is_whole: bool, told: list[tuple[Any, ...]]
) -> None:
    """A job that was cut off before a hundredth of its size says nothing."""
    learner, feed = heard()
    feed.ended(a_record(remaining_gpu_hours=left), 9.0, is_whole=is_whole)
    assert learner.told == told


RIGID = {"name": "a", "elastic": False}


@pytest.mark.parametrize(
    ("job", "report", "kept"),
    [
        ({}, {"phase": "finished", "lost_steps": 50, "step": 100}, 1.0),
        ({}, {"phase": "stopped"}, 1.0),
        ({"content": RIGID}, {"phase": "failed"}, 0.0),
        ({"content": RIGID}, {"phase": "finished"}, 1.0),
        ({"content": RIGID}, {"phase": "failed", "manifest": SAVED}, 1.0),
        ({"begun_step": 20}, {"phase": "failed", "step": 100, "lost_steps": 60, "manifest": SAVED}, 0.25),
        ({"begun_step": 90}, {"phase": "failed", "step": 100, "lost_steps": 60}, 0.0),
        ({"begun_step": 100}, {"phase": "failed", "step": 100, "lost_steps": 1}, 0.0),
        ({}, {"phase": "failed", "lost_steps": 60}, 1.0),
    ],
)
def test_how_much_of_a_generation_is_kept(job: dict[str, Any], report: dict[str, Any], kept: float) -> None:
    """All of it where nothing was lost, else what its newest checkpoint has of the steps since its begin."""
    assert kept_fraction(a_record(**job), a_report(**report)) == pytest.approx(kept)
