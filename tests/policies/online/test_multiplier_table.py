"""What money is worth at each budget: the frontier, the grain of jobs, how the curve bends."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from load_scenarios import PROBLEM

from policies.online.multiplier_table import MultiplierTable, curvature_at
from policies.optimum.frontier import MixedFrontier
from policies.speedup import Floats

TABLE = MultiplierTable.of(PROBLEM)


@pytest.mark.parametrize("budget", [31.0, 45.0, 60.0, 75.0])
def test_the_table_is_the_frontier(budget: float) -> None:
    """At the believed rates the planned multiplier is between the slopes around the exact optimum's."""
    position = TABLE.planned(budget)
    frontier = MixedFrontier.of(PROBLEM)
    slope = float(frontier.multiplier_at(np.array([budget]))[0])

    assert TABLE.cost_at(TABLE.rates, position) == pytest.approx(budget)
    assert TABLE.multipliers[position.edge] >= slope >= TABLE.multipliers[position.edge + 1]


def test_the_grain_grows_with_the_size_of_jobs() -> None:
    """Jobs ten times as large and as rare make the same load ten times as coarse."""
    rare = replace(
        PROBLEM,
        classes=tuple(
            replace(
                c,
                arrivals_per_hour=c.arrivals_per_hour / 10.0,
                startup_hours=10.0 * c.startup_hours,
                rescale_hours=10.0 * c.rescale_hours,
                phases=tuple(replace(p, size_gpu_hours=10.0 * p.size_gpu_hours) for p in c.phases),
            )
            for c in PROBLEM.classes
        ),
    )
    small, large = (MultiplierTable.of(problem).grain_hours(60.0) for problem in (PROBLEM, rare))

    assert large == pytest.approx(10.0 * small)


@pytest.mark.parametrize("least", [10.0, 20.0])
def test_the_curvature_is_that_of_a_known_curve(least: float) -> None:
    """For T = 1 / (B - b) kappa is (B / (B - b))^2; at the least feasible budget there is none."""

    def mean_jct(budgets: Floats) -> Floats:
        return np.asarray(1.0 / (budgets - least))

    assert curvature_at(mean_jct, 60.0, least=least) == pytest.approx((60.0 / (60.0 - least)) ** 2, rel=0.05)
    assert curvature_at(mean_jct, least, least=least) is None
