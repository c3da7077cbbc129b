"""Pacing: the plan's multiplier, moved as far as a period's money is likely to leave its tolerance.

Widths depend on rates and sizes only through the multiplier mu (policies.optimum.boa), so only the multiplier
has to be controlled. Without caps no policy beats a constant multiplier, because the frontier is convex. So
mu is that of the plan for the load that is believed, a times the stated one, moved as far as the money of the
period is likely to leave its band:

    log(mu / planned mu)  =  log 4 (P(left(mu) < least) - P(left(mu) > most))
    left(mu)  =  B H + (B t - S) - a H sum_i lambda_i C_i(mu) - sum_i q_i C_i(mu),  plus or minus B sqrt(v H)

    symbol     here                  meaning
    B          budget                dollars per hour, or GPUs, on average over time
    t, S       elapsed, spent        hours of budget that have accrued, and what was spent: the ledger
    q_i        present               jobs of class i that are present; one that is half done counts a half
    lambda_i   rates                 stated arrivals per hour
    C_i(mu)    MultiplierTable       what a job takes from the budget at mu: falls as mu rises
    a          load_correction       estimate of the actual load over the stated load
    H          horizon_hours         hours left of the calendar period, at least H_f; in the product with a,
                                     the mean hours of load in them if a rhythm is known
                                     (policies.online.rhythm)
    H_f        floor_for             2 (tolerance x period / 2)^2 / v, from a twelfth to a quarter of a month
    v          noise_hours           variance of the load per hour over its squared mean, in hours

There is one such mu, because the money that is left rises with it. Without noise it is that of the plan
where this stays within the band, and else the nearest that does; with much noise neither side is likelier,
and it is near the plan. A law that answers each deviation of a rough load narrows jobs in a burst and widens
them in a lull, and pays for both. One that waits until chance cannot make up for the deviation must narrow
all jobs to the end of the frontier, where the last percents of money cost thousands of times as much waiting
as the plan's. So mu is changed early, and is never above four times the planned one.

The band. Half of the tolerance, so that what arrives in the last H_f hours has the other half. A period that
began with a debt may spend no more than its money, one with a credit no less: each period and the sum of all
stay within the tolerance. The noise v is believed too large rather than too small (below). So where the money
would leave the whole tolerance by more than half a standard deviation of single jobs alone, mu rises to the
limit. A deviation beyond the band that would change the burn by more than half lengthens H, up to the period.

The load. A is the past and future cost of the jobs that came; P is the cost of the stated load at the
multipliers used; both forget over half a period, at most half a quarter. x = log(A/P) has the variance

    s^2 = v / T + min(R / T, 0.5)^2,    T hours of evidence,  R = 2.5 h: by day more comes than on average

The noise v is measured: in blocks of an hour, a day and a week, the largest counts. Single jobs alone would
give 2 grain, by the statement as two jobs and by the jobs that came. What the hours show beyond that is
assumed to be twenty times as much in days and weeks, until enough of these were seen: jobs that come
together and sizes that differ make long lulls and bursts. So an even load with a wrong statement is found
out within a day, and a rough one with a right statement is trusted through weeks.

Wider jobs are paid for by a load that is low now. Where the load grows, half a quarter of evidence still says
that it is low when that is over, and the money is missing later. So mu is below that of the plan for the
stated load only as far as the ratio A/P of the last week says so too: it is the middle one of three.

The prior of log a: the statement is about right, N(0, 0.05^2), with or without a weekly rhythm that is not
known yet, which adds (0.15 min(1, (168 / T)^2))^2 to s^2; or off, N(0, 0.5^2), or wrong, N(0, 2^2); with the
odds 5, 5, 7 and 3. log a is the posterior mean. If no load was stated, only the last counts.

The first days. A period would let a wrong statement burn a tenth of its money at once. So the spend is
projected six hours ahead by the load of the last hours, and where it would be off by more than 3 % of the
money that has accrued until then and a part of the noise, the nearest multiplier that keeps it is taken.
The noise leaves rough loads alone, and the allowance grows until the period's own band is narrower. A job
that ends before it took what was believed is no burst, and the jobs that run are believed to end like those
that ended.

While the cloud refuses launches, a credit counts as zero. Unused credit of a period is carried over up to the
tolerance; the rest is forgone, because the load could not use it. With `window_hours` H is H_f throughout,
and at most one window of credit is kept. All state is in the ledger and in the memory of the last tick, so
the same facts give the same multiplier. Scaling all prices and the budget by one factor scales mu by its
inverse and changes no width. What the promise costs in waiting is foretold by `policies.online.foretold`.

Cost: O(classes + edges) per tick, edges being those of all the classes' hulls.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Literal, Protocol, TypeAlias

from policies.fast_dataclasses import fast_init, replace
from policies.model import Money, check_positive
from policies.online.money_band import MoneyBand
from policies.online.multiplier_table import MultiplierTable, Position, _added
from policies.online.promise_loss import ForetoldLoss
from policies.online.rhythm import HOURS_PER_WEEK, Rhythm, SeenLoad
from policies.speedup import Floats

Period: TypeAlias = Literal["month", "quarter", "year"]
MONTH_HOURS = 730.0
"""A mean month: converts dollars per month into dollars per hour."""
PERIOD_MONTHS: Mapping[str, int] = {"month": 1, "quarter": 3, "year": 12}
"""Calendar months of each period that a budget may be promised for."""
PERIOD: Period = "quarter"
TOLERANCE = 0.10
"""The default promise. Share of a period's money by which the spend may be off, and of which unspent credit
is carried over."""
INNER = 0.5
"""Share of the tolerance at which the law begins to respond; the rest is for what arrives in the last
floor."""
LEAST_FLOOR, MOST_FLOOR = 1.0 / 12.0, 1.0 / 4.0
"""Bounds of the shortest horizon as shares of the window: for a month, two and a half days and a week."""
MOST_CHANGE = 0.5
"""The largest change of the burn by a credit or debt, unless a window is too short to absorb it so slowly."""
FORGETTING, FORGETTING_MONTHS = 0.5, 3
"""Share of a period over which evidence on the load is forgotten, and the most months that count as one."""
RHYTHM_HOURS = 2.5
"""How far a daily rhythm lets the load run ahead of its mean."""
RIGHT, OFF, WRONG = 0.05, 0.5, 2.0
"""Standard deviation of log(true load / stated load) if the statement is about right, is off, and is
wrong."""
MOST_RHYTHM = 0.5
"""The largest log(load of a part of a day / mean load) that a daily rhythm is believed to have."""
MOST_RATIO = 1e9
"""The largest load over the stated load that is told apart from infinity."""
STATED_JOBS = 2.0
"""Jobs that came, as which the stated grain counts beside those that were seen."""
EARLY_HOURS, EARLY_TOLERANCE, EARLY_UNTIL = 6.0, 0.03, 72.0
"""In the first days: hours ahead to which the spend is projected, the share of the money accrued until then
by which it may be off, and hours after which that share grows in proportion."""
EARLY_SURE, EARLY_ROUGH = 0.3, 0.4
"""Standard deviations of the load that are added to that, and the deviation over the mean at which they count
twice: a rough load says nothing in its first days."""
WEEK = 0.15
"""Standard deviation of the log of the load in a part of a week (such as the workdays) over its mean."""
FIRST_EVIDENCE_HOURS = 0.73
"""Hours of stated load that are added to both sides of A/P, so that neither is zero."""
SAME = 1e-9
"""Relative difference below which the cost of a mean job is the same."""
RECENT_HOURS = 168.0
"""Hours over which the evidence that allows wider jobs is forgotten; how sure it is depends on all of it."""
BLOCKS = (1.0, 24.0, 168.0)
"""Hours of the blocks in which the noise of the load is measured: single jobs, days, and weeks."""
UNSEEN, UNSEEN_WORTH = 100.0, 0.5
"""Bursts that were not seen yet: until the hours say better, they spread the load this many times as much as
single jobs do. The stated grain says in how many hours: as many as bring so many jobs."""
LONGER = 20.0
"""How much more a day or a week spreads the load than its hours do, beyond single jobs, until it was seen."""
MOST_PRICE, ANY_PRICE = math.log(4.0), math.log(1e30)
"""How far log(multiplier) may be from that of the plan: in a calendar period, and in a window."""
OUTER_SURE = 0.5
"""Standard deviations of single jobs by which the projected spend may exceed the whole tolerance."""
PRIOR_BLOCKS = 2.0
"""How many blocks the stated grain counts as, beside those that were seen."""


class PricesPromises(Protocol):
    """Foretells what a promise costs; see `policies.online.foretold`."""

    def loss(self, pace: Pace, loads: Floats | SeenLoad | None = None) -> float | None:
        """Return the mean part of the waiting that it costs; None if not known."""
        ...

    def foretell(self, pace: Pace, loads: Floats | SeenLoad | None = None) -> ForetoldLoss | None:
        """Return the same with its range."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The promise to keep: a budget per hour, the period over which its money counts, and the tolerance.

    `grain_hours` measures how coarse the load is: sum_i lambda_i C_i^2 / B^2, the variance that single jobs
    add to an hour's spend, in hours of budget. `window_hours` other than None replaces the calendar `period`
    by a window of so many hours that moves with time. `is_monthly` means that every calendar month has the
    same money, 730 hours of budget, however long it is. `is_stated` means that the user stated the load.
    `rhythm` is the weekly pattern of the load, if one was seen. `price` foretells what a promise costs
    (`policies.online.foretold`); None if that is not known. `covered_per_hour` is the budget, which is at on-
    demand prices, less what may be spent: the usage that commitments pay for, less their price.
    """

    budget: float
    period: Period = PERIOD
    tolerance: float = TOLERANCE
    window_hours: float | None = None
    grain_hours: float = 0.0
    is_monthly: bool = False
    is_stated: bool = True
    rhythm: Rhythm | None = None
    price: PricesPromises | None = field(default=None, repr=False, compare=False)
    covered_per_hour: float = 0.0

    def __post_init__(self) -> None:
        for name, value in (("budget", self.budget), ("window_hours", self.period_hours)):
            check_positive(f"{name} of a pace", value)
        check_positive("grain_hours of a pace", self.grain_hours, zero=True)
        check_positive("tolerance of a pace", self.tolerance, zero=True)

    @property
    def is_calendar(self) -> bool:
        """Whether the money counts by calendar month, quarter or year."""
        return self.window_hours is None

    @property
    def forgetting_hours(self) -> float:
        """The hours over which evidence on the load is forgotten."""
        months = min(PERIOD_MONTHS[self.period], FORGETTING_MONTHS) if self.is_calendar else 1
        return FORGETTING * months * MONTH_HOURS

    @property
    def period_hours(self) -> float:
        """The hours of budget of a period, or of the window that replaces it."""
        return MONTH_HOURS * PERIOD_MONTHS[self.period] if self.window_hours is None else self.window_hours

    def floor_for(self, noise: float) -> float:
        """Return the shortest horizon for a variance per hour of the load, both in hours."""
        least = LEAST_FLOOR * min(self.period_hours, MONTH_HOURS)
        most = MOST_FLOOR * min(self.period_hours, MONTH_HOURS)
        spread = (1.0 - INNER) * self.tolerance * self.period_hours
        return max(min(2.0 * spread * spread / noise, most) if noise > 0.0 else most, least)

    def ahead(self, money: Money) -> float:
        """Return the accrued and unspent money, without the credit that is forgone."""
        most = self.budget * self._most_unspent_hours(money)
        return min(self.budget * money.elapsed_hours - money.spent, most)

    def opening_hours(self, money: Money) -> float:
        """Return by how many hours to move the ledger's opening, to forgo credit that may not be kept."""
        unspent_hours = money.elapsed_hours - money.spent / self.budget
        return max(0.0, unspent_hours - self._most_unspent_hours(money))

    def _most_unspent_hours(self, money: Money) -> float:
        """Return how many hours of budget may be unspent: those of this period, and the tolerance."""
        if not self.is_calendar:
            return self.period_hours
        return money.period_elapsed_hours + self.tolerance * self.period_hours

    def band(self, carried: float) -> tuple[float, float]:
        """Return the least and the most money that may be left when the period ends.

        `carried` is what was left when it began. Both the period's own spend and the sum of all periods stay
        within the tolerance: a period that began with a debt may not spend more than its money.
        """
        most = INNER * self.tolerance * self.period_hours * self.budget
        return min(max(carried, 0.0), most) - most, most + max(min(carried, 0.0), -most)

    def money_band(self, evidence: Evidence, budget: float, hours: float) -> MoneyBand:
        """Return the band of the money that is left in `hours` hours at a budget per hour.

        A window has no end at which what came by chance must be made up for, and is kept at any price. A
        horizon that debt lengthens does not widen the band: otherwise more money spent could mean wider jobs.
        """
        least, most = self.band(evidence.carried)
        if not self.is_calendar:
            return MoneyBand(least=least, most=most, outer=least, spread=0.0, limit=ANY_PRICE)
        single = evidence.single_hours(2.0 * self.grain_hours)
        whole = (1.0 - INNER) * self.tolerance * self.period_hours * self.budget
        return MoneyBand(
            least=least,
            most=most,
            outer=least - whole - OUTER_SURE * budget * math.sqrt(single * hours),
            spread=budget * math.sqrt(self.noise_hours(evidence) * hours),
            limit=MOST_PRICE,
        )

    def load_correction(self, evidence: Evidence, *, is_short: bool = False) -> float:
        """Return the estimated load over the stated load.

        `is_short` asks for that of the next hours: what a time of day brought goes on for a while.
        """
        first = 2.0 * evidence.single_hours(2.0 * self.grain_hours)
        first = min(max(first, 0.01 * FIRST_EVIDENCE_HOURS), FIRST_EVIDENCE_HOURS)
        hours = evidence.hours + first
        seen = math.log((max(evidence.ratio, 0.0) * evidence.hours + first) / hours)
        noise = self.noise_hours(evidence) / hours
        if not is_short:
            noise += min(RHYTHM_HOURS / hours, MOST_RHYTHM) ** 2
        if not self.is_stated:
            return math.exp(seen * WRONG**2 / (WRONG**2 + noise))
        week = 0.0 if self.rhythm is not None else (WEEK * min(1.0, HOURS_PER_WEEK / hours) ** 2) ** 2
        logs, shares = [], []
        for odds, deviation, rhythm in (
            (0.25, RIGHT, 0.0),
            (0.25, RIGHT, week),
            (0.35, OFF, 0.0),
            (0.15, WRONG, 0.0),
        ):
            variance = deviation**2
            spread = variance + rhythm + noise
            logs.append(math.log(odds / math.sqrt(spread)) - 0.5 * seen**2 / spread)
            shares.append(variance / spread)
        best = max(logs)
        likely = [math.exp(log - best) for log in logs]
        weighted = [share * odds for share, odds in zip(shares, likely, strict=True)]
        return math.exp(seen * (_added(weighted) / _added(likely)))

    def noise_hours(self, evidence: Evidence) -> float:
        """Return the variance of the load per hour over its squared mean, in hours.

        Single jobs alone would give twice the grain. What the hours show beyond that comes from jobs that
        come together and from sizes that differ; days and weeks show more of it, so `LONGER` times as much is
        assumed there until they were seen. The largest of the three counts.
        """
        ratio, single = evidence.came_ratio, evidence.single_hours(2.0 * self.grain_hours)
        hours, *longer = evidence.blocks
        short = hours.noise(ratio, UNSEEN * single, UNSEEN_WORTH * single)
        # A variance of n blocks is itself known to a share of sqrt(2 / n).
        by_chance = single * (1.0 + 2.0 * math.sqrt(2.0 / (hours.count + 1.0)))
        prior = single + LONGER * max(short - by_chance, 0.0)
        return max(short, *(block.noise(ratio, prior, PRIOR_BLOCKS) for block in longer))

    def loss(self, loads: Floats | SeenLoad | None = None) -> float | None:
        """Return the part of the waiting that the promise costs on `loads`; None if not known.

        Without loads only single jobs vary; see `policies.online.foretold`.
        """
        return None if self.price is None else self.price.loss(self, loads)

    def foretell(self, loads: Floats | SeenLoad | None = None) -> ForetoldLoss | None:
        """Return the same with its range, and whether the load is too coarse for one figure."""
        return None if self.price is None else self.price.foretell(self, loads)

    def hours_of_load(self, begin: float, hours: float) -> float:
        """Return the load, in mean hours, of the `hours` that follow the hour of the week `begin`."""
        return hours if self.rhythm is None else self.rhythm.hours_of_load(begin, hours)


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class BlockSums:
    """Actual and stated load of the open block, and sums of squares of those before; see `BLOCKS`."""

    actual: float = 0.0
    stated: float = 0.0
    hours: float = 0.0
    actual_squared: float = 0.0
    crossed: float = 0.0
    stated_squared: float = 0.0
    count: float = 0.0
    whole_hours: float = 0.0

    def after(self, length: float, actual: float, stated: float, hours: float, kept: float) -> BlockSums:
        """Return the sums after some more hours; the block is closed once it is `length` hours long."""
        actual, stated, hours = self.actual + actual, self.stated + stated, self.hours + hours
        if hours < length:
            return replace(self, actual=actual, stated=stated, hours=hours)
        return BlockSums(
            actual_squared=kept * self.actual_squared + actual * actual,
            crossed=kept * self.crossed + actual * stated,
            stated_squared=kept * self.stated_squared + stated * stated,
            count=kept * self.count + 1.0,
            whole_hours=kept * self.whole_hours + hours,
        )

    def dearer(self, factor: float) -> BlockSums:
        """Return the sums with the stated load at prices times `factor`."""
        return replace(
            self,
            stated=self.stated * factor,
            crossed=self.crossed * factor,
            stated_squared=self.stated_squared * factor * factor,
        )

    def noise(self, ratio: float, prior: float, worth: float) -> float:
        """Return the variance per hour over the squared mean, where the load is `ratio` times the stated."""
        if self.count < 1.0 or self.stated_squared <= 0.0 or ratio <= 0.0:
            return prior
        squared = self.actual_squared - 2.0 * ratio * self.crossed + ratio * ratio * self.stated_squared
        mean_squared = ratio * ratio * self.stated_squared / self.count
        hours = self.whole_hours / self.count
        seen = max(squared, 0.0) / mean_squared * hours
        return (worth * prior + seen) / (worth + self.count)


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What the law remembers from tick to tick, as `memory` in the tick's state.

    `committed` is the past and future cost of the jobs that came, at the last tick; `actual` and `stated` are
    the load that came and the stated load in money at the multipliers used, over `hours`; all three forget.
    `yardstick` is the least cost per hour of the stated load, which shows changes of prices and statements.
    `carried` is the money left when the period began, `period_elapsed` its age at the last tick. `came` and
    `came_squared` are the arrivals alone and the sum of their squares, `blocks` the sums of each of `BLOCKS`.
    `owed` is what the present jobs will cost, and `job_cost` the least cost of a mean job; both are computed
    anew in each tick. `new_value` is what present jobs cost more since the sizes of jobs are believed anew.
    `recent_actual` and `recent_stated` are `actual` and `stated` of the last week.
    """

    committed: float
    yardstick: float
    actual: float = 0.0
    stated: float = 0.0
    hours: float = 0.0
    stated_per_hour: float = 0.0
    carried: float = 0.0
    period_elapsed: float = 0.0
    came: float = 0.0
    came_squared: float = 0.0
    owed: float = 0.0
    job_cost: float = 0.0
    new_value: float = 0.0
    recent_actual: float = 0.0
    recent_stated: float = 0.0
    blocks: tuple[BlockSums, ...] = (BlockSums(),) * len(BLOCKS)

    @property
    def recent(self) -> Evidence:
        """The evidence if all of it were like that of the last week."""
        if self.recent_stated <= 0.0:
            return self
        return replace(self, actual=self.recent_actual * self.stated / self.recent_stated)

    @property
    def ratio(self) -> float:
        """The load over the stated load, as seen."""
        actual = self.actual - (1.0 - self.taken) * self.owed
        return min(actual / self.stated, MOST_RATIO) if self.stated > 0.0 else 1.0

    @property
    def taken(self) -> float:
        """What jobs took over what they were believed to take, at most 1: present jobs will end alike."""
        believed = self.came - self.owed
        if believed <= 0.0:
            return 1.0
        first = STATED_JOBS * self.came_squared / self.came
        return min(max(self.actual - self.owed + first, first) / (believed + first), 1.0)

    @property
    def came_ratio(self) -> float:
        """The load that came over the stated load, without what jobs took less than they were believed to."""
        return min(self.came / self.stated, MOST_RATIO) if self.stated > 0.0 else 1.0

    def single_hours(self, stated: float) -> float:
        """Return the variance that single jobs give an hour of load, over its squared mean, in hours.

        `stated` is the same by the statement; it counts as `STATED_JOBS` jobs.
        """
        squared = self.came * self.came
        jobs = squared / max(self.came_squared, 1e-9 * squared) if squared > 0.0 else 0.0
        return (self.hours + STATED_JOBS * stated) / (jobs + STATED_JOBS)

    def revalued(self, factor: float) -> Evidence:
        """Return the evidence where jobs are believed to cost `factor` times as much as before.

        What present jobs cost more corrects the load that came. It is no burst, and earlier jobs were as
        large as these.
        """
        if abs(factor - 1.0) < SAME:
            return self
        return replace(
            self,
            came=self.came * factor,
            came_squared=self.came_squared * factor * factor,
            blocks=tuple(
                replace(
                    block,
                    actual=block.actual * factor,
                    actual_squared=block.actual_squared * factor * factor,
                    crossed=block.crossed * factor,
                )
                for block in self.blocks
            ),
            new_value=(factor - 1.0) * self.owed,
        )

    def to_memory(self, correction: float) -> tuple[float, ...]:
        """Return the numbers to be kept, the load correction last."""
        blocks = [value for block in self.blocks for value in _values(block)]
        kept = (self.committed, self.yardstick, self.actual, self.stated, self.hours)
        later = (self.stated_per_hour, self.carried, self.period_elapsed, self.came, self.came_squared)
        present = (self.owed, self.job_cost, self.recent_actual, self.recent_stated)
        return (*kept, *later, *blocks, *present, correction)

    @classmethod
    def of(cls, memory: tuple[float, ...]) -> Evidence | None:
        """Return what was kept; None without a memory, or with one of an earlier law."""
        end = 10 + 8 * len(BLOCKS)
        # Earlier versions kept less: not the last week, nor what present jobs cost and a mean job.
        if len(memory) not in (end + 1, end + 3, end + 5):
            return None
        week = min(1.0, RECENT_HOURS / memory[4]) if memory[4] > 0.0 else 1.0
        without = (0.0, 0.0, week * memory[2], week * memory[3])
        owed, job_cost, recent_actual, recent_stated = (*memory[end:-1], *without[len(memory) - end - 1 :])
        blocks = (memory[at : at + 8] for at in range(10, end, 8))
        return cls(
            committed=memory[0],
            yardstick=memory[1],
            actual=memory[2],
            stated=memory[3],
            hours=memory[4],
            stated_per_hour=memory[5],
            carried=memory[6],
            period_elapsed=memory[7],
            came=memory[8],
            came_squared=memory[9],
            owed=owed,
            job_cost=job_cost,
            recent_actual=recent_actual,
            recent_stated=recent_stated,
            blocks=tuple(BlockSums(**dict(zip(_BLOCK_FIELDS, part, strict=True))) for part in blocks),
        )


_BLOCK_FIELDS = tuple(one.name for one in fields(BlockSums))


def _values(block: BlockSums) -> list[float]:
    return [getattr(block, name) for name in _BLOCK_FIELDS]


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The result of the pacing law for one tick: a position on the frontier, and the figures behind it.

    `memory` is for the next tick (`Evidence`), with the load correction as its last number. `load_hours` is
    the load of the horizon in mean hours.
    """

    position: Position
    credit: float
    horizon_hours: float
    load_correction: float
    load_hours: float
    memory: tuple[float, ...]

    def memory_at(self, position: Position, table: MultiplierTable) -> tuple[float, ...]:
        """Return the memory for a tick that follows another position than the law's."""
        seen = Evidence.of(self.memory)
        assert seen is not None
        return replace(seen, stated_per_hour=table.rates_cost_at(position)).to_memory(self.load_correction)


def pace_step(pace: Pace, table: MultiplierTable, present: Floats, money: Money) -> Step:
    """Return the planned position for the believed load, or the nearest one that keeps the promise."""
    budget, yardstick = pace.budget * money.accrual, float(table.rates @ table.least_cost)
    committed = money.spent + (owed := table.cost_at(present, table.planned(budget)))
    # Jobs present at the first tick are no evidence of the arrival rate.
    before = Evidence.of(money.memory)
    if before is not None and before.job_cost > 0.0:
        before = before.revalued(table.least_job_cost / before.job_cost)
    seen = _seen(before, committed, yardstick, money, pace)
    seen = replace(seen, owed=owed, job_cost=table.least_job_cost)
    present = present * seen.taken
    correction = pace.load_correction(seen)
    ahead = pace.ahead(money)
    if money.is_refused:
        ahead = min(ahead, owed)
    known = _Known(pace, table, present, money, seen, ahead)
    position, hours, load_hours = _held(known, correction)
    if pace.is_calendar and pace.is_stated:
        position = _not_wider(known, position)
        position = _early(known, position)
    return Step(
        position=position,
        credit=ahead - owed,
        horizon_hours=hours,
        load_correction=correction,
        load_hours=load_hours,
        memory=replace(seen, stated_per_hour=table.rates_cost_at(position)).to_memory(correction),
    )


@fast_init
@dataclass(frozen=True, slots=True)
class _Known:
    """What a step knows: the promise, what plans cost, the present jobs, the money, and the load so far."""

    pace: Pace
    table: MultiplierTable
    present: Floats
    money: Money
    seen: Evidence
    ahead: float


def _held(known: _Known, correction: float) -> tuple[Position, float, float]:
    """Return where the promise is kept for a load, the hours of the horizon, and its load in mean hours."""
    pace, table, money = known.pace, known.table, known.money
    seen, ahead = known.seen, known.ahead
    budget = pace.budget * money.accrual
    planned = table.planned(budget / correction)
    hours = max(money.period_left_hours if pace.is_calendar else 0.0, pace.floor_for(pace.noise_hours(seen)))
    band = pace.money_band(seen, budget, hours)
    for _ in range(2):
        # The rhythm counts in this period only; hours of the horizon beyond it count as mean hours.
        in_period = min(hours, money.period_left_hours) if pace.is_calendar else 0.0
        load_hours = pace.hours_of_load(money.hour_of_week, in_period) + hours - in_period
        to_come = table.rates * (correction * load_hours) + known.present
        final = budget * hours + ahead - table.cost_at(to_come, planned)
        needed = min(band.beyond(final) / (MOST_CHANGE * budget), pace.period_hours)
        if needed <= hours:
            break
        hours = needed
    position = table.drawn(to_come, planned, lambda cost: band.draw(budget * hours + ahead - cost))
    return position, hours, load_hours


def _not_wider(known: _Known, at: Position) -> Position:
    """Return `at`, or where the load of the last week allows no jobs as wide: towards the plan's position."""
    stated = known.table.planned(known.pace.budget * known.money.accrual)
    if at.multiplier >= stated.multiplier:
        return at
    recent, *_ = _held(known, known.pace.load_correction(known.seen.recent))
    return sorted((at, recent, stated), key=lambda one: one.multiplier)[1]


def _early(known: _Known, at: Position) -> Position:
    """Return `at`, or the nearest position at which a wrong statement costs little in its first days."""
    pace, table, money, seen = known.pace, known.table, known.money, known.seen
    budget, hours = pace.budget * money.accrual, EARLY_HOURS
    span = money.elapsed_hours + hours
    spread = math.sqrt(pace.noise_hours(seen) * span)
    spread *= 1.0 + (spread / (EARLY_ROUGH * span)) ** 2
    most = budget * (EARLY_TOLERANCE * span * max(1.0, span / EARLY_UNTIL) + EARLY_SURE * spread)
    if most >= INNER * pace.tolerance * pace.period_hours * budget:
        return at
    correction = pace.load_correction(seen, is_short=True)
    coming = pace.hours_of_load(money.hour_of_week, hours)
    # With a known rhythm the money is expected when the load is, not evenly.
    began = (money.hour_of_week - money.elapsed_hours) % HOURS_PER_WEEK
    late = pace.hours_of_load(began, money.elapsed_hours) - money.elapsed_hours
    left = budget * (coming + late) + known.ahead
    to_come = table.rates * (correction * coming) + known.present
    final = left - table.cost_at(to_come, at)
    kept = min(max(final, -most), most)
    return at if kept == final else table.position(to_come, left - kept)


def _seen(before: Evidence | None, committed: float, yardstick: float, money: Money, pace: Pace) -> Evidence:
    """Return the evidence up to now; `before` is that of the last tick."""
    if before is None:
        return Evidence(committed=committed, yardstick=yardstick, period_elapsed=money.period_elapsed_hours)
    age = money.memory_age_hours
    came, recent = pace.hours_of_load(money.hour_of_week - age, age), math.exp(-age / RECENT_HOURS)
    kept, dearer = math.exp(-age / pace.forgetting_hours), yardstick / before.yardstick
    actual = committed - before.committed
    # Jobs that end before they took what was believed are no bursts.
    arrived = max(actual - before.new_value, 0.0)
    stated = before.stated_per_hour * dearer * came
    # What a long tick brings evenly is no job. After the first jobs the ratio alone is hundreds, and the
    # square of a tick without jobs would count as one huge job for weeks.
    first = before.stated_per_hour * FIRST_EVIDENCE_HOURS
    even = (before.came + first) / (before.stated + first) if before.stated + first > 0.0 else 1.0
    beyond = arrived - min(even, MOST_RATIO) * stated
    is_new = pace.is_calendar and money.period_elapsed_hours < before.period_elapsed
    return Evidence(
        committed=committed,
        yardstick=yardstick,
        actual=before.actual * kept + actual,
        stated=before.stated * dearer * kept + stated,
        hours=before.hours * kept + came,
        recent_actual=before.recent_actual * recent + actual,
        recent_stated=before.recent_stated * dearer * recent + stated,
        came=before.came * kept + arrived,
        came_squared=before.came_squared * kept + beyond * beyond,
        carried=pace.ahead(money) - pace.budget * money.period_elapsed_hours if is_new else before.carried,
        period_elapsed=money.period_elapsed_hours,
        blocks=tuple(
            (block if dearer == 1.0 else block.dearer(dearer)).after(
                length, arrived, stated, came, math.exp(-length / pace.forgetting_hours)
            )
            for length, block in zip(BLOCKS, before.blocks, strict=True)
        ),
    )
