"""The lower bound on mean JCT for policies that rent GPUs one by one."""

from __future__ import annotations

import math

import numpy as np
import pytest

from boa_daemon.sim.bounds.lower_bound import MOST_GROUPS, groups_of, lower_bound_hours
from boa_daemon.testing import a_class, a_problem, a_trace

PROBLEM = a_problem(a_class(startup_hours=0.1, rescale_hours=0.1))


def test_a_large_budget_buys_the_fastest_widths() -> None:
    """One hour at speed 3 follows the start-up; scales of 1 and 2 average to 1.5 hours of work."""
    trace = a_trace(0.0, 1.0, scales=[1.0, 2.0])

    assert lower_bound_hours(trace, PROBLEM, 1e6) == pytest.approx(0.1 + 1.5 / 3.0)


def test_the_least_budget_buys_the_cheapest_widths() -> None:
    """Two jobs at one GPU take 1.1 GPU-hours each; a smaller budget has an infinite bound."""
    trace = a_trace(0.0, 1.0)

    assert lower_bound_hours(trace, PROBLEM, 2.2) == pytest.approx(1.1)
    assert lower_bound_hours(trace, PROBLEM, 2.1) == math.inf


def test_a_start_up_longer_than_a_rescale_may_be_spent_on_one_gpu() -> None:
    """Without a rescale cost a job starts on one GPU and works on four: 0.1 + 4/3 GPU-hours."""
    problem = a_problem(a_class(startup_hours=0.1))

    assert lower_bound_hours(a_trace(0.0), problem, 0.1 + 4.0 / 3.0) == pytest.approx(0.1 + 1.0 / 3.0)


@pytest.mark.parametrize("money", [0.0, 0.05, 0.1])
def test_a_budget_below_the_start_ups_has_an_infinite_bound(money: float) -> None:
    """A trace of a few seconds has so small a budget; this is no error."""
    problem = a_problem(a_class(startup_hours=0.1))

    assert lower_bound_hours(a_trace(0.0), problem, money) == math.inf


def test_equal_jobs_are_one_group() -> None:
    """Three jobs of scale 1 and one of scale 2 are two classes with three arrivals and one."""
    groups = groups_of(a_trace(*range(4), scales=[1.0, 2.0, 1.0, 1.0]), PROBLEM)

    assert [group.arrivals_per_hour for group in groups.classes] == [3.0, 1.0]


def test_many_scales_are_grouped_and_the_bound_stays_below() -> None:
    """A thousand scales are rounded down to a grid; the bound is at least 0.85 of the exact one."""
    scales = np.random.default_rng(1).lognormal(0.0, 1.0, 1000).tolist()
    trace = a_trace(*range(1000), scales=scales)
    coarse = groups_of(trace, PROBLEM)
    exact = 0.1 + sum(scales) / 1000 / 3.0

    assert len(coarse.classes) <= MOST_GROUPS + 2
    assert sum(group.arrivals_per_hour for group in coarse.classes) == 1000.0
    assert 0.85 * exact < lower_bound_hours(trace, PROBLEM, 1e9) <= exact
