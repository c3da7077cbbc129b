"""A nearly cheapest path through the phases of a job."""

from __future__ import annotations

import numpy as np
import pytest

from boa_daemon.sim.bounds.stint_paths import JobTimes, Resolution, near_paths

RESOLUTION = Resolution(steps_per_overhead=1.0, most_steps=1, units_per_overhead=1.0, most_units=10)


def test_the_path_uses_the_best_width_for_each_phase() -> None:
    """One GPU does the first phase as fast as four, and four do the second four times as fast."""
    times = JobTimes(hours=np.array([[1.0, 1.0], [4.0, 1.0]]), overhead_hours=0.1)
    prices = np.array([[1.0], [4.0]]) * np.ones((1, 100))

    costs, stints = near_paths(
        times, prices, prices[:, 0], 1.0, np.array([0, 5]), step_hours=0.1, resolution=RESOLUTION
    )

    least = 2.2 + (1.1 * 1.0 + 1.1 * 4.0)
    assert costs == pytest.approx([least, least + 0.5])
    held = [int((stints.ends - stints.begins)[stints.choices == choice].sum()) for choice in (0, 1)]
    assert held == [22, 22]


def test_the_path_avoids_a_choice_that_cannot_run_a_phase() -> None:
    """The first phase runs only at the first choice, the second only at the second."""
    times = JobTimes(hours=np.array([[1.0, np.inf], [np.inf, 1.0]]), overhead_hours=0.1)
    prices = np.ones((2, 50))

    costs, stints = near_paths(
        times, prices, np.ones(2), 1.0, np.array([0]), step_hours=0.1, resolution=RESOLUTION
    )

    assert costs == pytest.approx([4.4])
    assert set(stints.choices.tolist()) == {0, 1}
