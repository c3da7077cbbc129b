"""What a promise about money costs in waiting, before it is paid: the law run on a load, without nodes.

A load is the work that comes in each hour over its mean. The law decides as it would
(`policies.online.pacing`), jobs cost at once what they will cost in all, and their mean JCT is that of the
frontier at the money that they take. The loss is the mean JCT over that of the best constant multiplier for
the same money, less one: so bursts, weekends, single jobs and growth count as they come, and the loss is
bounded by the ends of the frontier.

Loads come from a trace, or from the weeks that were seen, drawn again and again. Before a week was seen they
are drawn as single jobs, by the grain of the stated load alone: what the user's own load does beyond that is
then not known, and the loss is a lower bound.

Cost: a fraction of a millisecond per step of the law, some tens of milliseconds in all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from policies.model import Money
from policies.online.multiplier_table import MultiplierTable
from policies.online.pacing import Pace, Period, pace_step
from policies.online.rhythm import HOURS_PER_WEEK, LEAST_WEEKS
from policies.optimum.frontier import MixedFrontier
from policies.speedup import Floats

STEPS, PATHS = 96, 4
"""Decisions in a period, and draws of the load, where it is drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromisePrice:
    """Foretells losses for one frontier; `table` has the stated rates, whose cost is the budget's."""

    table: MultiplierTable
    frontier: MixedFrontier

    def loss(self, pace: Pace, loads: Floats | None = None) -> float | None:
        """Return the part of the waiting that the promise costs; None if the budget pays for no plan.

        `loads`, shape (hours,) or (paths, hours), are the work of each hour in any unit. Without them a
        period is drawn by the grain of the load.
        """
        if pace.budget <= self.frontier.cheapest_feasible_spend:
            return None
        if loads is None:
            loads = drawn_by_grain(pace.grain_hours, pace.period_hours)
        paths = np.atleast_2d(np.asarray(loads, dtype=float))
        if not paths.size or paths.sum() <= 0.0:
            return None
        paths = paths / paths.mean()
        work, spend = np.array([self._run(pace, path) for path in paths]).transpose(1, 0, 2)
        budgets = np.clip(spend, self.frontier.cheapest_feasible_spend, self.frontier.largest_useful_spend)
        waits = self.frontier.mean_jct_at(budgets.ravel()).reshape(budgets.shape)
        mean = (work * budgets).sum(axis=1) / work.sum(axis=1)
        best = self.frontier.mean_jct_at(mean)
        return float(max(np.mean((work * waits).sum(axis=1) / work.sum(axis=1) / best) - 1.0, 0.0))

    def _run(self, pace: Pace, load: Floats) -> tuple[Floats, Floats]:
        """Return the work of each step, and what an hour of mean load costs at its multiplier."""
        per_step = max(1, round(min(len(load), pace.period_hours) / STEPS))
        hours = np.add.reduceat(np.ones(len(load)), np.arange(0, len(load), per_step))
        work = np.add.reduceat(load, np.arange(0, len(load), per_step))
        cost = np.empty(len(work))
        spent, at, memory, nothing = 0.0, 0.0, tuple[float, ...](), np.zeros(len(self.table.rates))
        for step, (lasts, came) in enumerate(zip(hours.tolist(), work.tolist(), strict=True)):
            elapsed = at % pace.period_hours if pace.is_calendar else at
            money = Money(
                spent=spent,
                elapsed_hours=at,
                period_elapsed_hours=elapsed,
                period_left_hours=pace.period_hours - elapsed,
                memory=memory,
                memory_age_hours=hours.item(step - 1) if step else 0.0,
                hour_of_week=at % HOURS_PER_WEEK,
            )
            found = pace_step(pace, self.table, nothing, money)
            memory = found.memory
            cost[step] = self.table.rates_cost_at(found.position)
            spent += came * cost.item(step)
            at += lasts
        return work, cost


def drawn_by_grain(grain_hours: float, hours: float, *, seed: int = 0) -> Floats:
    """Return loads in which only single jobs vary: Gamma distributed, of variance 2 x grain per hour."""
    noise = max(2.0 * grain_hours, 1e-9)
    return np.random.default_rng(seed).gamma(1.0 / noise, noise, size=(PATHS, math.ceil(hours)))


def drawn_again(work: Floats, hours: float, *, seed: int = 0) -> Floats | None:
    """Return loads of `hours` hours made of the whole weeks in `work`; None while there are too few."""
    weeks = len(work) // HOURS_PER_WEEK
    if weeks < LEAST_WEEKS or work[-weeks * HOURS_PER_WEEK :].sum() <= 0.0:
        return None
    seen = np.asarray(work[-weeks * HOURS_PER_WEEK :], dtype=float).reshape(weeks, HOURS_PER_WEEK)
    chosen = np.random.default_rng(seed).integers(weeks, size=(PATHS, math.ceil(hours / HOURS_PER_WEEK)))
    return seen[chosen].reshape(PATHS, -1)[:, : math.ceil(hours)]


PROMISES: tuple[tuple[Period, float], ...] = (
    ("month", 0.02),
    ("month", 0.1),
    ("quarter", 0.1),
    ("year", 0.1),
)
"""The promises whose prices are shown beside the chosen one."""


def promises(pace: Pace) -> list[Pace]:
    """Return the promises to be compared, the chosen one first."""
    others = [replace(pace, period=period, tolerance=part, window_hours=None) for period, part in PROMISES]
    return [
        pace,
        *(other for other in others if (other.period, other.tolerance) != (pace.period, pace.tolerance)),
    ]
