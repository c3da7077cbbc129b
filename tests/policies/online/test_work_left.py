"""Work left: quantiles of a Gamma distribution beyond the work done."""

from __future__ import annotations

import numpy as np
import pytest

from policies.online.work_left import work_left_at

LEVELS = (0.05, 0.5, 0.95)


def test_exponential_sizes_leave_the_same_work_whatever_was_done() -> None:
    """The quantiles of the work left are those of a whole job."""
    fresh = work_left_at(4.0, 0.0, spread=1.0, levels=LEVELS)

    assert fresh == pytest.approx([-4.0 * np.log(1.0 - level) for level in LEVELS])
    assert work_left_at(4.0, 10.0, spread=1.0, levels=LEVELS) == pytest.approx(fresh)
    assert work_left_at(4.0, 1e6, spread=1.0, levels=LEVELS) == pytest.approx(fresh)


def test_a_known_size_leaves_the_same_work_at_every_level() -> None:
    """Of four GPU-hours three are done, so one is left."""
    assert work_left_at(4.0, 3.0, spread=0.0, levels=LEVELS) == pytest.approx([1.0] * 3, rel=0.1)


@pytest.mark.parametrize("done", [0.0, 2.0, 7.0])
@pytest.mark.parametrize("spread", [0.3, 0.5, 1.5])
def test_random_draws_are_below_each_level_as_often_as_stated(done: float, spread: float) -> None:
    """Sizes are drawn at random, and those above the work done are kept."""
    sizes = np.random.default_rng(1).gamma(1.0 / spread**2, 4.0 * spread**2, size=400_000)
    rests = sizes[sizes > done] - done

    for level, found in zip(LEVELS, work_left_at(4.0, done, spread=spread, levels=LEVELS), strict=True):
        assert float(np.mean(rests <= found)) == pytest.approx(level, abs=0.02)
