"""Dates that the daemon's own tick keeps: `decide()` at every look of jobs on Markov spot markets."""

from __future__ import annotations

from types import ModuleType

import pytest
from benchmark_modules import benchmark_module

from policies.online.deadlines import NOTHING, SpotMarket

WORK_HOURS, DATE_HOURS, LOOK_HOURS = 16.0, 6.0, 0.1
BELIEVED = SpotMarket()


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    """Return benchmarks/deadlines.py, whose markets and whose tick these are."""
    return benchmark_module("deadlines")


def kept(benchmark: ModuleType, factor: float, *, jobs: int, look_hours: float = LOOK_HOURS) -> float:
    """Return the share kept where spot stays so many times as long, and comes back as much sooner."""
    market = SpotMarket(up_hours=BELIEVED.up_hours * factor, down_hours=BELIEVED.down_hours / factor)
    widths = benchmark.rungs(1, 2, 4)
    tick = benchmark.Tick(widths, step_hours=look_hours)
    _, note = tick.decided(round(DATE_HOURS / look_hours), WORK_HOURS, NOTHING, is_up=True)
    found = benchmark.simulate(
        widths, market, DATE_HOURS, tick, jobs=jobs, work_hours=WORK_HOURS, step_hours=look_hours
    )
    assert found.usd < WORK_HOURS / benchmark.EFFICIENCY[4]
    if factor == 1.0:
        assert found.kept >= note.kept - 0.001
    return float(found.kept)


@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_the_tick_keeps_its_dates(benchmark: ModuleType, factor: float) -> None:
    """All of 200 jobs, where nine in ten were kept before the tick held its own looks in reserve."""
    assert kept(benchmark, factor, jobs=200) == 1.0


@pytest.mark.exhaustive
@pytest.mark.parametrize("look_hours", [0.1, 0.025])
@pytest.mark.parametrize(("factor", "least"), [(1.0, 0.999), (0.5, 0.99), (2.0, 0.99)])
def test_the_tick_keeps_10000_dates(
    benchmark: ModuleType, factor: float, least: float, look_hours: float
) -> None:
    """99.9 % with the rates that it believes, 99 % where they are wrong by two.

    Tens of thousands of states are decided, a millisecond each, so it is among the long tests.
    """
    assert kept(benchmark, factor, jobs=10_000, look_hours=look_hours) >= least


@pytest.mark.parametrize("slack_hours", [0.0, 0.001, 0.02, 0.05])
@pytest.mark.parametrize("held", [3, 6])
def test_what_works_at_its_fastest_is_not_given_up_while_it_may_still_make_it(
    benchmark: ModuleType, slack_hours: float, held: int
) -> None:
    """On demand or on spot, whatever grid a programme has; a second too few is too few."""
    widths = benchmark.rungs(1, 2, 4)
    tick = benchmark.Tick(widths, step_hours=0.1)
    work = (0.3 - slack_hours) * widths[-1].speed
    chosen, note = tick.decided(3, work, held, is_up=True)

    assert chosen == held
    assert note.kept >= (0.999 if held == 3 else 0.9)
    assert tick.decided(3, (0.3 + 0.01) * widths[-1].speed, held, is_up=True)[1].kept == 0.0
