"""Trials of widths: within an allowed waste, repeated only after more work, at exactly the tried width."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from followers import Known
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import sampled

from boa_daemon.learning.exploration_value import Exploration
from boa_daemon.learning.learner import Learner
from boa_daemon.learning.speedups import (
    NOISE,
    RIGHT,
    WANDER,
    CurveEstimate,
    SpeedSample,
    doubted,
    estimate_all,
    estimate_curve,
)
from boa_daemon.learning.width_trials import (
    ADVANCE_JOBS,
    LATEST_SECONDS,
    ExploringAllocator,
    GpuHourWorth,
    WidthTrials,
    most_wasted,
)
from boa_daemon.testing import Wishes, a_class, a_job, a_node, a_state, rules, some_slots
from boa_daemon.tick.decide.decision import decide
from policies.model import JobClass, Phase
from policies.placement.first_fit import FirstFit
from policies.speedup import Table

NOW = 1000.0
WIDTHS = (1, 2, 4, 8)
STATED = Table(gpus=WIDTHS, speeds=(1.0, 1.1, 1.2, 1.3))
WORTH = GpuHourWorth(gpu_hour={"gpu": 0.2}, node_gpus={"gpu": 4}, boot_seconds=60.0)


def a_class_of(size_gpu_hours: float) -> JobClass:
    """Return a class with one job of this size per hour."""
    phase = Phase(size_gpu_hours=size_gpu_hours, speedups={"gpu": STATED})
    return replace(a_class("c"), phases=(phase,), arrivals_per_hour=1.0, rescale_hours=10.0 / 3600.0)


def a_sample(gpus: int, speed: float, *, seconds: float = 600.0, name: str = "c") -> SpeedSample:
    """Return a sample of work at a speed."""
    return SpeedSample(
        class_name=name, gpu_type="gpu", gpus=gpus, samples=speed * seconds, seconds=seconds, at=0.0
    )


def a_curve(*samples: SpeedSample) -> CurveEstimate:
    """Return the estimated curve of the class."""
    curve = estimate_curve(samples, STATED, class_name="c", gpu_type="gpu", now=0.0)
    assert curve is not None
    return curve


def tried(tries: WidthTrials, samples: list[SpeedSample], *, size: float, now: float) -> list[int]:
    """Return the widths that the class's one running job tries after an update."""
    state = a_state(
        a_job("j", class_name="c", remaining_gpu_hours=size),
        nodes=[a_node("n1")],
        held={"j": some_slots("n1", 0)},
    )
    curve, learner = a_curve(*samples), Learner()
    for sample in samples:
        learner.worked(sample)
    tries.update(state.jobs, [curve], {"c": a_class_of(size)}, learner, worth=WORTH, now=now)
    return [found.gpus for found in tries.explorations.values()]


@given(size=st.floats(0.1, 50.0), fraction=st.floats(0.001, 0.1), rounds=st.integers(1, 30))
@settings(max_examples=sampled(40), deadline=None)
def test_the_waste_of_trials_is_bounded_by_a_fraction_of_the_work(
    size: float, fraction: float, rounds: int
) -> None:
    """An advance of `ADVANCE_JOBS` jobs is added; trials that fail again and again stay within the bound."""
    tries, samples = WidthTrials(fraction=fraction), [a_sample(1, 1.0)]
    for number in range(rounds):
        tried(tries, samples, size=size, now=number * (LATEST_SECONDS + 1.0))
        worked = sum(one.seconds * one.gpus for one in samples)
        assert tries.wasted_gpu_seconds <= (1.0 + 1e-9) * (fraction * worked + ADVANCE_JOBS * size * 3600.0)
        samples.append(a_sample(1, 1.0, seconds=1200.0))


def test_a_failed_trial_is_repeated_only_after_more_work() -> None:
    """Until then, another width is tried."""
    tries, samples = WidthTrials(fraction=1.0), [a_sample(1, 1.0)]
    first = tried(tries, samples, size=5.0, now=0.0)
    assert first
    second = tried(tries, samples, size=5.0, now=LATEST_SECONDS + 1.0)
    assert second
    assert second != first

    later = [*samples, a_sample(1, 1.0, seconds=2000.0)]
    seen = [tried(tries, later, size=5.0, now=n * (LATEST_SECONDS + 1.0)) for n in range(2, 8)]
    assert first in seen


def test_measurements_lower_or_raise_the_doubt_in_stated_speeds() -> None:
    """Three widths at the stated speeds leave little doubt; one that is far off leaves no trust."""
    right = a_curve(*(a_sample(k, float(STATED.speed_at(k))) for k in (1, 2, 4)))
    wrong = a_curve(a_sample(1, 1.0), a_sample(2, 1.8))

    assert a_curve(a_sample(1, 1.0)).doubt == pytest.approx(0.5, abs=0.01)
    assert right.doubt < 0.06
    assert wrong.doubt > 0.99


def test_classes_share_the_doubt_in_their_file() -> None:
    """If five classes run as stated, a sixth one with a single measured width is doubted less."""
    names = [f"c{n}" for n in range(6)]
    classes = [replace(a_class_of(1.0), name=name) for name in names]
    rows = [a_sample(k, float(STATED.speed_at(k)), name=name) for name in names[:5] for k in (1, 2, 4)]
    off = [a_sample(k, float(k), name=name) for name in names[:5] for k in (1, 2, 4)]
    alone = a_sample(1, 1.0, name="c5")

    assert estimate_all([*rows, alone], classes, now=0.0)["c5", "gpu"].doubt < 0.2
    assert estimate_all([*off, alone], classes, now=0.0)["c5", "gpu"].doubt > 0.8
    assert doubted({}) == {}


def test_doubt_is_a_calibrated_probability() -> None:
    """Of files drawn right or wrong with even odds, those with doubt p are wrong in a fraction p of cases."""
    random = np.random.default_rng(5)
    said, true = [], []
    for _ in range(600):
        is_wrong = bool(random.random() < 0.5)
        wander = WANDER if is_wrong else RIGHT
        off = np.concatenate([[0.0], np.cumsum(random.normal(0.0, wander, 2))])
        noise = random.normal(0.0, NOISE / np.sqrt(10.0), 3)
        speeds = np.asarray(STATED.speed_at([1, 2, 4])) * np.exp(off + noise)
        curve = a_curve(*(a_sample(k, float(v)) for k, v in zip((1, 2, 4), speeds, strict=True)))
        said.append(curve.doubt)
        true.append(is_wrong)
    doubts, wrong = np.array(said), np.array(true)
    for low, high in ((0.0, 0.2), (0.2, 0.8), (0.8, 1.0)):
        inside = (doubts >= low) & (doubts <= high)
        assert wrong[inside].mean() == pytest.approx(doubts[inside].mean(), abs=0.12)


def test_a_job_that_tries_a_width_gets_exactly_that_width() -> None:
    """The job may have had more GPUs or fewer before."""
    holds = a_state(a_job("a"), nodes=[a_node("n1")], held={"a": some_slots("n1", 0, 1, 2, 3)}, now=NOW)
    free = a_state(a_job("a"), nodes=[a_node("n1")], held={"a": some_slots("n1", 0)}, now=NOW)
    beside = a_state(
        a_job("a"),
        a_job("b"),
        nodes=[a_node("n1")],
        held={"a": some_slots("n1", 0, 1), "b": some_slots("n1", 2, 3)},
        now=NOW,
    )
    tried = {"a": Exploration(gpus=2, gpu_seconds=1.0, reason="tried")}
    for state, widths in ((holds, {"a": 4}), (free, {"a": 1}), (beside, {"a": 1, "b": 2})):
        known = ExploringAllocator(base=Known(widths=widths, stretches=True), tries=tried)
        plan = decide(state, allocator=known, placer=FirstFit(), rules=rules()).plan
        assert len(plan.jobs.slots.get("a", state.jobs["a"].slots)) == 2


def test_a_trial_changes_only_the_job_that_tries() -> None:
    """The reason of the job names the trial."""
    base = Wishes(widths={"a": 4, "b": 4})
    tried = Exploration(gpus=2, gpu_seconds=1.0, reason="2 GPUs are tried")
    jobs = [a_job("a"), a_job("b")]
    found = ExploringAllocator(base=base, tries={"a": tried, "z": tried}).allocate(jobs, now=0.0)

    assert {job: width.gpus for job, width in found.widths.items()} == {"a": 2, "b": 4}
    assert found.reasons["a"] == "2 GPUs are tried"
    assert ExploringAllocator(base=base).allocate(jobs, now=0.0) == base.allocate(jobs, now=0.0)


def test_the_most_that_trials_may_waste_is_a_fraction_and_one_job_of_each_class() -> None:
    """Ten jobs of 1 and five of 4 GPU-hours: 2 % and 5 of 30; one job of a class may waste all its time."""
    assert most_wasted({"a": [1.0] * 10, "b": [4.0] * 5}) == pytest.approx(0.02 + 5.0 / 30.0)
    assert most_wasted({"a": [3.0]}) == pytest.approx(1.02)
    assert most_wasted({"a": []}) == pytest.approx(0.02)
