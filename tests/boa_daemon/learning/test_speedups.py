"""Measured speed-ups: curves estimated from reports, and their uncertainty."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.learning.speedups import (
    HALF_LIFE_SECONDS,
    NOISE,
    WANDER,
    CurveEstimate,
    SpeedSample,
    estimate_all,
    estimate_curve,
    explain_curve,
    measured_class,
    statistical_efficiency,
)
from boa_daemon.testing import a_class
from policies.errors import InvalidProblem
from policies.model import JobClass, Phase
from policies.speedup import Amdahl, Table

STATED = Table(gpus=(1, 2, 4, 8), speeds=(1.0, 1.8, 3.2, 5.6))


def a_sample(
    gpus: int, rate: float, *, seconds: float = 600.0, at: float = 0.0, **more: float
) -> SpeedSample:
    """Return a sample of work at a speed."""
    return SpeedSample(
        class_name="c", gpu_type="gpu", gpus=gpus, samples=rate * seconds, seconds=seconds, at=at, **more
    )


def estimated(*samples: SpeedSample, stated: Table | Amdahl = STATED, now: float = 0.0) -> CurveEstimate:
    """Return the curve estimated from the samples."""
    curve = estimate_curve(samples, stated, class_name="c", gpu_type="gpu", now=now)
    assert curve is not None
    return curve


def test_without_a_measurement_there_is_no_estimate() -> None:
    """The stated curve is used as it is."""
    assert estimate_curve([], STATED, class_name="c", gpu_type="gpu", now=0.0) is None
    assert measured_class(a_class("c"), []) == a_class("c")


def test_one_measured_width_sets_the_level_and_keeps_the_stated_shape() -> None:
    """The other widths follow the stated curve, with an uncertainty that grows with the width."""
    curve = estimated(a_sample(1, 100.0))

    assert [w.samples_per_second for w in curve.widths] == pytest.approx([100, 180, 320, 560], rel=1e-3)
    spreads = [width.spread for width in curve.widths]
    assert spreads[1:] == pytest.approx([WANDER, WANDER * 2**0.5, WANDER * 3**0.5], rel=0.02)
    assert spreads[0] < 0.08


def test_measured_widths_override_the_stated_curve() -> None:
    """Widths in between are interpolated and better known than with one measured neighbour."""
    curve = estimated(a_sample(1, 100.0), a_sample(8, 300.0))

    assert curve.at(8).samples_per_second == pytest.approx(300.0, rel=0.02)
    assert 100.0 < curve.at(2).samples_per_second < 180.0, "pulled down by its neighbours"
    assert curve.at(2).spread < WANDER, "and known better than with one neighbour"


def test_a_measured_curve_may_fall() -> None:
    """If 8 GPUs were measured slower than 4, they are estimated slower."""
    curve = estimated(a_sample(1, 100.0), a_sample(4, 300.0), a_sample(8, 200.0))

    assert curve.at(8).samples_per_second < curve.at(4).samples_per_second
    assert not curve.is_monotone
    assert "not always faster" in explain_curve(curve)


@given(
    rates=st.lists(st.floats(1.0, 1e4), min_size=4, max_size=4),
    seconds=st.lists(st.floats(1.0, 1e5), min_size=4, max_size=4),
)
def test_more_samples_never_widen_the_uncertainty(rates: list[float], seconds: list[float]) -> None:
    """Estimated speeds stay positive."""
    samples = [a_sample(k, r, seconds=s) for k, r, s in zip((1, 2, 4, 8), rates, seconds, strict=True)]
    some, more = estimated(*samples[:2]), estimated(*samples)

    for before, after in zip(some.widths, more.widths, strict=True):
        assert after.spread <= before.spread + 1e-6
        assert after.samples_per_second > 0.0


def test_noisy_samples_are_averaged() -> None:
    """With 20 % noise, estimates are within three standard deviations, which shrink with more samples."""
    draw = np.random.default_rng(0)
    rates = 100.0 * np.exp(0.2 * draw.standard_normal(200))
    few = estimated(*(a_sample(1, r, seconds=60.0) for r in rates[:5]))
    many = estimated(*(a_sample(1, r, seconds=60.0) for r in rates))

    for curve in (few, many):
        assert abs(np.log(curve.at(1).samples_per_second / 100.0)) < 3 * curve.at(1).spread
    assert many.at(1).spread < few.at(1).spread
    assert few.at(1).spread > NOISE / 5**0.5


def test_old_measurements_fade() -> None:
    """After 20 half-lives, the new speed alone counts."""
    now = 20 * HALF_LIFE_SECONDS
    curve = estimated(a_sample(1, 100.0, at=0.0), a_sample(1, 50.0, at=now), now=now)

    assert curve.at(1).samples_per_second == pytest.approx(50.0, rel=0.01)


def test_an_amdahl_curve_is_estimated_at_powers_of_two() -> None:
    """The largest width is estimated too; all widths would be a large system of equations."""
    curve = estimated(a_sample(2, 10.0), stated=Amdahl(parallel_fraction=0.9, max_gpus=100))

    assert [width.gpus for width in curve.widths] == [1, 2, 4, 8, 16, 32, 64, 100]


def test_the_speed_of_large_batches_is_scaled_by_statistical_efficiency() -> None:
    """With noise scale 100, a sample of a batch of 400 counts (100+100)/(100+400) = 0.4."""
    assert statistical_efficiency(gradient_noise=100.0, batch=400.0, base_batch=100.0) == 0.4
    curve = estimated(
        a_sample(1, 100.0, batch=100.0, gradient_noise=100.0),
        a_sample(4, 400.0, batch=400.0, gradient_noise=100.0),
    )

    assert curve.at(4).speedup == pytest.approx(4 * 0.4, rel=0.05)


def test_a_measured_class_has_the_measured_speeds_in_every_phase() -> None:
    """Each phase is scaled by the same factors; sizes and rates stay."""
    second = Table(gpus=(1, 2, 4, 8), speeds=(1.0, 2.0, 4.0, 8.0))
    job_class = JobClass(
        name="c",
        arrivals_per_hour=3.0,
        phases=(
            Phase(size_gpu_hours=1.0, speedups={"gpu": STATED}),
            Phase(size_gpu_hours=2.0, speedups={"gpu": second}),
        ),
    )
    curve = estimated(*(a_sample(k, 90.0 * s) for k, s in ((1, 1.0), (2, 0.9), (4, 1.6), (8, 2.8))))
    found = measured_class(job_class, [curve])

    assert (found.arrivals_per_hour, found.size_gpu_hours) == (3.0, 3.0)
    first, later = (phase.speedups["gpu"] for phase in found.phases)
    assert list(first.speed_at([1, 2, 4, 8])) == pytest.approx([1.0, 0.9, 1.6, 2.8], rel=0.05)
    assert list(later.speed_at([1, 2, 4, 8])) == pytest.approx([1.0, 1.0, 2.0, 4.0], rel=0.05)


def test_estimate_all_leaves_out_classes_without_samples() -> None:
    """The explanation of a curve has its seconds of work and its uncertainty."""
    found = estimate_all([a_sample(1, 100.0), a_sample(2, 190.0)], [a_class("c"), a_class("d")], now=0.0)

    assert list(found) == [("c", "gpu")]
    said = explain_curve(found["c", "gpu"])
    assert "from 1,200 s of measured work" in said
    assert "±" in said


def test_a_sample_of_zero_seconds_is_refused() -> None:
    """A sample without time says nothing about a speed."""
    with pytest.raises(InvalidProblem, match="seconds"):
        replace(a_sample(1, 100.0), seconds=0.0)


@pytest.mark.parametrize(("stretches", "noise"), [(1, 1.0), (2, 1.0), (3, 2.0), (10, 3.0)])
def test_95_percent_intervals_contain_the_truth_in_at_least_92_percent(stretches: int, noise: float) -> None:
    """True curves vary as the model assumes, and noise is up to three times the assumed noise."""
    rng = np.random.default_rng(stretches)
    widths, stated = (1, 2, 4, 8), np.array([1.0, 1.8, 3.2, 5.6])
    inside: list[bool] = []
    for _ in range(400):
        truth = stated * np.exp(np.cumsum([0.0, *rng.normal(0.0, WANDER, 3)]))
        curve = estimated(
            *(
                a_sample(widths[at], float(truth[at] * np.exp(rng.normal(0.0, noise * NOISE))), seconds=60.0)
                for at in (0, 2)
                for _ in range(stretches)
            )
        )
        for at, width in enumerate(curve.widths):
            off = np.log(width.samples_per_second / truth[at])
            inside.append(abs(off) <= 1.96 * np.sqrt(curve.covariance[at][at]))
            if at:
                off = np.log(width.speedup * truth[0] / truth[at])
                inside.append(abs(off) <= 1.96 * width.spread)

    assert np.mean(inside) >= 0.92
