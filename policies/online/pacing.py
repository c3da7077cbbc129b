"""Pacing: the one multiplier that makes the money last, from what was spent and who is here.

Widths depend on rates and sizes only through the multiplier mu (policies.optimum.boa), so the multiplier is
all that has to be steered. The law looks H hours ahead. By then budget x (elapsed + H) will have accrued;
what is not spent of it has to pay for the jobs that are present and for those that arrive meanwhile:

    find mu with    sum_i (lambda_i H + q_i) C_i(mu)  =  B (t + H) - S

    symbol     here                  meaning
    B          budget                dollars per hour, or GPUs, on average over time
    t, S       elapsed, spent        hours since the books opened, and what was spent since: the ledger
    q_i        present               jobs of class i that are present; one that is half done counts a half
    lambda_i   rates                 arrivals per hour, believed; wrong beliefs are learnt away, see below
    C_i(mu)    MultiplierTable       what a job takes from the budget at mu: falls as mu rises
    E          credit                B t - S - sum_i q_i C_i(mu_0): money ahead of the plan, mu_0 = plan for B
    z          lean                  what the integral of the credit says about the beliefs
    H          horizon_hours         the response time, or longer where the credit is large
    -          grain_hours           sum_i lambda_i C_i(mu_0)^2 / B^2: how single jobs spread an hour's spend

Why it converges: with q = 0 the law spends B + E/H per hour by belief, a (B + E/H) in truth when a times the
believed work arrives. What a job will cost counts from the moment it arrives, so nothing lags, and
dE/dt = B - a (B + E/H)  is linear, of first order, with time constant H/a, for every shape of the curves: the
frontier's own slope is the gain. Wrong beliefs would leave E at B H (1/a - 1). The lean z, the integral of E,
takes that away: the law aims at (1 + z) B in place of B, where

    dz/dt = g E / (B H^2),  g = 1/4;    roots of  s^2 + (a/H) s + a g/H^2:  critically damped at a = 1,
    no overshoot for a > 1, 4 % at a = 1/2

Large deviations: a credit above 1.5 B H, or a debt below -0.75 B H, lengthens H so that the burn stays
between B/4 and 2.5 B; H never exceeds the window, and z does not grow meanwhile. Nor does it where every job
has its widest or its narrowest width: no belief would change that. While the cloud refuses launches a credit
counts as none. Credit older than the window is forgone: the books open later. All state is
in the ledger; the same facts give the same multiplier. Scaling all prices and the budget by one factor scales
mu by its inverse and changes no width.

Cost: O(classes + edges) per tick, edges being those of all the classes' hulls.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policies.model import Money, Problem, check_positive
from policies.optimum.hull import lower_hulls, merge
from policies.optimum.options import OptionSet, whole_width_options
from policies.speedup import Floats, Ints

WINDOW_HOURS = 24.0
"""Default window over which spend agrees with the budget: a day evens out its own night."""
MOST_RESPONSES_PER_WINDOW, LEAST_RESPONSES_PER_WINDOW = 24.0, 12.0
"""A window is this many response times: the more, the closer a window keeps to its money."""
GRAINS_PER_RESPONSE = 16.0
"""With exponential sizes, single jobs then move the burn by sqrt(1 / 16): waiting hardly suffers."""
MOST_CREDIT = 1.5
"""Extra burn, in budgets, that a credit may cause at most."""
MOST_DEBT = 0.75
"""Burn, in budgets, that a debt may take away at most, unless it exceeds what a window can repay."""
INTEGRAL_GAIN = 0.25
"""Lean per response time and relative credit; a quarter damps critically."""
LEAST_LEAN, MOST_LEAN = -0.75, 1.5
"""Beliefs may be four times too low, or two and a half times too high."""
BEYOND = 2.0
"""How far the multipliers at both ends lie beyond the first and the last slope."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The law: a budget per hour, and the hours over which the spend has to agree with it.

    `grain_hours` says how coarse the load is: sum_i lambda_i C_i^2 / B^2, the variance that single jobs bring
    into an hour's spend, in hours of budget.
    """

    budget: float
    window_hours: float = WINDOW_HOURS
    grain_hours: float = 0.0

    def __post_init__(self) -> None:
        for name, value in (("budget", self.budget), ("window_hours", self.window_hours)):
            check_positive(f"{name} of a pace", value)
        check_positive("grain_hours of a pace", self.grain_hours, zero=True)

    @property
    def response_hours(self) -> float:
        """The shortest horizon, what a small deviation takes to be evened out: longer for large jobs."""
        smooth = max(GRAINS_PER_RESPONSE * self.grain_hours, self.window_hours / MOST_RESPONSES_PER_WINDOW)
        return min(smooth, self.window_hours / LEAST_RESPONSES_PER_WINDOW)

    def leant(self, money: Money, *, credit: float, is_at_end: bool = False) -> float:
        """Return the lean after this tick: the integral of the credit, in budgets and response times.

        A credit or debt too large for the shortest horizon says nothing about beliefs, nor does one that no
        multiplier can use up, `is_at_end` of the frontier: then the lean does not grow, though it may shrink.
        While the cloud refuses, and over gaps longer than a response, nothing is learnt.
        """
        exact = credit / (self.budget * self.response_hours)
        relative = min(max(exact, -MOST_DEBT), MOST_CREDIT)
        says_little = is_at_end or relative != exact
        if money.is_refused or (says_little and relative * money.lean >= 0.0):
            return money.lean
        hours = min(money.lean_age_hours, self.response_hours)
        lean = money.lean + INTEGRAL_GAIN * relative * hours / self.response_hours
        return min(max(lean, LEAST_LEAN), MOST_LEAN)

    def credit(self, money: Money, *, owed: float) -> float:
        """Return the money ahead of the plan once the jobs present are paid for at the planned multiplier."""
        ahead = min(self.budget * money.elapsed_hours - money.spent_usd, self.budget * self.window_hours)
        credit = ahead - owed
        return min(credit, 0.0) if money.is_refused else credit

    def horizon_hours(self, credit: float) -> float:
        """Return the hours over which a credit or a debt is spread."""
        needed = max(credit / (MOST_CREDIT * self.budget), -credit / (MOST_DEBT * self.budget))
        return min(max(needed, self.response_hours), self.window_hours)

    def opening_hours(self, money: Money) -> float:
        """Return by how many hours later the books should open: credit older than the window is forgone."""
        unspent_hours = money.elapsed_hours - money.spent_usd / self.budget
        return max(0.0, unspent_hours - self.window_hours)


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A place on the frontier: `edge` edges are taken, and a share of the next one."""

    edge: int
    share: float
    multiplier: float

    def level_for(self, draw: float) -> int:
        """Return the level for a job, so that a share of all draws is one edge further than the others."""
        return self.edge + (draw >= 1.0 - self.share)


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiplierTable:
    """What a job of each class costs at each multiplier, rates left out: all hulls, merged by slope once.

    Level k lies between the slopes of edge k - 1 and edge k, so `multipliers` has one more entry than there
    are edges and falls. At level k a class has taken those of its edges that are among the first k.
    """

    multipliers: Floats
    edge_class: Ints
    edge_cost: Floats
    least_cost: Floats  # of a job at level 0, shape (classes,)
    rates: Floats  # believed arrivals per hour, shape (classes,)

    @classmethod
    def of(cls, problem: Problem) -> MultiplierTable:
        """Sweep the classes once, each as if one job of it arrived per hour."""
        options: OptionSet = whole_width_options(problem)
        chains = lower_hulls(
            options.spend,
            options.weights[options.group] * options.hours,
            options.group,
            groups=len(options.owner),
        )
        merged = merge(chains)
        least = np.zeros(len(problem.classes))
        np.add.at(least, options.owner, chains.cost[chains.starts[:-1]])
        return cls(
            multipliers=_between(merged.slope),
            edge_class=options.owner[merged.edge_group].astype(np.int64),
            edge_cost=np.diff(merged.cost),
            least_cost=least,
            rates=np.array([c.arrivals_per_hour for c in problem.classes]),
        )

    def costs(self, jobs: Floats) -> Floats:
        """Return what so many jobs of each class cost together at each level, shape (levels,)."""
        steps = jobs[self.edge_class] * self.edge_cost
        return float(jobs @ self.least_cost) + np.concatenate([[0.0], np.cumsum(steps)])

    def cost_at(self, jobs: Floats, position: Position) -> float:
        """Return what so many jobs of each class cost together at a place of the frontier."""
        costs = self.costs(jobs)
        after = costs[min(position.edge + 1, len(costs) - 1)]
        return float(costs[position.edge] * (1.0 - position.share) + after * position.share)

    def position(self, jobs: Floats, money: float) -> Position:
        """Return where so many jobs of each class cost `money`; an end of the table where they cannot."""
        costs = self.costs(jobs)
        last = len(costs) - 1
        edge = min(max(int(np.searchsorted(costs, money, side="right")) - 1, 0), last)
        share = 0.0
        if edge < last and money > costs[edge]:
            share = float((money - costs[edge]) / (costs[edge + 1] - costs[edge]))
        after = self.multipliers[min(edge + 1, last)]
        return Position(
            edge=edge, share=share, multiplier=float(self.multipliers[edge] ** (1.0 - share) * after**share)
        )

    def is_end(self, position: Position) -> bool:
        """Return whether every job has its widest width, or every job its narrowest."""
        return position.share == 0.0 and position.edge in (0, len(self.edge_cost))

    def planned(self, budget: float) -> Position:
        """Return where the believed arrivals of an hour cost the budget."""
        return self.position(self.rates, budget)

    def grain_hours(self, budget: float) -> float:
        """Return how coarse the believed load is at a budget, in hours of it (`Pace`)."""
        planned = self.planned(budget)
        costs = np.array([self.cost_at(job, planned) for job in np.eye(len(self.rates))])
        return float(self.rates @ costs**2) / budget**2


def _between(slopes: Floats) -> Floats:
    """Return multipliers between neighbouring slopes, and one beyond each end."""
    if not len(slopes):
        return np.ones(1)
    inside = np.sqrt(slopes[:-1] * slopes[1:])
    return np.concatenate([[slopes[0] * BEYOND], inside, [slopes[-1] / BEYOND]])


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one tick of the law comes to: where to be on the frontier, and the figures behind it."""

    position: Position
    credit: float
    horizon_hours: float
    lean: float


def pace_step(pace: Pace, table: MultiplierTable, present: Floats, money: Money) -> Step:
    """Return where on the frontier the jobs present and those to come use up the money, and not more."""
    aim = pace.budget * (1.0 + money.lean)
    owed = table.cost_at(present, table.planned(aim))
    credit = pace.credit(money, owed=owed)
    hours = pace.horizon_hours(credit)
    position = table.position(table.rates * hours + present, aim * hours + credit + owed)
    lean = pace.leant(money, credit=credit, is_at_end=table.is_end(position))
    return Step(position=position, credit=credit, horizon_hours=hours, lean=lean)
