"""The price of a promise: nothing on an even load, more on a rough one, bounded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from load_scenarios import PROBLEM

from policies.online.foretold import (
    PromisePrice,
    drawn_again,
    drawn_by_grain,
    equal_jobs,
    promises,
    steps_of,
)
from policies.online.multiplier_table import MultiplierTable
from policies.online.pacing import Pace
from policies.online.rhythm import SeenLoad
from policies.optimum.frontier import MixedFrontier

TABLE = MultiplierTable.of(PROBLEM)
PRICE = PromisePrice(table=TABLE, frontier=MixedFrontier.of(PROBLEM))
PACE = Pace(budget=60.0, grain_hours=TABLE.grain_hours(60.0), price=PRICE)
STRICT = replace(PACE, period="month", tolerance=0.02)
ROUGH = np.where(np.arange(2160) // 168 % 2 == 0, 1.9, 0.1)


def test_an_even_load_costs_nothing() -> None:
    """The law is then the plan for the whole period, but for the first hours without jobs."""
    assert PACE.loss(np.ones(2160)) == pytest.approx(0.0, abs=5e-4)
    assert replace(PACE, price=None).loss(np.ones(2160)) is None


def test_a_stricter_promise_costs_more_on_a_rough_load() -> None:
    """A month that is busy in every other week."""
    strict, wide = STRICT.loss(ROUGH), PACE.loss(ROUGH)

    assert strict is not None
    assert wide is not None
    assert 0.0 <= wide <= strict
    assert strict > 0.002


@pytest.mark.parametrize("rarer", [30.0, 100.0])
def test_a_strict_promise_costs_few_large_jobs_little(rarer: float) -> None:
    """Jobs so many times as large and as rare: no price is paid for what only chance can keep even."""
    classes = tuple(
        replace(
            c,
            arrivals_per_hour=c.arrivals_per_hour / rarer,
            phases=tuple(replace(p, size_gpu_hours=rarer * p.size_gpu_hours) for p in c.phases),
        )
        for c in PROBLEM.classes
    )
    problem = replace(PROBLEM, classes=classes)
    table = MultiplierTable.of(problem)
    price = PromisePrice(table=table, frontier=MixedFrontier.of(problem))
    pace = Pace(budget=60.0, grain_hours=table.grain_hours(60.0), price=price)
    losses = [one.loss() for one in promises(pace)]

    assert all(loss is not None and 0.0 <= loss < 0.01 for loss in losses), losses


@pytest.mark.parametrize("bursts", [1, 10, 1000])
def test_the_loss_is_bounded_by_the_ends_of_the_frontier(bursts: int) -> None:
    """However rough the load."""
    loads = np.zeros(744)
    loads[:: max(1, 744 // bursts)] = 1.0
    frontier = MixedFrontier.of(PROBLEM)
    ends = frontier.mean_jct_at(np.array([frontier.cheapest_feasible_spend, frontier.largest_useful_spend]))
    loss = STRICT.loss(loads)

    assert loss is not None
    assert 0.0 <= loss <= ends[0] / ends[1] - 1.0


def test_there_is_no_price_without_a_load_or_a_sufficient_budget() -> None:
    """None says that it is not known."""
    assert PACE.loss(np.zeros(100)) is None
    assert replace(PACE, budget=1.0).loss() is None


def test_drawn_loads_have_the_noise_of_the_grain_and_the_weeks_that_were_seen() -> None:
    """And the same draws each time."""
    drawn = drawn_by_grain(0.5, 20_000.0)
    assert drawn.var() == pytest.approx(1.0, rel=0.1)
    assert np.array_equal(drawn, drawn_by_grain(0.5, 20_000.0))
    seen = np.arange(3.0 * 168.0)
    again = drawn_again(seen, 1000.0)
    assert again is not None
    assert again.shape == (4, 1000)
    assert set(np.unique(again[:, :168] // 168)) <= {0.0, 1.0, 2.0}
    assert drawn_again(seen[:200], 1000.0) is None


def test_the_chosen_promise_comes_first_and_once() -> None:
    """Others stand beside it."""
    named = [(one.period, one.tolerance) for one in promises(PACE)]
    assert named == [("quarter", 0.1), ("month", 0.02), ("month", 0.1), ("year", 0.1)]


def test_the_law_sees_the_jobs_of_a_burst_one_by_one() -> None:
    """A month's tenth that comes in one hour as 100 jobs costs more than as one job, and is 100 steps."""
    load = np.where(np.arange(744) == 400, 82.0, 1.0)
    one, many = np.ones(744), np.where(np.arange(744) == 400, 100.0, 1.0)
    strict = replace(STRICT, tolerance=0.05)
    losses = [strict.loss(SeenLoad(work=load, jobs=jobs)) for jobs in (one, many)]
    assert losses[0] is not None
    assert losses[1] is not None
    assert losses[1] > 1.2 * losses[0]
    hours, work = steps_of(load / load.mean(), many, 8.0)
    assert (hours < 0.02).sum() == 100
    assert hours.sum() == pytest.approx(744.0)
    assert work.sum() == pytest.approx(744.0)


def test_jobs_of_unlike_sizes_count_as_fewer_equal_ones() -> None:
    """Two of 1 and 3 GPU-hours count as 16 / 10 jobs; an hour without jobs has none."""
    seen = SeenLoad.of(np.array([0, 0, 2]), np.array([1.0, 3.0, 2.0]))
    assert seen.work.tolist() == [4.0, 0.0, 2.0]
    assert seen.jobs.tolist() == pytest.approx([1.6, 0.0, 1.0])


def test_equal_jobs_of_a_period_are_those_that_were_seen_or_of_the_grain() -> None:
    """A hundred equal jobs in a month are 300 a quarter; one as large as all others counts for most."""
    hours = np.append(np.arange(0, 720, 7), 729)[:100]
    equal = SeenLoad.of(np.append(hours[:-1], 729), np.ones(100))
    unlike = SeenLoad.of(np.append(hours[:-1], 729), np.append(np.ones(99), 99.0))

    assert equal_jobs(PACE, equal) == pytest.approx(300.0)
    assert equal_jobs(PACE, unlike) == pytest.approx(3.0 * 198.0**2 / (99.0 + 99.0**2))
    assert equal_jobs(PACE) == pytest.approx(PACE.period_hours / (2.0 * PACE.grain_hours))


@pytest.mark.parametrize("hours_between", [1, 6, 24, 72])
@pytest.mark.parametrize("tolerance", [0.02, 0.1])
def test_few_jobs_have_a_range_and_many_have_one_figure(hours_between: int, tolerance: float) -> None:
    """Jobs of unlike sizes at random hours; the figure of the load as it came is within its range."""
    rng = np.random.default_rng(hours_between)
    hours = np.append(rng.integers(0, 2190, 2190 // hours_between), 2189)
    seen = SeenLoad.of(hours, rng.exponential(1.0, len(hours)))
    pace = replace(STRICT, tolerance=tolerance)
    found = pace.foretell(seen)

    assert found is not None
    assert found.is_coarse is (equal_jobs(pace, seen) < (2.0 / tolerance) ** 2)
    assert found.least <= found.mean <= found.most
    assert (found.least < found.most) is found.is_coarse
    assert found.mean == pytest.approx(pace.loss(seen))


def test_a_coarse_load_that_was_not_seen_is_drawn_more_often() -> None:
    """A grain of a day leaves 15 equal jobs in a month."""
    found = replace(STRICT, grain_hours=24.0).foretell()

    assert found is not None
    assert found.is_coarse
    assert found.jobs == pytest.approx(730.0 / 48.0)
    assert found.least < found.mean < found.most
