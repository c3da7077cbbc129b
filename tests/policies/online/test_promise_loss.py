"""When few jobs make the load of a period, what a promise costs is no single figure."""

from __future__ import annotations

import numpy as np
import pytest

from policies.online.promise_loss import is_too_coarse


@pytest.mark.parametrize("tolerance", [0.02, 0.05, 0.1, 0.5])
@pytest.mark.parametrize("factor", [0.5, 0.9, 1.1, 2.0])
def test_a_load_is_too_coarse_where_chance_leaves_the_tolerance_once_in_twenty_periods(
    tolerance: float, factor: float
) -> None:
    """Counted over Poisson draws of equal jobs."""
    jobs = factor * (2.0 / tolerance) ** 2
    came = np.random.default_rng(0).poisson(jobs, 20_000)
    leaves = float(np.mean(np.abs(came / jobs - 1.0) > tolerance))

    assert is_too_coarse(jobs, tolerance) is (factor < 1.0)
    assert (leaves > 0.0455) is (factor < 1.0)


def test_no_tolerance_is_kept_by_any_number_of_jobs() -> None:
    """A promise to the dollar is a matter of chance."""
    assert is_too_coarse(1e12, 0.0)
