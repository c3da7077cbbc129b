"""Dates that the daemon's own tick keeps: `decide()` at every look of jobs on Markov spot markets."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from benchmark_modules import benchmark_module

from policies.online.deadlines import SpotMarket

LOOK_HOURS = 0.1
BELIEVED = SpotMarket()
TIGHT, ROOMY = (16.0, 6.0), (6.0, 10.0)
"""Hours of work on one GPU, hours to the date: what only wider jobs can do, and what can wait for spot."""


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    """Return benchmarks/deadlines.py, whose markets and whose tick these are."""
    return benchmark_module("deadlines")


@pytest.fixture(scope="module")
def ticks(benchmark: ModuleType) -> Callable[[float], Any]:
    """Return the tick that looks every so many hours: what it decides in a state holds in every market."""
    return functools.cache(lambda hours: benchmark.Tick(benchmark.rungs(1, 2, 4), step_hours=hours))


def kept(
    benchmark: ModuleType,
    ticks: Callable[[float], Any],
    factor: float,
    *,
    jobs: int,
    case: tuple[float, float] = TIGHT,
    look_hours: float = LOOK_HOURS,
    may_differ: float = 0.05,
) -> float:
    """Return the share kept where spot stays so many times as long, and comes back as much sooner.

    It costs less than on demand, and no more than the rivals that can do it. Where spot is as it is believed
    to be, it costs what was said, and as many dates are kept as was said.
    """
    market = SpotMarket(up_hours=BELIEVED.up_hours * factor, down_hours=BELIEVED.down_hours / factor)
    tick, (work, date) = ticks(look_hours), case

    def simulated(chooser: Callable[..., Any], rungs: list[Any]) -> Any:
        return benchmark.simulate(
            rungs, market, date, chooser, jobs=jobs, work_hours=work, step_hours=look_hours
        )

    found = simulated(tick, tick.widths)
    assert found.usd < work / benchmark.EFFICIENCY[4]
    if work < date and look_hours == LOOK_HOURS:
        rivals = (rival(date, work) for rival in (benchmark.greedy, benchmark.uniform_progress))
        assert found.usd <= min(simulated(rival, benchmark.rungs(1)).usd for rival in rivals)
    if factor == 1.0:
        usd, share = benchmark.stated(tick, work, date)
        assert found.kept >= share - 0.001
        assert found.usd == pytest.approx(usd, rel=may_differ)
    return float(found.kept)


@pytest.mark.parametrize(("case", "factor"), [(TIGHT, 1.0), (TIGHT, 0.5), (ROOMY, 1.0), (ROOMY, 0.5)])
def test_the_tick_keeps_its_dates_for_the_dollars_that_it_said(
    benchmark: ModuleType, ticks: Callable[[float], Any], case: tuple[float, float], factor: float
) -> None:
    """All of 100 jobs; nine in ten were kept before the tick held its own looks in reserve.

    So few jobs cost a tenth more or less than many.
    """
    assert kept(benchmark, ticks, factor, jobs=100, case=case, may_differ=0.1) == 1.0


@pytest.mark.exhaustive
@pytest.mark.parametrize("look_hours", [LOOK_HOURS, 0.025])
def test_the_tick_keeps_thousands_of_dates(
    benchmark: ModuleType, ticks: Callable[[float], Any], look_hours: float
) -> None:
    """99.9 % with the rates that it believes, for what it said within 5 %; 99 % where they are wrong by two.

    Of 10,000 jobs; of 2,000 every minute and a half, where there are four times as many states. Tens of
    thousands are decided, a millisecond each, so it is among the long tests; one test for all markets, as
    these meet the same ones.
    """
    jobs = 10_000 if look_hours == LOOK_HOURS else 2_000
    for case in (TIGHT, (6.0, 7.0), ROOMY) if look_hours == LOOK_HOURS else (TIGHT,):
        for factor, least in ((1.0, 0.999), (0.5, 0.99), (2.0, 0.99)):
            share = kept(benchmark, ticks, factor, jobs=jobs, case=case, look_hours=look_hours)
            assert share >= least, (case, factor)


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
