"""Widths of highest speed in closed form."""

from __future__ import annotations

import numpy as np
import pytest

from policies.optimum.real_widths import best_width
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
