"""Widths of highest speed in closed form."""

from __future__ import annotations

import numpy as np
import pytest

from boa_daemon.testing import a_class, a_problem
from policies.optimum.real_widths import _breakpoints, best_width
from policies.speedup import Amdahl, UniversalScalability


def test_a_curve_that_falls_again_is_fastest_at_its_peak() -> None:
    """sqrt((1 - contention) / crosstalk), which no width beside it beats; else the widest."""
    curve = UniversalScalability(contention=0.1, crosstalk=0.004, max_gpus=64)
    best = best_width(curve)
    assert best == pytest.approx(15.0)
    around = curve.speed_at(np.array([0.99 * best, best, 1.01 * best]))
    assert around.argmax() == 1
    flat = UniversalScalability(contention=0.1, crosstalk=0.0, max_gpus=64)
    assert [best_width(flat), best_width(Amdahl(parallel_fraction=0.9, max_gpus=32))] == [64.0, 32.0]


@pytest.mark.parametrize("step", [0.01, 0.1])
def test_the_grid_of_widths_is_as_fine_as_its_step(step: float) -> None:
    """No two neighbours are further apart, from the narrowest width to the widest; whole ones are in it."""
    curve = Amdahl(parallel_fraction=0.9, min_gpus=2, max_gpus=4096)
    problem = a_problem(a_class(curve=curve))
    types, widths = _breakpoints(problem, problem.classes[0], step=step)
    assert set(types.tolist()) == {0}
    assert (widths[0], widths[-1]) == (2.0, 4096.0)
    assert np.all(np.diff(widths) > 0.0)
    assert np.all((widths[1:] / widths[:-1])[widths[:-1] >= 1.0 / step] <= 1.0 + step + 1e-9)
    assert set(range(2, 33)) <= set(widths.tolist())
