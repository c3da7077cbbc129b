"""The value of exploration: a width is tried where knowing its speed pays, within the allowed waste."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import sampled

from boa_daemon.learning.exploration_value import ExplorationStakes, _worth_of_knowing, worth_exploring
from boa_daemon.learning.speedups import CurveEstimate, SpeedSample, estimate_curve
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


STAKES = ExplorationStakes(gpu_hour_worth=0.5, hours_to_come=100.0, restart_seconds=30.0, boot_seconds=180.0)


def test_a_width_is_tried_if_knowing_its_speed_is_worth_more_than_the_try() -> None:
    """With many hours to come, the uncertain width of 4 GPUs is tried; with few, it is not."""
    curve = estimated(a_sample(1, 100.0), stated=Table(gpus=(1, 4), speeds=(1.0, 1.3)))

    found = worth_exploring(curve, planned_gpus=1, stakes=STAKES)
    assert found is not None
    assert found.gpus == 4
    assert "a try of 4 GPUs for 120 s" in found.reason
    assert worth_exploring(curve, planned_gpus=1, stakes=replace(STAKES, hours_to_come=0.5)) is None


def test_a_try_stays_within_the_allowed_waste_and_widths() -> None:
    """Measured widths are not tried."""
    curve = estimated(a_sample(1, 100.0), stated=Table(gpus=(1, 2, 4), speeds=(1.0, 1.15, 1.3)))
    found = worth_exploring(curve, planned_gpus=1, stakes=STAKES)
    assert found is not None

    less = worth_exploring(
        curve, planned_gpus=1, stakes=replace(STAKES, most_gpu_seconds=found.gpu_seconds - 1.0)
    )
    assert less is None or less.gpu_seconds <= found.gpu_seconds - 1.0
    assert worth_exploring(curve, planned_gpus=1, stakes=replace(STAKES, most_gpu_seconds=1.0)) is None
    assert worth_exploring(curve, planned_gpus=1, stakes=STAKES, allowed=[1]) is None
    assert (
        worth_exploring(estimated(*(a_sample(k, 9.0) for k in (1, 2, 4, 8))), planned_gpus=4, stakes=STAKES)
        is None
    )


@given(
    mean=st.floats(-2.0, 2.0),
    spread=st.floats(0.05, 1.0),
    worth=st.floats(0.01, 5.0),
    gpus=st.sampled_from([2, 4, 16]),
)
@settings(max_examples=sampled(25), deadline=None)
def test_the_value_of_knowing_equals_its_integral(
    mean: float, spread: float, worth: float, gpus: int
) -> None:
    """V is E[max(A - B / rho, 0)] - max(A - B E[1 / rho], 0), rho at most linear: by quadrature."""
    stakes = replace(STAKES, gpu_hour_worth=worth)
    linear = float(np.log(gpus))
    m = min(mean, linear)
    z = np.linspace(-9.0, 9.0, 200_001)
    logs = m + spread * z
    here, there = stakes.an_hour(1), stakes.an_hour(gpus)
    gains = np.maximum(here - there * np.exp(-np.minimum(logs, linear)), 0.0)
    density = np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
    saved = float(np.trapezoid(gains * density, z)) - max(
        here - there * float(np.exp(0.5 * spread**2 - m)), 0.0
    )

    assert _worth_of_knowing(mean, spread, gpus, 1, stakes) == pytest.approx(max(saved, 0.0), abs=1e-4)
