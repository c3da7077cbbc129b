"""Deadlines kept by the daemon's own tick: `decide()` at every look, on Markov spot markets."""

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
    """Return `benchmarks/deadlines.py`, which has the markets and the tick."""
    return benchmark_module("deadlines")


@pytest.fixture(scope="module")
def ticks(benchmark: ModuleType) -> Callable[[float], Any]:
    """Return a function from the hours between looks to a tick; all markets share its decisions."""
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
    """Return the share of dates kept on a market whose spot stays `factor` times as long.

    Spot also returns `factor` times as soon. The cost is below on demand and at most that of the rivals. On
    the market that the tick believes in, cost and share are the stated ones.
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
def test_the_tick_keeps_every_date_at_its_stated_cost(
    benchmark: ModuleType, ticks: Callable[[float], Any], case: tuple[float, float], factor: float
) -> None:
    """All 100 jobs meet their dates; on the believed market the cost is within 10 % of the stated one.

    The mean cost of only 100 jobs varies by a tenth.
    """
    assert kept(benchmark, ticks, factor, jobs=100, case=case, may_differ=0.1) == 1.0


@pytest.mark.exhaustive
@pytest.mark.parametrize("look_hours", [LOOK_HOURS, 0.025])
def test_the_tick_keeps_thousands_of_dates(
    benchmark: ModuleType, ticks: Callable[[float], Any], look_hours: float
) -> None:
    """99.9 % of dates are kept with the right rates, and 99 % with rates wrong by a factor of two.

    The cost is within 5 % of the stated one. There are 10,000 jobs, or 2,000 with looks every minute and a
    half, where there are four times as many states. Tens of thousands of states take a millisecond each, so
    the test is `exhaustive`. One test covers all markets because they share states.
    """
    jobs = 10_000 if look_hours == LOOK_HOURS else 2_000
    for case in (TIGHT, (6.0, 7.0), ROOMY) if look_hours == LOOK_HOURS else (TIGHT,):
        for factor, least in ((1.0, 0.999), (0.5, 0.99), (2.0, 0.99)):
            share = kept(benchmark, ticks, factor, jobs=jobs, case=case, look_hours=look_hours)
            assert share >= least, (case, factor)


@pytest.mark.parametrize("slack_hours", [0.0, 0.001, 0.02, 0.05])
@pytest.mark.parametrize("held", [3, 6])
def test_a_job_at_its_fastest_width_keeps_it_while_the_date_is_possible(
    benchmark: ModuleType, slack_hours: float, held: int
) -> None:
    """On demand and on spot the width stays; with more work than fits, the date is missed for sure."""
    widths = benchmark.rungs(1, 2, 4)
    tick = benchmark.Tick(widths, step_hours=0.1)
    work = (0.3 - slack_hours) * widths[-1].speed
    chosen, note = tick.decided(3, work, held, is_up=True)

    assert chosen == held
    assert note.kept >= (0.999 if held == 3 else 0.9)
    assert tick.decided(3, (0.3 + 0.01) * widths[-1].speed, held, is_up=True)[1].kept == 0.0
