"""Deadlines: the programme against brute force and closed forms, and the share of dates kept."""

from __future__ import annotations

import math
from functools import cache
from itertools import pairwise
from types import ModuleType

import numpy as np
import pytest
from benchmark_modules import benchmark_module
from hypothesis import given
from hypothesis import strategies as st

from policies.errors import InvalidProblem
from policies.model import Width
from policies.online.date_programme import date_plan
from policies.online.deadlines import MISS_WEIGHT, DateOption, DatePlan, SpotMarket

NO_SPOT = DateOption(width=Width("gpu", 1), speed=1.0, usd_per_hour=2.0)
ONE = DateOption(width=Width("gpu", 1), speed=1.0, usd_per_hour=2.0, spot_usd_per_hour=0.6)
WIDTHS = (
    DateOption(width=Width("gpu", 1), speed=1.0, usd_per_hour=1.0, spot_usd_per_hour=0.3),
    DateOption(width=Width("gpu", 2), speed=1.9, usd_per_hour=2.0, spot_usd_per_hour=0.6),
    DateOption(width=Width("gpu", 4), speed=3.4, usd_per_hour=4.0, spot_usd_per_hour=1.2),
)


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    """Return benchmarks/deadlines.py, with its simulation and its rivals."""
    return benchmark_module("deadlines")


def brute_force(
    *, boot: int, market: SpotMarket, failure_hours: float, steps: int, work: int
) -> tuple[float, float]:
    """Return dollars and probability for one width and hours as steps, by plain recursion."""
    stays, returns = math.exp(-1.0 / market.up_hours), 1.0 - math.exp(-1.0 / market.down_hours)
    safe, miss = math.exp(-1.0 / failure_hours), MISS_WEIGHT * ONE.usd_per_hour * steps
    spot_price = ONE.spot_usd_per_hour or 0.0

    def odds(up: bool, after: int) -> float:
        """Return the probability that spot is available after some steps."""
        found = float(up)
        for _ in range(after):
            found = found * stays + (1.0 - found) * returns
        return found

    def mixed(parts: list[tuple[float, tuple[float, float]]]) -> tuple[float, float]:
        return sum(p * one[0] for p, one in parts), sum(p * one[1] for p, one in parts)

    def hold(time: int, work: int, up: bool, how: str, *, booting: int) -> tuple[float, float]:
        """Return dollars and probability after a boot, or after a step of work."""
        took, done = (booting, 0) if booting else (1, 1)
        if how == "spot":
            kept = stays**took
            ahead = [
                (kept, best(time - took, work - done, True, how)),
                (1.0 - kept, best(time - took, work, False, "")),
            ]
            price = spot_price
        else:
            kept, chance = safe**took, odds(up, took)
            ahead = [
                (part * share, best(time - took, left, at_up, holds))
                for part, left, holds in ((kept, work - done, how), (1.0 - kept, work, ""))
                for share, at_up in ((chance, True), (1.0 - chance, False))
            ]
            price = ONE.usd_per_hour
        usd, probability = mixed(ahead)
        return usd + price * took, probability

    @cache
    def best(time: int, work: int, up: bool, holds: str) -> tuple[float, float]:
        if work == 0:
            return 0.0, 1.0
        if time == 0:
            return 0.0, 0.0
        chance = odds(up, 1)
        found = [
            mixed([(chance, best(time - 1, work, True, "")), (1.0 - chance, best(time - 1, work, False, ""))])
        ]
        for how in ("demand", *(["spot"] if up else [])):
            if holds == how:
                found.append(hold(time, work, up, how, booting=0))
            elif time >= boot:
                found.append(hold(time, work, up, how, booting=boot))
        return min(found, key=lambda one: one[0] + miss * (1.0 - one[1]))

    return best(steps, work, True, "")


@pytest.mark.parametrize("boot", [0, 1, 2])
@pytest.mark.parametrize("up_hours", [1.0, 5.0])
@pytest.mark.parametrize("work", [1, 4, 7, 9])
def test_the_plan_is_as_good_as_brute_force(boot: int, up_hours: float, work: int) -> None:
    """Brute force looks at every course over nine steps."""
    market = SpotMarket(up_hours=up_hours, down_hours=2.0)
    plan = date_plan(
        [ONE], horizon_hours=9.0, boot_hours=float(boot), market=market, failure_hours=40.0, steps=9
    )
    usd, kept = brute_force(boot=boot, market=market, failure_hours=40.0, steps=9, work=work)
    advice = plan.advise(9.0, float(work))

    assert (advice.usd, advice.kept) == pytest.approx((usd, kept), abs=2e-6)


def test_on_demand_alone_costs_boot_and_work() -> None:
    """Without failures: 2 USD per hour for a boot of half an hour and six hours of work."""
    plan = date_plan([NO_SPOT], horizon_hours=10.0, boot_hours=0.5, failure_hours=1e12, steps=100)
    advice = plan.advise(10.0, 6.0)

    assert advice.usd == pytest.approx(13.0)
    assert advice.kept == pytest.approx(1.0)
    assert plan.advise(6.4, 6.0).kept == 0.0
    assert plan.advise(6.5, 6.0).kept == pytest.approx(1.0)
    assert plan.advise(6.5, 6.0).width == NO_SPOT.width
    assert plan.dates(6.0, least=0.99)[0] == (pytest.approx(6.5), pytest.approx(13.0))
    assert plan.dates(9.9, least=0.99) == []


def test_spot_is_used_while_safe_and_on_demand_in_time() -> None:
    """With a day in hand the job takes spot or waits for spot; with 0.3 hours in hand it runs on demand."""
    plan = date_plan(WIDTHS[:1], horizon_hours=72.0, boot_hours=0.1, steps=720)

    assert not plan.advise(72.0, 48.0).is_firm
    assert plan.advise(72.0, 48.0, is_up=False).width is None
    assert plan.advise(48.3, 48.0, is_up=False).is_firm
    spot = plan.advise(49.0, 48.0, held=WIDTHS[0].width, is_spot=True)
    assert (spot.width, spot.is_firm) == (WIDTHS[0].width, False)


def test_less_time_costs_more_and_more_widths_cost_less() -> None:
    """Dollars and missed dates are weighed together; three widths cost less than one."""
    plan = date_plan(WIDTHS, horizon_hours=40.0, boot_hours=0.1, steps=200)
    at = [plan.advise(hours, 8.0) for hours in (8.4, 9.0, 10.0, 12.0, 20.0, 40.0)]
    weighed = [one.usd + MISS_WEIGHT * 160.0 * (1.0 - one.kept) for one in at]
    alone = date_plan(WIDTHS[2:], horizon_hours=40.0, boot_hours=0.1, steps=200).advise(40.0, 8.0)

    assert all(more <= less + 1e-6 for less, more in pairwise(weighed))
    assert at[-1].usd < alone.usd


def kept(benchmark: ModuleType, plan: DatePlan, market: SpotMarket) -> float:
    """Return the share of 10,000 jobs of 16 GPU-hours that end within six hours."""
    choose = benchmark.by_plan(plan, list(WIDTHS))
    found = benchmark.simulate(list(WIDTHS), market, 6.0, choose, jobs=10_000, work_hours=16.0)
    return float(found.kept)


@pytest.mark.parametrize("factor", [1.0, 0.5, 2.0])
def test_dates_are_kept_on_markets_with_other_rates(benchmark: ModuleType, factor: float) -> None:
    """99.9 % of 10,000 jobs with the right rates, and 99 % with rates wrong by a factor of two."""
    plan = date_plan(
        WIDTHS, horizon_hours=6.0, boot_hours=0.1, market=SpotMarket(up_hours=2.0, down_hours=2.0), steps=60
    )

    found = kept(benchmark, plan, SpotMarket(up_hours=2.0 * factor, down_hours=2.0 / factor))

    assert found >= (0.999 if factor == 1.0 else 0.99)
    assert found >= plan.advise(6.0, 16.0 / 3.4).kept - 0.001


@pytest.mark.exhaustive
def test_the_plan_costs_less_than_the_rivals_and_keeps_as_many_dates(benchmark: ModuleType) -> None:
    """Two days of work in 52 hours: 10,000 jobs over 520 steps; a smaller sample shows too little."""
    market = SpotMarket(up_hours=4.0, down_hours=2.0)
    one, many = benchmark.rungs(1), benchmark.rungs(1, 2, 4)
    plan = date_plan(many, horizon_hours=52.0, boot_hours=0.1, market=market, steps=520)
    mine = benchmark.simulate(many, market, 52.0, benchmark.by_plan(plan, many), jobs=10_000)
    rivals = [
        benchmark.simulate(one, market, 52.0, rival, jobs=10_000)
        for rival in (benchmark.on_demand, benchmark.greedy(52.0), benchmark.uniform_progress(52.0))
    ]

    assert mine.kept >= max(0.999, *(rival.kept for rival in rivals)) - 1e-3
    assert mine.usd < 0.7 * min(rival.usd for rival in rivals)


ROOMY = date_plan(WIDTHS, horizon_hours=10.0, boot_hours=0.3, steps=100)


@given(
    hours=st.floats(0.0, 12.0),
    works=st.tuples(st.floats(0.0, 40.0), st.floats(0.0, 40.0)),
    held=st.sampled_from([None, *(rung.width for rung in WIDTHS)]),
)
def test_impossible_dates_have_probability_zero_and_less_work_is_safer(
    hours: float, works: tuple[float, float], held: Width | None
) -> None:
    """For any width held, and for more work than the plan has cells."""
    less, more = (ROOMY.advise(hours, work, held=held).kept for work in sorted(works))
    assert less >= more - 1e-6
    if max(works) > min(hours, 10.0) + 1e-6:
        assert more == 0.0


def test_more_work_than_the_horizon_has_no_date() -> None:
    """Without a boot ten hours of work fit a horizon of ten hours, and 10.2 hours do not."""
    plan = date_plan([NO_SPOT], horizon_hours=10.0, boot_hours=0.0, failure_hours=1e12, steps=100)
    assert plan.dates(10.0, least=0.99)[0][0] == pytest.approx(10.0)
    assert plan.dates(10.2, least=0.0) == []


@pytest.mark.parametrize(("up", "down", "date"), [(4.0, 2.0, 52.0), (2.0, 4.0, 60.0), (8.0, 1.0, 56.0)])
def test_no_policy_pays_less_than_hindsight(
    benchmark: ModuleType, up: float, down: float, date: float
) -> None:
    """On the same draws, on average: the plan with one width and with three, and every rival."""
    market = SpotMarket(up_hours=up, down_hours=down)
    for gpus in ((1,), (1, 2, 4)):
        widths = benchmark.rungs(*gpus)
        least = benchmark.hindsight(widths, market, date, jobs=200)
        plan = date_plan(
            widths, horizon_hours=date, boot_hours=benchmark.BOOT_HOURS, market=market, steps=120
        )
        chosen = [benchmark.by_plan(plan, widths)]
        if gpus == (1,):
            chosen += [benchmark.greedy(date), benchmark.uniform_progress(date), benchmark.on_demand]
        for choose in chosen:
            assert benchmark.simulate(widths, market, date, choose, jobs=200).usd >= least


def test_hindsight_without_spot_pays_on_demand(benchmark: ModuleType) -> None:
    """Where spot is hardly ever available 48 hours cost 48 dollars; where it always is, 0.3 of that."""
    (one,) = benchmark.rungs(1)

    never = benchmark.hindsight([one], SpotMarket(up_hours=1e-6, down_hours=1e6), 60.0, jobs=50)
    assert never == pytest.approx(48.0, abs=0.1)
    always = benchmark.hindsight([one], SpotMarket(up_hours=1e6, down_hours=1e-6), 60.0, jobs=50)
    assert always == pytest.approx(0.3 * 48.0, abs=0.1)


def a_grid(on_spot: tuple[int, ...] = ()) -> DatePlan:
    """Return a plan of three steps of half an hour over three widths, whose grids are all zero."""
    shape = (4, 7, 2, 4)
    usd, kept = (np.zeros(shape, dtype=np.float32) for _ in range(2))
    best = np.zeros(shape, dtype=np.uint8)
    return DatePlan(rungs=WIDTHS, step_hours=0.5, best=best, usd=usd, kept=kept, on_spot=on_spot)


@pytest.mark.parametrize(
    ("held", "is_spot", "number"),
    [
        (None, False, 0),
        (Width("gpu", 1), False, 1),
        (Width("gpu", 2), False, 2),
        (Width("gpu", 3), False, 2),
        (Width("gpu", 9), False, 3),
        (Width("new", 9), False, 0),
        (Width("gpu", 1), True, 4),
        (Width("gpu", 2), True, 2),
        (Width("gpu", 4), True, 6),
    ],
)
def test_a_held_width_counts_as_the_widest_planned_width_within_it(
    held: Width | None, is_spot: bool, number: int
) -> None:
    """0 is no width, 1 to 3 are on demand, 4 to 6 are on spot; the second width is not planned on spot."""
    assert a_grid((4, 6)).configuration(held, is_spot=is_spot) == number


@pytest.mark.parametrize(
    ("hours", "work", "cell"),
    [
        (0.0, 0.0, (0, 0)),
        (0.49, 0.01, (0, 1)),
        (0.5, 0.5, (1, 1)),
        (1.0, 0.51, (2, 2)),
        (9.0, 9.0, (3, 3)),
        (-1.0, -1.0, (0, 0)),
    ],
)
def test_time_is_rounded_down_and_work_up(hours: float, work: float, cell: tuple[int, int]) -> None:
    """Both are rounded to the safe side and clipped to the grid."""
    assert a_grid().cells(hours, work) == cell


@pytest.mark.parametrize(
    ("chosen", "width", "is_firm"),
    [(0, None, False), (1, 1, True), (3, 4, True), (4, 1, False), (6, 4, False)],
)
def test_advice_names_the_width_and_the_market_that_are_best(
    chosen: int, width: int | None, is_firm: bool
) -> None:
    """Numbers 1 to 3 are on demand, 4 to 6 on spot; more work than fits misses its date."""
    plan = a_grid((4, 5, 6))
    plan.best[:], plan.kept[:], plan.usd[:] = chosen, 0.75, 2.5
    advice = plan.advise(1.5, 1.5)
    assert advice.width == (None if width is None else Width("gpu", width))
    assert (advice.is_firm, advice.usd, advice.kept) == (is_firm, 2.5, 0.75)
    assert plan.advise(1.5, 1.51).kept == 0.0
    assert [hours for hours, _ in plan.dates(1.5, least=0.75)] == [0.0, 0.5, 1.0, 1.5]
    assert plan.dates(1.51, least=0.75) == plan.dates(1.5, least=0.76) == []


def test_advice_depends_on_the_width_held_and_on_available_spot() -> None:
    """Each combination of time, work, width held and spot has its own cell."""
    plan = a_grid((4, 5, 6))
    plan.usd[:] = np.arange(plan.usd.size).reshape(plan.usd.shape)
    found = {
        plan.advise(hours, work, held=held, is_spot=is_spot, is_up=is_up).usd
        for hours in (0.5, 1.0)
        for work in (0.5, 1.0)
        for held, is_spot in ((None, False), (Width("gpu", 1), False), (Width("gpu", 1), True))
        for is_up in (False, True)
    }
    assert len(found) == 2 * 2 * 3 * 2


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan])
def test_speeds_prices_and_markets_are_positive(value: float) -> None:
    """Fractions are allowed."""
    for field in ("speed", "usd_per_hour"):
        with pytest.raises(InvalidProblem, match=field):
            DateOption(**{"width": Width("gpu", 1), "speed": 0.5, "usd_per_hour": 0.5} | {field: value})  # type: ignore[arg-type]
    for field in ("up_hours", "down_hours"):
        with pytest.raises(InvalidProblem, match=field):
            SpotMarket(**{field: value})
    assert (SpotMarket(up_hours=0.5).up_hours, SpotMarket(down_hours=0.5).down_hours) == (0.5, 0.5)
