"""Pacing: the multiplier that makes the money last a month, changed as little as that promise allows.

Widths depend on rates and sizes only through the multiplier mu (policies.optimum.boa), so only the multiplier
has to be controlled. Without caps no policy beats a constant multiplier: the frontier is convex, and a burn
that varies by a share d around its mean costs kappa d^2 of the waiting, kappa = B^2 T''(B) / (2 T(B)). So mu
is chosen as if it stayed constant until the month ends, and it changes only with new knowledge and with
deviations from the plan:

    find mu with    a H sum_i lambda_i C_i(mu) + sum_i q_i C_i(mu)  =  B H + (B t - S)

    symbol     here                  meaning
    B          budget                dollars per hour, or GPUs, on average over time
    t, S       elapsed, spent        hours of budget that have accrued, and what was spent: the ledger
    q_i        present               jobs of class i that are present; one that is half done counts a half
    lambda_i   rates                 stated arrivals per hour
    C_i(mu)    MultiplierTable       what a job takes from the budget at mu: falls as mu rises
    a          load_correction       estimate of the actual load over the stated load
    H          horizon_hours         hours left of the calendar month, at least H_f; in the product with a,
                                     the mean hours of load in them if a rhythm is known
                                     (policies.online.rhythm)
    H_f        floor_hours           (tolerance x window / 2)^2 / grain, within window / 12 to window / 4
    E          credit                B t - S - sum_i q_i C_i(mu_0): money ahead of the plan, mu_0 = plan for B
    -          grain_hours           sum_i lambda_i C_i(mu_0)^2 / B^2: how single jobs spread an hour's spend

The horizon. The whole cost of a job counts from its arrival, so dE/dt = B - a (B + E/H) + noise is of first
order and does not oscillate. With exponential sizes the noise has the variance 2 x grain x B^2 per hour. A
horizon that shrank to zero would spend each month's money exactly and give the last jobs of the month too
little. With the floor H_f, E at the end of the month has the standard deviation B sqrt(grain x H_f): half of
the tolerance, for the H_f above. The rest is carried over. A credit or debt above B H / 2 lengthens H, up to
the window, so that it changes the burn by at most half.

The load. A = S + sum_i q_i C_i(mu_0) is the past and future cost of the jobs that came; P is the cost of the
stated load at the same multipliers; both forget over half a window. x = log(A/P) estimates the log of the
load over the stated one, with the variance

    s^2 = 2 grain / T + (R e^x / T)^2,    T = P/B hours of evidence,  R = window / 150 = 5 h

The second part is the daily rhythm: by day the load runs hours ahead of its mean, whatever the number of
jobs. If earlier weeks showed a rhythm, P weights each hour with it. The prior: with even odds the stated load
is about right, log a ~ N(0, 0.05^2), or wrong, N(0, 0.7^2); log a is the posterior mean. If it is right, with
even odds it has a weekly rhythm that is not known yet, which adds (0.15 min(1, (168 / T)^2))^2 to s^2: part
of a week may be far from the mean, several weeks are not. So a stated load that is right is kept through
nights and weekends, and one that is wrong by a factor of two is mostly given up within a day. If no load was
stated, only the prior of a wrong one is used.

While the cloud refuses launches, a credit counts as zero. Unused credit of a month is carried over up to 2 %
of a month's money; the rest is forgone, because the load could not use it. With a window other than a month H
is H_f throughout, and at most one window of credit is kept. All state is in the ledger and in the memory of
the last tick (A and P), so the same facts give the same multiplier. Scaling all prices and the budget by one
factor scales mu by its inverse and changes no width.

The cost of pacing. Single jobs alone give the burn a variance v: that of E/H, a martingale while H = T - t
and then an Ornstein-Uhlenbeck process, and that of a. The loss kappa v is known in advance
(`Pace.loss_fraction`).

Cost: O(classes + edges) per tick, edges being those of all the classes' hulls.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from policies.fast_dataclasses import fast_init
from policies.model import Money, check_positive
from policies.online.multiplier_table import MultiplierTable, Position, _added
from policies.online.rhythm import HOURS_PER_WEEK, Rhythm
from policies.speedup import Floats

MONTH_HOURS = 730.0
"""A mean month: converts dollars per month into dollars per hour, and is the default window."""
TOLERANCE = 0.02
"""Share of a window's money by which the spend may be off, and of which unspent credit is carried over."""
LEAST_FLOOR, MOST_FLOOR = 1.0 / 12.0, 1.0 / 4.0
"""Bounds of the shortest horizon as shares of the window: for a month, two and a half days and a week."""
MOST_CHANGE = 0.5
"""The largest change of the burn by a credit or debt, unless a window is too short to absorb it so slowly."""
FORGETTING = 0.5
"""Windows over which evidence on the load is forgotten."""
RHYTHM = 1.0 / 150.0
"""How far a daily rhythm lets the load run ahead of its mean, in windows: five hours of load for a month."""
RIGHT, WRONG = 0.05, 0.7
"""Standard deviation of log(true load / stated load) if the statement is about right, and if it is wrong."""
WEEK = 0.15
"""Standard deviation of the log of the load in a part of a week (such as the workdays) over its mean."""
FIRST_EVIDENCE = 0.001
"""Windows of stated load that are added to both sides of A/P, so that neither is zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The promise to keep: a budget per hour, and the window over which the average spend must equal it.

    `grain_hours` measures how coarse the load is: sum_i lambda_i C_i^2 / B^2, the variance that single jobs
    add to an hour's spend, in hours of budget. `is_monthly` means that every calendar month has the same
    money, 730 hours of budget, however long it is. `is_stated` means that the user stated the load. `rhythm`
    is the weekly pattern of the load, if one was seen. `loss_fraction` is the share of the waiting that the
    response to single jobs costs; None if not known. `covered_per_hour` is the budget, which is at on-demand
    prices, less what may be spent: the usage that commitments pay for, less their price.
    """

    budget: float
    window_hours: float = MONTH_HOURS
    grain_hours: float = 0.0
    is_monthly: bool = False
    is_stated: bool = True
    rhythm: Rhythm | None = None
    loss_fraction: float | None = None
    covered_per_hour: float = 0.0

    def __post_init__(self) -> None:
        for name, value in (("budget", self.budget), ("window_hours", self.window_hours)):
            check_positive(f"{name} of a pace", value)
        check_positive("grain_hours of a pace", self.grain_hours, zero=True)

    @property
    def is_calendar(self) -> bool:
        """Whether the window is the calendar month."""
        return self.window_hours == MONTH_HOURS

    @property
    def floor_hours(self) -> float:
        """The shortest horizon, in hours: as long as the tolerance permits."""
        least, most = LEAST_FLOOR * self.window_hours, MOST_FLOOR * self.window_hours
        spread = 0.5 * TOLERANCE * self.window_hours
        return min(max(spread * spread / max(self.grain_hours, spread * spread / most), least), most)

    def horizon_hours(self, money: Money, credit: float) -> float:
        """Return the hours over which the money left, and a credit or debt, is spread."""
        left = money.month_left_hours if self.is_calendar else 0.0
        needed = min(abs(credit) / (MOST_CHANGE * self.budget), self.window_hours)
        return max(left, self.floor_hours, needed)

    def ahead(self, money: Money) -> float:
        """Return the accrued and unspent money, without the credit that is forgone."""
        most = self.budget * self._most_unspent_hours(money)
        return min(self.budget * money.elapsed_hours - money.spent, most)

    def opening_hours(self, money: Money) -> float:
        """Return by how many hours to move the ledger's opening, to forgo credit that may not be kept."""
        unspent_hours = money.elapsed_hours - money.spent / self.budget
        return max(0.0, unspent_hours - self._most_unspent_hours(money))

    def _most_unspent_hours(self, money: Money) -> float:
        """Return how many hours of budget may be unspent: those of this month, and 2 % of a window."""
        if not self.is_calendar:
            return self.window_hours
        return money.month_elapsed_hours + TOLERANCE * self.window_hours

    def load_correction(self, actual: float, stated: float) -> float:
        """Return the estimated load over the stated load, from the `actual` and `stated` load in money."""
        first = FIRST_EVIDENCE * self.window_hours * self.budget
        seen = math.log((max(actual, 0.0) + first) / (stated + first))
        hours = (stated + first) / self.budget
        noise = self._log_variance(hours, seen)
        if not self.is_stated:
            return math.exp(seen * WRONG**2 / (WRONG**2 + noise))
        week = 0.0 if self.rhythm is not None else (WEEK * min(1.0, HOURS_PER_WEEK / hours) ** 2) ** 2
        logs, shares = [], []
        for odds, variance, rhythm in ((0.25, RIGHT**2, 0.0), (0.25, RIGHT**2, week), (0.5, WRONG**2, 0.0)):
            spread = variance + rhythm + noise
            logs.append(math.log(odds / math.sqrt(spread)) - 0.5 * seen**2 / spread)
            shares.append(variance / spread)
        best = max(logs)
        likely = [math.exp(log - best) for log in logs]
        weighted = [share * odds for share, odds in zip(shares, likely, strict=True)]
        return math.exp(seen * (_added(weighted) / _added(likely)))

    def _log_variance(self, hours: float, seen: float) -> float:
        """Return the variance of `seen`, the log of load over stated load, after `hours` of evidence."""
        rhythm = RHYTHM * self.window_hours * math.exp(seen)
        return 2.0 * self.grain_hours / hours + (rhythm / hours) ** 2

    def burn_variance(self) -> float:
        """Return the variance of (burn / mean burn) that single jobs cause if the load is as stated."""
        window, floor, noise = self.window_hours, self.floor_hours, 2.0 * self.grain_hours
        steady = noise / (2.0 * floor)
        if self.is_calendar:
            # While H = T - t, E/H is a martingale whose variance grows by noise dt / H^2; then it relaxes.
            bridged = noise * (math.log(window / floor) - 1.0 + floor / window) / window
            relaxing = 0.5 * floor * (1.0 - math.exp(-2.0)) / window
            at_floor = noise * (1.0 / floor - 1.0 / window)
            steady = bridged + steady * floor / window + (at_floor - steady) * relaxing
        evidence = self._log_variance(FORGETTING * window, 0.0)
        prior = RIGHT if self.is_stated else WRONG
        return steady + evidence * (prior**2 / (prior**2 + evidence)) ** 2

    def hours_of_load(self, begin: float, hours: float) -> float:
        """Return the load, in mean hours, of the `hours` that follow the hour of the week `begin`."""
        return hours if self.rhythm is None else self.rhythm.hours_of_load(begin, hours)

    def costed(self, curvature: float | None) -> Pace:
        """Return the same pace with its `loss_fraction`, where kappa is `curvature`."""
        loss = None if curvature is None else curvature * self.burn_variance()
        return replace(self, loss_fraction=loss)


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The result of the pacing law for one tick: a position on the frontier, and the figures behind it.

    `memory` is for the next tick: the part of the committed money that is forgotten; the cost of the stated
    load so far; the least cost per hour of the stated load, which reveals changes of prices and statements;
    and the load correction, for display only. `load_hours` is the load of the horizon in mean hours.
    """

    position: Position
    credit: float
    horizon_hours: float
    load_correction: float
    load_hours: float
    memory: tuple[float, ...]


def pace_step(pace: Pace, table: MultiplierTable, present: Floats, money: Money) -> Step:
    """Return the position at which the jobs present and the expected arrivals cost exactly the money left."""
    budget, yardstick = pace.budget * money.accrual, float(table.rates @ table.least_cost)
    committed = money.spent + (owed := table.cost_at(present, table.planned(budget)))
    # Jobs present at the first tick are no evidence of the arrival rate.
    forgotten, stated, before = money.memory[:3] if money.memory else (committed, 0.0, yardstick)
    stated *= yardstick / before
    correction = pace.load_correction(committed - forgotten, stated)
    credit = pace.ahead(money) - owed
    credit = min(credit, 0.0) if money.is_refused else credit
    hours = pace.horizon_hours(money, credit)
    # The rhythm counts in this month only; hours of the horizon beyond it count as mean hours.
    in_month = min(hours, money.month_left_hours) if pace.is_calendar else 0.0
    load_hours = pace.hours_of_load(money.hour_of_week, in_month) + hours - in_month
    position = table.position(
        table.rates * (correction * load_hours) + present, budget * hours + credit + owed
    )
    age = money.memory_age_hours
    came = pace.hours_of_load(money.hour_of_week - age, age)
    kept = math.exp(-age / (FORGETTING * pace.window_hours))
    return Step(
        position=position,
        credit=credit,
        horizon_hours=hours,
        load_correction=correction,
        load_hours=load_hours,
        memory=(
            committed - (committed - forgotten) * kept,
            stated * kept + table.rates_cost_at(position) * came,
            yardstick,
            correction,
        ),
    )
