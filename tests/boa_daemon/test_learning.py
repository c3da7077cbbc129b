"""What the daemon learns from reports, and that it plans by it."""

from __future__ import annotations

from pathlib import Path

import pytest

from boa_daemon.config import Settings
from boa_daemon.learning import Learner
from boa_daemon.ports import RunReport
from boa_daemon.site import Planner
from policies.model import Width


def a_report(step: int, seconds: float, *, generation: int = 1) -> RunReport:
    """Return a report after so many steps of 64 samples and so many seconds of work."""
    return RunReport(
        job="a", generation=generation, phase="running", step=step, samples=64.0 * step, seconds=seconds
    )


def taught(learner: Learner, speeds: dict[int, float], *, class_name: str = "default") -> None:
    """Let a learner see ten minutes of work at each width, with so many samples per second."""
    for generation, (gpus, speed) in enumerate(speeds.items(), 1):
        for seconds in (0.0, 600.0):
            report = a_report(int(speed * seconds / 64.0), seconds, generation=generation)
            learner.take(report, class_name=class_name, width=Width("v100", gpus), now=seconds)


def test_stretches_are_what_lies_between_two_reports() -> None:
    """The first report of a generation begins, short stretches wait, stretches of an hour are one sample."""
    learner = Learner()
    for step, seconds in ((1, 0.0), (2, 1.0), (11, 10.0), (21, 20.0)):
        learner.take(a_report(step, seconds), class_name="c", width=Width("v100", 2), now=seconds)
    assert learner.has_news

    (sample,) = learner.samples
    assert (sample.gpus, sample.samples, sample.seconds) == (2, 20 * 64.0, 20.0)
    learner.take(a_report(1, 0.0, generation=2), class_name="c", width=Width("v100", 4), now=30.0)
    assert len(learner.samples) == 1, "a new generation begins anew"


def test_what_was_learnt_outlives_the_process_and_damage_to_its_file(tmp_path: Path) -> None:
    """The file is read back; one that is damaged is as good as none."""
    file = tmp_path / "speeds.json"
    learner = Learner(file)
    taught(learner, {1: 100.0})
    learner.curves([], now=600.0)
    assert Learner(file).samples == learner.samples
    assert Learner(file).has_news

    file.write_text('{"samples": [{"gpus": 1}]}')
    assert Learner(file).samples == []


def test_the_plan_follows_what_was_measured() -> None:
    """A class that hardly scales is planned narrower than it was stated; its variants too, within limits."""
    settings = Settings.model_validate(
        {
            "budget": {"usd_per_hour": 60.0},
            "cloud": {"provider": "simulated", "instance_types": ["p3.2xlarge"]},
        }
    )
    planner = Planner(settings)
    content = {"class": "default", "min_gpus": 3, "max_gpus": 6}
    variant = planner.class_for(content)
    kind = next(iter(planner.machines))
    learner = Learner()
    taught(learner, {1: 100.0, 4: 120.0, 8: 130.0})
    curves = learner.curves(planner.stated.values(), now=600.0)
    before = planner.record([variant.name]).hash
    width = Width(kind, 4)
    stated = planner.speed("default", 0, width)

    assert kind == "v100"
    assert planner.learn(curves)
    assert stated == pytest.approx(3.48, abs=0.01)
    assert planner.speed("default", 0, width) == pytest.approx(1.2, rel=0.05)
    assert planner.record([variant.name]).hash != before
    measured = planner.class_of(variant.name)
    assert measured is not None
    curve = measured.phases[0].speedups[kind]
    assert [int(width) for width in curve.whole_widths()] == [3, 4, 5, 6]
    assert float(curve.speed_at(4)) == pytest.approx(1.2, rel=0.05)
    assert planner.class_for(content) == measured
    assert not planner.learn(curves), "the same once more changes nothing"
