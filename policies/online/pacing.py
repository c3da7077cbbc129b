"""Pacing: the one multiplier that makes the money last a month, changed as little as that promise allows.

Widths depend on rates and sizes only through the multiplier mu (policies.optimum.boa), so the multiplier is
all that has to be steered. Without caps no policy beats a constant one: the frontier is convex, and burn that
varies by a share d around its mean costs kappa d^2 of the waiting, kappa = B^2 T''(B) / (2 T(B)). So mu is
chosen as if it were to stay until the month ends, and moves only with what is learnt and with what went
otherwise:

    find mu with    a H sum_i lambda_i C_i(mu) + sum_i q_i C_i(mu)  =  B H + (B t - S)

    symbol     here                  meaning
    B          budget                dollars per hour, or GPUs, on average over time
    t, S       elapsed, spent        hours of budget that have accrued, and what was spent: the ledger
    q_i        present               jobs of class i that are present; one that is half done counts a half
    lambda_i   rates                 arrivals per hour, stated
    C_i(mu)    MultiplierTable       what a job takes from the budget at mu: falls as mu rises
    a          load_correction       the load that comes over the stated load, believed
    H          horizon_hours         hours left of the calendar month, at least H_f; beside a, with a rhythm
                                     (policies.online.rhythm), the mean hours of load that come in them
    H_f        floor_hours           (tolerance x window / 2)^2 / grain, within window / 12 to window / 4
    E          credit                B t - S - sum_i q_i C_i(mu_0): money ahead of the plan, mu_0 = plan for B
    -          grain_hours           sum_i lambda_i C_i(mu_0)^2 / B^2: how single jobs spread an hour's spend

The horizon. What a job will cost counts from the moment it arrives, so dE/dt = B - a (B + E/H) + noise is of
first order and does not oscillate. With exponential sizes the noise has the variance 2 x grain x B^2 per
hour. A horizon that shrank to nothing would end each month on its money and squeeze its last jobs. Held at
H_f, E at the end of the month spreads by B sqrt(grain x H_f): half of the tolerance, for the H_f above. What
is off is carried over. A credit or debt above B H / 2 lengthens H, up to the window, so that it changes the
burn by half at most.

The load. A = S + sum_i q_i C_i(mu_0) is what the jobs that came have cost and will cost; P is what the stated
load costs at the same multipliers; both forget over half a window. x = log(A/P) says what load comes, with
the variance

    s^2 = 2 grain / T + (R e^x / T)^2,    T = P/B hours of evidence,  R = window / 150 = 5 h

whose second part is a rhythm: by day the load runs hours ahead of its mean, however many jobs it is made of.
Where the weeks before showed one, P counts each hour by what it brings of the mean.
The stated load is about right, log a ~ N(0, 0.05^2), or it is not, N(0, 0.7^2), with even odds; log a is the
posterior mean. Where it is right, odds are even that it has a week's rhythm that is not known yet, which adds
(0.15 min(1, (168 / T)^2))^2 to s^2: a part of a week may be far from its mean, several weeks are not. Right
beliefs are left alone through nights and weekends, and ones that are wrong by a factor of two are mostly
given up within a day. Where nobody stated a load only the prior of wrong ones counts.

While the cloud refuses launches a credit counts as none. Credit that a month did not use is carried over as
far as 2 % of a month's money; more than that was money that the load could not use, and is forgone. With a
window other than a month H is H_f throughout, and credit is worth a window. All state is in the ledger and in
what the last tick remembered of A and P. The same facts give the same multiplier. Scaling all prices and the
budget by one factor scales mu by its inverse and changes no width.

What it costs. Single jobs alone move the burn by a variance v: of E/H, a martingale while H = T - t and then
an Ornstein-Uhlenbeck process, and of a. The loss kappa v is known before it is paid (`Pace.loss_fraction`).

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
"""A mean month: what turns dollars per month into dollars per hour, and the default window."""
TOLERANCE = 0.02
"""Of a window's money: how far its spend may be off, and what of an unspent credit is carried over."""
LEAST_FLOOR, MOST_FLOOR = 1.0 / 12.0, 1.0 / 4.0
"""The shortest horizon is between these shares of the window: of a month, two and a half days and a week."""
MOST_CHANGE = 0.5
"""Of the burn, by a credit or a debt, unless it exceeds what a window can even out so slowly."""
FORGETTING = 0.5
"""Windows over which evidence on the load is forgotten."""
RHYTHM = 1.0 / 150.0
"""How far a rhythm lets the load run ahead of its mean, in windows: five hours of load in a month."""
RIGHT, WRONG = 0.05, 0.7
"""Spread of the logarithm of the true load over the stated one: where that is about right, and where not."""
WEEK = 0.15
"""Spread of the logarithm of the load of a part of a week over its mean: of workdays, say."""
FIRST_EVIDENCE = 0.001
"""Windows' worth of the stated load that are added to both sides of A/P, so that it is never zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The promise: a budget per hour, and the hours over which the spend has to agree with it.

    `grain_hours` says how coarse the load is: sum_i lambda_i C_i^2 / B^2, the variance that single jobs bring
    into an hour's spend, in hours of budget. `is_monthly` says that every calendar month has the same money,
    730 hours of budget, however long it is. `is_stated` says that somebody stated the load. `rhythm` is that
    of the week, where one was seen.
    `loss_fraction` is the part of the waiting that the response to single jobs costs, None where not known.
    `covered_per_hour` is how much larger the budget is than what may be spent, since it is one at prices on
    demand: what commitments pay for, less what is paid for them.
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
        """The shortest horizon: as long as the tolerance permits."""
        least, most = LEAST_FLOOR * self.window_hours, MOST_FLOOR * self.window_hours
        spread = 0.5 * TOLERANCE * self.window_hours
        return min(max(spread * spread / max(self.grain_hours, spread * spread / most), least), most)

    def horizon_hours(self, money: Money, credit: float) -> float:
        """Return the hours over which what is left is spread."""
        left = money.month_left_hours if self.is_calendar else 0.0
        needed = min(abs(credit) / (MOST_CHANGE * self.budget), self.window_hours)
        return max(left, self.floor_hours, needed)

    def ahead(self, money: Money) -> float:
        """Return what has accrued and is not spent; what is forgone does not count."""
        most = self.budget * self._most_unspent_hours(money)
        return min(self.budget * money.elapsed_hours - money.spent, most)

    def opening_hours(self, money: Money) -> float:
        """Return by how many hours later the books should open: older credit than may be kept is forgone."""
        unspent_hours = money.elapsed_hours - money.spent / self.budget
        return max(0.0, unspent_hours - self._most_unspent_hours(money))

    def _most_unspent_hours(self, money: Money) -> float:
        """Return how many hours of budget may be unspent: the month's so far and a little of the last one."""
        if not self.is_calendar:
            return self.window_hours
        return money.month_elapsed_hours + TOLERANCE * self.window_hours

    def load_correction(self, actual: float, stated: float) -> float:
        """Return the load that comes over the stated one, from what came and what was stated, in money."""
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
        """Return the variance of the logarithm of the load that was seen in so many hours."""
        rhythm = RHYTHM * self.window_hours * math.exp(seen)
        return 2.0 * self.grain_hours / hours + (rhythm / hours) ** 2

    def burn_variance(self) -> float:
        """Return the variance of the burn over its mean that single jobs cause, the load being as stated."""
        window, floor, noise = self.window_hours, self.floor_hours, 2.0 * self.grain_hours
        steady = noise / (2.0 * floor)
        if self.is_calendar:
            # While H = T - t, E/H is a martingale that gains noise dt / H^2; then it relaxes over H_f.
            bridged = noise * (math.log(window / floor) - 1.0 + floor / window) / window
            relaxing = 0.5 * floor * (1.0 - math.exp(-2.0)) / window
            at_floor = noise * (1.0 / floor - 1.0 / window)
            steady = bridged + steady * floor / window + (at_floor - steady) * relaxing
        evidence = self._log_variance(FORGETTING * window, 0.0)
        prior = RIGHT if self.is_stated else WRONG
        return steady + evidence * (prior**2 / (prior**2 + evidence)) ** 2

    def hours_of_load(self, begin: float, hours: float) -> float:
        """Return how many mean hours of load come in so many hours from an hour of the week on."""
        return hours if self.rhythm is None else self.rhythm.hours_of_load(begin, hours)

    def costed(self, curvature: float | None) -> Pace:
        """Return the same with what it costs where kappa is `curvature`."""
        loss = None if curvature is None else curvature * self.burn_variance()
        return replace(self, loss_fraction=loss)


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one tick of the law comes to: where to be on the frontier, and the figures behind it.

    `memory` is for the next tick: what was committed and is forgotten; what the stated load cost so far; what
    the stated load costs per hour at the least, by which prices and statements that change are noticed; and,
    for people, the load correction. `load_hours` are the mean hours of load that the horizon brings.
    """

    position: Position
    credit: float
    horizon_hours: float
    load_correction: float
    load_hours: float
    memory: tuple[float, ...]


def pace_step(pace: Pace, table: MultiplierTable, present: Floats, money: Money) -> Step:
    """Return where on the frontier the jobs present and those to come use up the money, and not more."""
    budget, yardstick = pace.budget * money.accrual, float(table.rates @ table.least_cost)
    committed = money.spent + (owed := table.cost_at(present, table.planned(budget)))
    # What was there at the first tick says nothing of how much comes.
    forgotten, stated, before = money.memory[:3] if money.memory else (committed, 0.0, yardstick)
    stated *= yardstick / before
    correction = pace.load_correction(committed - forgotten, stated)
    credit = pace.ahead(money) - owed
    credit = min(credit, 0.0) if money.is_refused else credit
    hours = pace.horizon_hours(money, credit)
    # The month after pays for its own rhythm: what the horizon holds of it counts as mean hours.
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
