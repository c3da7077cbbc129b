"""Work left: the levels of a Gamma above what was done."""

from __future__ import annotations

import numpy as np
import pytest

from policies.online.work_left import work_left_at

LEVELS = (0.05, 0.5, 0.95)


def test_where_sizes_are_exponential_nothing_that_was_done_says_anything() -> None:
    """The quantiles of the work left are those of a whole job."""
    fresh = work_left_at(4.0, 0.0, spread=1.0, levels=LEVELS)

    assert fresh == pytest.approx([-4.0 * np.log(1.0 - level) for level in LEVELS])
    assert work_left_at(4.0, 10.0, spread=1.0, levels=LEVELS) == pytest.approx(fresh)
    assert work_left_at(4.0, 1e6, spread=1.0, levels=LEVELS) == pytest.approx(fresh)


def test_a_known_size_has_one_rest() -> None:
    """Four GPU-hours, three of them done: one is left at every level."""
    assert work_left_at(4.0, 3.0, spread=0.0, levels=LEVELS) == pytest.approx([1.0] * 3, rel=0.1)


@pytest.mark.parametrize("done", [0.0, 2.0, 7.0])
@pytest.mark.parametrize("spread", [0.3, 0.5, 1.5])
def test_so_many_draws_are_below_each_level(done: float, spread: float) -> None:
    """Compared with random job sizes that are larger than the work done."""
    sizes = np.random.default_rng(1).gamma(1.0 / spread**2, 4.0 * spread**2, size=400_000)
    rests = sizes[sizes > done] - done

    for level, found in zip(LEVELS, work_left_at(4.0, done, spread=spread, levels=LEVELS), strict=True):
        assert float(np.mean(rests <= found)) == pytest.approx(level, abs=0.02)
