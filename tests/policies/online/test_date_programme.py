"""The deadline programme on its grid, against plain recursion over every course of two widths."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import pytest

from policies.errors import InvalidProblem
from policies.model import Width
from policies.online.date_programme import KEPT, _solved, date_plan
from policies.online.deadlines import MISS_WEIGHT, NO_WIDTH, DateOption, SpotMarket

HOURS = 0.5
"""A step."""
FAILS = 30.0
MARKET = SpotMarket(up_hours=3.0, down_hours=1.5)
FAST = DateOption(width=Width("gpu", 2), speed=1.0, usd_per_hour=3.0, spot_usd_per_hour=1.1)
SLOW = DateOption(width=Width("gpu", 1), speed=0.5, usd_per_hour=1.0)
WIDTHS = (SLOW, FAST)


def by_recursion(steps: int, work: float, *, boot: int) -> tuple[float, float]:
    """Return dollars and probability over all courses, from no width held and spot available.

    A work left between two cells is interpolated.
    """
    stays, returns = math.exp(-HOURS / MARKET.up_hours), 1.0 - math.exp(-HOURS / MARKET.down_hours)
    miss = MISS_WEIGHT * 3.0 * steps * HOURS

    def odds(up: bool, after: int) -> float:
        found = float(up)
        for _ in range(after):
            found = found * stays + (1.0 - found) * returns
        return found

    def between(time: int, work: float, up: bool, holds: tuple[int, bool] | None) -> tuple[float, float]:
        """Return dollars and probability at a work left that may lie between two cells."""
        low, part = math.floor(work + 1e-9), work - math.floor(work + 1e-9)
        below = best(time, low, up, holds)
        above = best(time, low + 1, up, holds) if part > 0.0 else below
        return tuple(b + part * (a - b) for b, a in zip(below, above, strict=True))  # type: ignore[return-value]

    def hold(time: int, work: int, up: bool, how: tuple[int, bool], booting: int) -> tuple[float, float]:
        rung, is_spot = WIDTHS[how[0]], how[1]
        took = booting or 1
        left = float(work) if booting else max(work - rung.speed, 0.0)
        safe = (stays if is_spot else math.exp(-HOURS / FAILS)) ** took
        up_then = {True: 1.0} if is_spot else {True: odds(up, took), False: 1.0 - odds(up, took)}
        lost_then = {False: 1.0} if is_spot else up_then
        rows = [
            *((safe * p, between(time - took, left, at, how)) for at, p in up_then.items()),
            *(((1.0 - safe) * p, best(time - took, work, at, None)) for at, p in lost_then.items()),
        ]
        price = rung.spot_usd_per_hour if is_spot else rung.usd_per_hour
        pays = (price or 0.0) * HOURS * (booting or min(work / rung.speed, 1.0))
        return sum(p * one[0] for p, one in rows) + pays, sum(p * one[1] for p, one in rows)

    @cache
    def best(time: int, work: int, up: bool, holds: tuple[int, bool] | None) -> tuple[float, float]:
        if work == 0:
            return 0.0, 1.0
        if time == 0:
            return 0.0, 0.0
        chance = odds(up, 1)
        later = [
            (chance, best(time - 1, work, True, None)),
            (1.0 - chance, best(time - 1, work, False, None)),
        ]
        found = [(sum(p * one[0] for p, one in later), sum(p * one[1] for p, one in later))]
        for how in ((0, False), (1, False), *([(1, True)] if up else [])):
            if holds == how:
                found.append(hold(time, work, up, how, 0))
            elif time >= boot:
                found.append(hold(time, work, up, how, boot))
        return min(found, key=lambda one: one[0] + miss * (1.0 - one[1]))

    return best(steps, int(work), True, None)


@pytest.mark.parametrize("boot", [0, 1, 2])
@pytest.mark.parametrize("work", [1, 2, 3, 5, 7, 8])
def test_no_course_of_two_widths_is_better_than_the_plan(boot: int, work: int) -> None:
    """The slow width ends between two cells of the grid; only the fast one is offered on spot."""
    plan = date_plan(
        WIDTHS,
        horizon_hours=8 * HOURS,
        boot_hours=boot * HOURS,
        market=MARKET,
        failure_hours=FAILS,
        steps=8,
    )
    advice = plan.advise(8 * HOURS, work * HOURS)
    assert (advice.usd, advice.kept) == pytest.approx(by_recursion(8, work, boot=boot), abs=1e-5)
    assert plan.on_spot == (4,)


@pytest.mark.parametrize(
    ("boot_hours", "usd"), [(0.0, 6.0), (0.4, 8.0), (0.5, 8.0), (0.51, 10.0), (1.0, 10.0)]
)
def test_a_boot_takes_whole_steps_and_is_paid(boot_hours: float, usd: float) -> None:
    """Steps of half an hour at 4 USD; an hour and a half of work. Nothing fails, and there is no spot."""
    alone = DateOption(width=Width("gpu", 1), speed=1.0, usd_per_hour=4.0)
    plan = date_plan([alone], horizon_hours=5.0, boot_hours=boot_hours, failure_hours=1e15, steps=10)
    assert plan.advise(5.0, 1.5).usd == pytest.approx(usd)
    least = 1.5 + math.ceil(boot_hours / 0.5) * 0.5
    assert plan.dates(1.5, least=0.99)[0][0] == pytest.approx(least)


def test_only_the_ratios_of_speeds_matter() -> None:
    """Speeds of 3 and 6 give the same plan as 0.5 and 1, spot included."""
    twice = [replace(rung, speed=6.0 * rung.speed) for rung in WIDTHS]
    given = {"horizon_hours": 4.0, "boot_hours": 0.5, "market": MARKET, "steps": 8}
    assert date_plan(twice, **given) is date_plan(WIDTHS, **given)  # type: ignore[arg-type]


def test_solved_plans_are_cached_up_to_a_limit() -> None:
    """The same plan is returned from a cache of `KEPT` plans."""
    assert date_plan([SLOW], horizon_hours=2.0, boot_hours=0.0, steps=4) is date_plan(
        [SLOW], horizon_hours=2.0, boot_hours=0.0, steps=4
    )
    assert _solved.cache_info().maxsize == KEPT


@pytest.mark.parametrize("hours", [0.0, -1.0])
def test_a_horizon_is_positive(hours: float) -> None:
    """A horizon that is not positive is refused."""
    with pytest.raises(InvalidProblem, match="horizon_hours"):
        date_plan(WIDTHS, horizon_hours=hours, boot_hours=0.0)


def test_finished_work_holds_no_width_and_work_without_time_misses_its_date() -> None:
    """For every width held; all probabilities are from 0 to 1."""
    plan = date_plan(WIDTHS, horizon_hours=4.0, boot_hours=0.5, market=MARKET, steps=8)
    assert (plan.best[..., 0] == NO_WIDTH).all()
    assert (plan.usd[..., 0] == 0.0).all()
    assert (plan.kept[..., 0] == 1.0).all()
    assert (plan.kept[0, ..., 1:] == 0.0).all()
    assert (plan.kept <= 1.0 + 1e-6).all()
    assert (plan.kept >= 0.0).all()
    assert plan.best.shape == plan.usd.shape == plan.kept.shape == (9, 5, 2, 9)


def test_no_choice_uses_spot_while_spot_is_unavailable() -> None:
    """The slow width, which is on demand only, is never chosen on spot."""
    plan = date_plan(WIDTHS, horizon_hours=10.0, boot_hours=0.5, market=MARKET, steps=20)
    down = plan.best[:, :, 0, :]
    assert set(down.ravel().tolist()) <= {0, 1, 2}
    assert 4 in plan.best[:, :, 1, :]
    assert 3 not in plan.best, "the slow width is on demand alone"


def test_work_starts_at_once_where_waiting_gains_nothing() -> None:
    """On demand alone waiting gains nothing, however much time there is."""
    alone = DateOption(width=Width("gpu", 1), speed=1.0, usd_per_hour=4.0)
    plan = date_plan([alone], horizon_hours=10.0, boot_hours=0.5, failure_hours=1e15, steps=20)
    for work in (0.5, 3.0, 9.0):
        assert plan.advise(10.0, work).width == alone.width


def test_spot_without_interruptions_costs_its_price_alone() -> None:
    """Two hours and a boot of half an hour at 1.1 USD per hour."""
    always = SpotMarket(up_hours=1e12, down_hours=1.0)
    plan = date_plan([FAST], horizon_hours=10.0, boot_hours=0.5, market=always, steps=20)
    advice = plan.advise(10.0, 2.0)
    assert advice.usd == pytest.approx(1.1 * 2.5, abs=1e-4)
    assert not advice.is_firm
