"""The control law is monotone, bounded, free of oscillation, and independent of the unit of money."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from load_scenarios import PROBLEM
from unnamed import by_place, hidden, hurried, unnamed

import policies.online
from policies.errors import InvalidProblem
from policies.model import GpuType, Money
from policies.online.multiplier_table import MultiplierTable
from policies.online.pacing import MONTH_HOURS, MOST_PRICE, BlockSums, Evidence, Pace, Step, pace_step
from policies.speedup import Floats

PACE = Pace(budget=60.0, grain_hours=0.05, period="month", tolerance=0.02)
"""A strict promise for each month; the default is a tenth of each quarter."""
TABLE = MultiplierTable.of(PROBLEM)
spent = st.floats(0.0, 50_000.0)
elapsed = st.floats(0.0, 730.0)
present = st.lists(st.floats(0.0, 100.0), min_size=3, max_size=3).map(np.array)


def books(
    *,
    spent: float = 0.0,
    elapsed_hours: float = 0.0,
    is_refused: bool = False,
    memory: tuple[float, ...] = (),
) -> Money:
    """Return the money of a ledger opened at the start of a 730-hour month, 6 minutes after a tick."""
    return Money(
        spent=spent,
        elapsed_hours=elapsed_hours,
        period_elapsed_hours=elapsed_hours % MONTH_HOURS,
        period_left_hours=MONTH_HOURS - elapsed_hours % MONTH_HOURS,
        is_refused=is_refused,
        memory=memory,
        memory_age_hours=0.1,
    )


def fluid_run(pace: Pace, load: Floats, *, noise: Floats | None = None) -> tuple[list[Step], Floats]:
    """Run the law in the fluid limit: each hour a factor times the stated load comes and is paid at once."""
    steps, paid, spent_usd, memory = list[Step](), list[float](), 0.0, tuple[float, ...]()
    for hour, factor in enumerate(load.tolist()):
        money = books(spent=spent_usd, elapsed_hours=float(hour), memory=memory)
        step = pace_step(pace, TABLE, np.zeros(3), replace(money, memory_age_hours=1.0 if memory else 0.0))
        extra = 0.0 if noise is None else pace.budget * float(noise[hour])
        spent_usd, memory = (
            spent_usd + factor * TABLE.cost_at(TABLE.rates, step.position) + extra,
            step.memory,
        )
        steps.append(step)
        paid.append(spent_usd)
    return steps, np.array(paid)


def day_and_night(hours: int) -> Floats:
    """Return 1.6 times the load from 8 to 20 h, 0.4 times at night."""
    hour = np.arange(hours) % 24
    return np.where((hour >= 8) & (hour < 20), 1.6, 0.4)


@example(jobs=np.zeros(3), hours=547.9, low=45_691.0, high=46_691.0)  # A debt that lengthens the horizon.
@given(jobs=present, hours=elapsed, low=spent, high=spent)
def test_more_money_spent_never_means_wider_jobs(jobs: Floats, hours: float, low: float, high: float) -> None:
    """The multiplier does not fall as the money spent rises, up to rounding."""
    low, high = sorted((low, high))
    less, more = (
        pace_step(PACE, TABLE, jobs, books(spent=s, elapsed_hours=hours)).position for s in (low, high)
    )

    assert more.multiplier >= less.multiplier * (1.0 - 1e-6)


@given(
    jobs=present,
    hours=elapsed,
    paid=spent,
    actual=st.floats(-100.0, 1e5),
    stated=st.floats(0.0, 1e5),
    lasted=st.floats(0.0, 730.0),
)
def test_every_part_of_a_step_is_bounded(  # noqa: PLR0917 - hypothesis gives them by name
    jobs: Floats, hours: float, paid: float, actual: float, stated: float, lasted: float
) -> None:
    """Multiplier, horizon, load and memory stay in their ranges for any state of the ledger."""
    before = Evidence(committed=paid, yardstick=50.0, actual=actual, stated=stated, hours=lasted)
    money = books(spent=paid, elapsed_hours=hours, memory=before.to_memory(1.0))
    step = pace_step(PACE, TABLE, jobs, money)

    assert TABLE.multipliers[-1] <= step.position.multiplier <= TABLE.multipliers[0]
    assert PACE.period_hours / 12.0 <= step.horizon_hours * (1.0 + 1e-12)
    assert step.horizon_hours <= MONTH_HOURS
    assert step.load_correction > 0.0
    assert all(math.isfinite(value) for value in (step.load_correction, *step.memory))


def test_within_the_tolerance_the_law_is_the_plan() -> None:
    """Money ahead or behind by a few hours moves nothing; beyond that, the rest of the period absorbs it."""
    pace = replace(PACE, tolerance=0.1, grain_hours=0.0)
    plan = TABLE.planned(60.0)
    inside = 0.05 * 730.0 - 1.0
    for off in (-inside, -10.0, 0.0, 10.0, inside):
        step = pace_step(pace, TABLE, np.zeros(3), books(spent=60.0 * (300.0 + off), elapsed_hours=300.0))
        assert step.position == plan
    for off in (-80.0, 80.0):
        step = pace_step(pace, TABLE, np.zeros(3), books(spent=60.0 * (300.0 + off), elapsed_hours=300.0))
        cost = TABLE.rates_cost_at(step.position) * 430.0 + 60.0 * (300.0 + off)
        assert cost / 60.0 / 730.0 - 1.0 == pytest.approx(math.copysign(0.05, off), abs=1e-6)


@given(
    jobs=present, hours=st.floats(1000.0, 2190.0), paid=st.floats(0.0, 300_000.0), noise=st.floats(0.0, 1e4)
)
def test_no_price_is_more_than_four_times_that_of_the_plan_nor_less_than_a_quarter(
    jobs: Floats, hours: float, paid: float, noise: float
) -> None:
    """Whatever was spent, once the first days are over: the last dollars cost thousands of times as much."""
    blocks = (
        BlockSums(count=2.0, whole_hours=2.0, stated_squared=2.0, actual_squared=2.0 * (1.0 + noise)),
    ) * 3
    before = Evidence(
        committed=paid, yardstick=50.0, actual=60.0, stated=60.0, hours=1.0, came=60.0, blocks=blocks
    )
    pace = Pace(budget=60.0, grain_hours=0.05)
    money = Money(
        spent=paid,
        elapsed_hours=hours,
        period_elapsed_hours=hours,
        period_left_hours=pace.period_hours - hours,
        memory=before.to_memory(1.0),
        memory_age_hours=0.1,
    )
    step = pace_step(pace, TABLE, jobs, money)
    planned = TABLE.planned(pace.budget / step.load_correction)

    assert step.position.multiplier <= planned.multiplier * 4.0 * (1.0 + 1e-9)
    assert step.position.multiplier >= planned.multiplier / 4.0 * (1.0 - 1e-9)


ROUGH_WEEKS = {
    "falls": (1.6, 1.6, 1.0, 0.6, 0.5),
    "rises": (0.5, 0.6, 1.0, 1.6, 1.6),
    "alternates": (1.8, 0.2, 1.8, 0.2, 1.8),
    "one busy week": (0.6, 0.6, 2.5, 0.6, 0.6),
    "a third more than stated": (1.3, 1.3, 1.3, 1.3, 1.3),
}


@pytest.mark.parametrize("weeks", ROUGH_WEEKS.values(), ids=ROUGH_WEEKS)
def test_a_rough_load_keeps_the_default_tolerance_at_a_low_price(weeks: tuple[float, ...]) -> None:
    """Weeks that differ, hours that differ more: the money is within a tenth, and no job is at the end."""
    load = np.repeat(weeks, 168)[:730] * np.random.default_rng(1).gamma(0.5, 2.0, 730)
    steps, paid = fluid_run(replace(PACE, tolerance=0.1), load)
    planned = [TABLE.planned(PACE.budget / step.load_correction).multiplier for step in steps]
    dearest = max(step.position.multiplier / plan for step, plan in zip(steps, planned, strict=True))

    assert paid[-1] == pytest.approx(60.0 * 730.0, rel=0.1)
    assert dearest <= 4.0 * (1.0 + 1e-9)


def test_a_load_that_is_surely_too_dear_is_narrowed_early() -> None:
    """A debt of the whole tolerance amid a quarter moves an even load at once, a rough one less."""
    pace = Pace(budget=60.0, grain_hours=0.05)
    debt = 60.0 * pace.tolerance * pace.period_hours
    found = []
    for squares in (2.0, 6.0):
        blocks = (
            BlockSums(
                count=2000.0, whole_hours=2000.0, stated_squared=2000.0, actual_squared=squares * 1000.0
            ),
        )
        seen = Evidence(
            committed=0.0,
            yardstick=50.0,
            actual=6e4,
            stated=6e4,
            hours=1000.0,
            came=6e4,
            came_squared=6e6,
            blocks=blocks * 3,
        )
        band = pace.money_band(seen, 60.0, 1000.0)
        found.append(band.draw(-debt))
    assert MOST_PRICE >= found[0] > found[1] > 0.0


def test_a_period_that_began_with_a_debt_spends_no_more_than_its_money() -> None:
    """And one that began with a credit no less: the sum of all periods stays within the tolerance too."""
    most = 0.5 * 0.02 * 730.0 * 60.0

    assert PACE.band(0.0) == (-most, most)
    assert PACE.band(-most) == (-most, 0.0)
    assert PACE.band(most) == (0.0, most)
    assert PACE.band(-10.0 * most) == (-most, 0.0)


def test_a_new_period_begins_with_what_the_last_one_left() -> None:
    """The memory keeps it until the next period."""
    step = pace_step(PACE, TABLE, np.zeros(3), books(spent=60.0 * 720.0, elapsed_hours=729.9))
    later = books(spent=60.0 * 725.0, elapsed_hours=730.5, memory=step.memory)
    after = pace_step(PACE, TABLE, np.zeros(3), later)
    found = Evidence.of(after.memory)

    assert found is not None
    assert found.carried == pytest.approx(60.0 * (730.0 - 725.0))
    assert Evidence.of(step.memory[:4]) is None, "a memory of an earlier version is not read"
    assert found.to_memory(after.load_correction) == after.memory


def test_unspent_money_of_a_month_is_carried_over_up_to_the_tolerance() -> None:
    """After a month without jobs the next begins with 2 % of its money; within a month nothing is forgone."""
    next_month = books(elapsed_hours=MONTH_HOURS)
    allowed = PACE.tolerance * MONTH_HOURS

    assert PACE.opening_hours(next_month) == pytest.approx(MONTH_HOURS - allowed)
    assert PACE.ahead(next_month) == pytest.approx(60.0 * allowed)
    assert PACE.opening_hours(books(elapsed_hours=700.0)) == 0.0
    assert PACE.opening_hours(books(elapsed_hours=MONTH_HOURS, spent=60.0 * 720.0)) == 0.0
    assert PACE.ahead(books(elapsed_hours=MONTH_HOURS, spent=60.0 * 800.0)) == -60.0 * 70.0


def test_a_window_of_hours_keeps_a_window_of_credit() -> None:
    """With a window other than a month, credit older than the window is forgone at any time."""
    pace = Pace(budget=8.0, window_hours=4.0)

    assert pace.opening_hours(books(elapsed_hours=10.0, spent=8.0)) == 5.0
    assert pace_step(pace, TABLE, np.zeros(3), books(elapsed_hours=1.0)).horizon_hours <= 4.0


def test_the_horizon_is_what_is_left_of_the_period_but_not_less_than_the_floor() -> None:
    """730 hours on the first day, the floor on the last days; a large debt is spread over more hours."""

    def horizon(at: float, debt_hours: float = 0.0) -> float:
        money = books(spent=60.0 * (at + debt_hours), elapsed_hours=at)
        return pace_step(PACE, TABLE, np.zeros(3), money).horizon_hours

    floor = PACE.floor_for(2.0 * PACE.grain_hours)
    assert [horizon(at) for at in (0.0, 500.0)] == [730.0, 230.0]
    assert floor * 0.3 <= horizon(729.0) <= floor
    assert horizon(729.0, 300.0) > 400.0
    assert horizon(729.0, 5000.0) == MONTH_HOURS


def test_credit_does_not_count_while_the_cloud_refuses() -> None:
    """Unspent money then widens no job."""
    refused = pace_step(PACE, TABLE, np.zeros(3), books(elapsed_hours=300.0, is_refused=True))
    served = pace_step(PACE, TABLE, np.zeros(3), books(elapsed_hours=300.0))

    assert refused.position.multiplier == pytest.approx(TABLE.planned(60.0).multiplier, rel=0.05)
    assert refused.position.multiplier > served.position.multiplier


def test_the_floor_is_as_long_as_the_tolerance_permits() -> None:
    """Spend over the floor spreads by half of the tolerance; very even or uneven loads meet limits."""
    assert math.sqrt(0.5 * PACE.floor_for(1.0)) == pytest.approx(0.5 * PACE.tolerance * MONTH_HOURS)
    assert PACE.floor_for(0.0) == MONTH_HOURS / 4.0
    assert PACE.floor_for(100.0) == pytest.approx(MONTH_HOURS / 12.0)
    quarter = replace(PACE, period="quarter", tolerance=0.1)
    assert quarter.floor_for(200.0) == pytest.approx(2.0 * (0.05 * 3.0 * MONTH_HOURS) ** 2 / 200.0)


@given(factor=st.floats(0.01, 100.0), hours=elapsed, paid=spent, jobs=present)
def test_the_unit_of_money_does_not_matter(factor: float, hours: float, paid: float, jobs: Floats) -> None:
    """With prices, budget and spend times a factor, the multiplier is divided by the factor."""
    dearer = replace(PROBLEM, gpu_types=(GpuType(name="gpu", usd_per_gpu_hour=factor),))
    one = pace_step(PACE, TABLE, jobs, books(spent=paid, elapsed_hours=hours))
    other = pace_step(
        replace(PACE, budget=60.0 * factor),
        MultiplierTable.of(dearer),
        jobs,
        books(spent=paid * factor, elapsed_hours=hours),
    )

    assert other.position.multiplier * factor == pytest.approx(one.position.multiplier, rel=1e-6)


def test_right_beliefs_stay_nearly_unchanged() -> None:
    """Nights at 0.4 and days at 1.6 times the load move the load correction little, and ever less."""
    steps, paid = fluid_run(PACE, day_and_night(730))
    corrections = np.array([step.load_correction for step in steps])

    assert np.abs(np.log(corrections[72:])).max() < 0.06
    assert np.abs(np.log(corrections[240:])).max() < 0.02
    assert paid[-1] == pytest.approx(60.0 * 730.0, rel=PACE.tolerance)


@pytest.mark.parametrize("truth", [0.6, 0.75, 1.2, 1.5])
def test_wrong_beliefs_are_corrected_and_the_month_spends_its_budget(truth: float) -> None:
    """The load is known to a seventh after ten days, and the spend of the month is within the tolerance."""
    pace = replace(PACE, budget=45.0)
    steps, paid = fluid_run(pace, np.full(730, truth))
    burn = np.diff(paid)[500:] / 45.0

    assert math.log(steps[240].load_correction) == pytest.approx(math.log(truth), abs=0.15)
    assert math.log(steps[500].load_correction) == pytest.approx(math.log(truth), abs=0.1)
    assert paid[-1] == pytest.approx(45.0 * 730.0, rel=PACE.tolerance)
    assert np.abs(burn - 1.0).max() <= 0.15, "no swing is left"


@given(actual=st.floats(0.0, 1e5), stated=st.floats(1.0, 1e5), hours=st.floats(0.0, 730.0))
def test_the_load_correction_lies_between_the_stated_and_the_observed_load(
    actual: float, stated: float, hours: float
) -> None:
    """An unstated load follows the evidence at least as far."""
    found = Evidence(committed=0.0, yardstick=1.0, actual=actual, stated=stated, hours=hours)
    correction, ratio = PACE.load_correction(found), actual / stated

    assert min(1.0, ratio) * (1.0 - 1e-9) <= correction <= max(1.0, ratio) * (1.0 + 1e-9)
    unstated = replace(PACE, is_stated=False).load_correction(found)
    assert abs(math.log(unstated)) >= abs(math.log(correction)) - 1e-9
    assert PACE.load_correction(Evidence(committed=0.0, yardstick=1.0)) == 1.0


@pytest.mark.parametrize("low", [0.7, 0.8])
@pytest.mark.parametrize("low_weeks", [2, 4, 6])
@pytest.mark.parametrize(("later", "least"), [(1.0, 0.75), (1.2, 0.999)])
def test_jobs_are_not_widened_by_a_low_load_that_is_over(
    low: float, low_weeks: int, later: float, least: float
) -> None:
    """A week after its end only the money that it left over widens them; while it was low they were wider."""
    pace = Pace(budget=60.0, grain_hours=0.05)
    steps, _ = fluid_run(pace, np.repeat([low, later], [168 * low_weeks, 169]))
    planned = TABLE.planned(60.0).multiplier

    assert steps[168 * low_weeks - 1].position.multiplier < 0.5 * planned
    assert steps[-1].position.multiplier > least * planned


@pytest.mark.parametrize("factor", [0.25, 0.5, 0.7])
def test_a_load_that_stays_low_spends_its_budget(factor: float) -> None:
    """After three days, and for months: the last week is as low as all before it."""
    pace = Pace(budget=60.0, grain_hours=0.05)
    _, paid = fluid_run(pace, np.full(24 * 60, factor))
    by_days = np.diff(np.concatenate([[0.0], paid])[::240]) / (60.0 * 240.0)
    most = factor * TABLE.costs(TABLE.rates)[-1] / 60.0

    assert np.all(by_days[1:] > 0.9 * min(most, 1.0)), by_days


def test_a_memory_without_the_last_week_is_read() -> None:
    """The week is taken to be like all before it, so the law goes on as it did."""
    steps, _ = fluid_run(Pace(budget=60.0, grain_hours=0.05), np.full(500, 0.6))
    memory = steps[-1].memory
    found, without = Evidence.of(memory), Evidence.of((*memory[:-3], memory[-1]))

    assert found is not None
    assert without is not None
    assert without.recent.ratio == pytest.approx(without.ratio)
    assert without.recent_stated == pytest.approx(found.recent_stated, rel=0.2)


def test_a_rough_load_is_believed_later_than_an_even_one() -> None:
    """Half of the load for ten days: that of regular hours is believed, that of one burst a day is not."""
    even = np.full(240, 0.5)
    rough = np.where(np.arange(240) % 24 == 12, 12.0, 0.0)
    found = [fluid_run(PACE, load)[0][-1].load_correction for load in (even, rough)]

    assert found[0] == pytest.approx(0.5, rel=0.15)
    assert found[1] > 0.75


def test_the_load_correction_survives_a_change_of_prices() -> None:
    """Prices and budget are doubled, as by a new class file."""
    steps, _ = fluid_run(PACE, np.full(100, 1.5))
    before = Evidence.of(steps[-1].memory)
    assert before is not None
    dear = replace(
        before,
        committed=2.0 * before.committed,
        actual=2.0 * before.actual,
        came=2.0 * before.came,
        came_squared=4.0 * before.came_squared,
    )
    blocks = tuple(
        replace(
            block,
            actual=2.0 * block.actual,
            actual_squared=4.0 * block.actual_squared,
            crossed=2.0 * block.crossed,
        )
        for block in before.blocks
    )
    memory = replace(dear, blocks=blocks).to_memory(1.0)
    money = books(spent=2.0 * before.committed, elapsed_hours=99.1, memory=memory)
    dearer = MultiplierTable.of(replace(PROBLEM, gpu_types=(GpuType(name="gpu", usd_per_gpu_hour=2.0),)))
    after = pace_step(replace(PACE, budget=120.0), dearer, np.zeros(3), money)

    assert after.load_correction == pytest.approx(steps[-1].load_correction, rel=0.01)


def test_hours_without_jobs_after_the_first_ones_are_no_huge_job() -> None:
    """A job of each class comes seconds after the opening, then none: no job is larger than those."""
    memory: tuple[float, ...] = ()
    hours, jobs = (0.0, 0.001, 0.5, 1.0), (np.zeros(3), np.ones(3), np.ones(3), np.ones(3))
    for before, hour, present in zip((0.0, *hours), hours, jobs, strict=False):
        money = books(spent=0.0, elapsed_hours=hour, memory=memory)
        memory = pace_step(PACE, TABLE, present, replace(money, memory_age_hours=hour - before)).memory
    found = Evidence.of(memory)
    assert found is not None

    # Half an hour without jobs lacks half of the stated load of an hour.
    assert found.came_squared <= (found.came + 60.0) ** 2


def test_a_new_belief_about_sizes_is_no_burst() -> None:
    """A step after which jobs are believed a quarter as large keeps the noise; earlier jobs were as small."""
    jobs, memory = np.array([2.0, 1.0, 1.0]), tuple[float, ...]()
    for hour in range(30):
        step = pace_step(
            PACE, TABLE, jobs, books(spent=55.0 * hour, elapsed_hours=float(hour), memory=memory)
        )
        memory = step.memory
    before = Evidence.of(memory)
    assert before is not None
    smaller = tuple(
        replace(
            c,
            phases=tuple(replace(p, size_gpu_hours=0.25 * p.size_gpu_hours) for p in c.phases),
            arrivals_per_hour=4.0 * c.arrivals_per_hour,
        )
        for c in PROBLEM.classes
    )
    table = MultiplierTable.of(replace(PROBLEM, classes=smaller))
    after = Evidence.of(
        pace_step(PACE, table, jobs, books(spent=55.0 * 30, elapsed_hours=30.0, memory=memory)).memory
    )
    assert after is not None

    assert 0.25 * before.came <= after.came < 0.25 * before.came + 2.0 * 55.0
    assert PACE.noise_hours(after) < 1.2 * PACE.noise_hours(before)


def test_a_memory_without_the_cost_of_jobs_is_read() -> None:
    """An earlier version kept four numbers less."""
    step = pace_step(PACE, TABLE, np.ones(3), books(spent=100.0, elapsed_hours=3.0))
    memory = *step.memory[:-5], step.memory[-1]
    found, known = Evidence.of(memory), Evidence.of(step.memory)

    assert found is not None
    assert known is not None
    assert found == replace(known, owed=0.0, job_cost=0.0)
    pace_step(PACE, TABLE, np.ones(3), books(spent=120.0, elapsed_hours=4.0, memory=memory))


@pytest.mark.parametrize("values", [{"budget": 0.0}, {"budget": 1.0, "window_hours": float("nan")}])
def test_a_pace_is_positive(values: dict[str, float]) -> None:
    """A budget of zero and a window of NaN are refused."""
    with pytest.raises(InvalidProblem, match="more than zero"):
        Pace(**values)  # type: ignore[arg-type]


def test_only_these_defaults_are_not_empty() -> None:
    """In all of `policies.online`; caches are hidden from comparison."""
    assert unnamed(policies.online) == {
        "Evidence.blocks": (BlockSums(), BlockSums(), BlockSums()),
        "Pace.is_stated": True,
        "Pace.period": "quarter",
        "Pace.tolerance": 0.1,
        "PacedBudgetOptimal.margin": 1e-6,
        "PacedBudgetOptimal.unit": "USD",
        "SizeSums.mean": 1.0,
        "SpotMarket.down_hours": 2.0,
        "SpotMarket.up_hours": 4.0,
    }
    reckoned = dict.fromkeys(
        ("MultiplierTable._planned", "MultiplierTable.costs_of_rates"), "init repr compare"
    )
    kept = (
        "Pace.price",
        "CostsByScale._tables",
        "PacedBudgetOptimal.costs",
        "WholeNodePrices.known_left",
        "WholeNodePrices.menus",
    )
    assert hidden(policies.online) == reckoned | dict.fromkeys(kept, "repr compare") | {
        "CostsByScale._kept": "repr compare",
        "CostToGo._stay_between": "init repr compare",
        "CostToGo._stay_to": "init repr compare",
    }
    assert by_place(policies.online) == []


def test_types_made_often_have_the_fast_init_and_caches_are_bounded() -> None:
    """The lists cover all of `policies.online`."""
    assert hurried(policies.online) == dict.fromkeys(
        ["BlockSums", "Evidence", "MoneyBand", "Position", "Step", "_Known"], "quick"
    ) | {"_solved": 8}
