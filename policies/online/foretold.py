"""What a promise about money costs in waiting, before it is paid: the law run on a load, without nodes.

A load is the work that comes in each hour over its mean, and how many jobs bring it. The law decides as it
would (`policies.online.pacing`), job by job in a burst. The jobs present are one amount of work. In an hour
the share 1 / T of it is done and paid for, where T is the mean JCT of the frontier at the multiplier of that
hour: so a later multiplier also changes the jobs that run. The loss is the mean JCT of what was done over
that of the best constant multiplier for the same money, less one. So bursts, weekends, single jobs and growth
count as they come, and the loss is bounded by the ends of the frontier.

Loads come from a trace, or from the weeks that were seen, drawn again and again. Where only the work of hours
is known, the law takes even steps, and jobs are paid for as they come: a lower bound. Before a week was seen
they are drawn as single jobs, by the grain of the stated load alone: what the load of the user does beyond
that is then not known, and the loss is a lower bound.

Cost: a fraction of a millisecond per step of the law, some tens of milliseconds in all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from policies.model import Money
from policies.online.multiplier_table import MultiplierTable
from policies.online.pacing import Pace, Period, pace_step
from policies.online.promise_loss import ForetoldLoss, is_too_coarse
from policies.online.rhythm import HOURS_PER_DAY, HOURS_PER_WEEK, LEAST_WEEKS, SeenLoad
from policies.optimum.frontier import MixedFrontier
from policies.speedup import Floats

STEPS, PATHS = 96, 4
"""Decisions in a period of even load, and draws of the load, where it is drawn."""
MORE_PATHS, ORDERS = 8, 8
"""Draws of a coarse load, and orders of the days of one that was seen."""
MOST_BURSTS = 1000
"""Into how many parts of equal work a load is divided at most, for its bursts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromisePrice:
    """Foretells losses for one frontier; `table` has the stated rates, whose cost is the budget's."""

    table: MultiplierTable
    frontier: MixedFrontier

    def loss(self, pace: Pace, loads: Floats | SeenLoad | None = None) -> float | None:
        """Return the mean part of the waiting that the promise costs: `foretell` without the other orders."""
        found = self._foretell(pace, loads, orders=0)
        return None if found is None else found.mean

    def foretell(self, pace: Pace, loads: Floats | SeenLoad | None = None) -> ForetoldLoss | None:
        """Return the part of the waiting that the promise costs; None if the budget pays for no plan.

        `loads`, shape (hours,) or (paths, hours), are the work of each hour in any unit, or a load that was
        seen with its jobs. Without them a period is drawn by the grain of the load.
        """
        return self._foretell(pace, loads, orders=ORDERS)

    def _foretell(self, pace: Pace, loads: Floats | SeenLoad | None, *, orders: int) -> ForetoldLoss | None:
        if pace.budget <= self.frontier.cheapest_feasible_spend:
            return None
        jobs = equal_jobs(pace, loads)
        is_coarse = is_too_coarse(jobs, pace.tolerance)
        if loads is None:
            paths = MORE_PATHS if is_coarse else PATHS
            loads = drawn_by_grain(pace.grain_hours, pace.period_hours, paths=paths)
        seen = loads if isinstance(loads, SeenLoad) else None
        runs = np.atleast_2d(np.asarray(loads if seen is None else seen.work, dtype=float))
        if not runs.size or runs.sum() <= 0.0:
            return None
        runs = runs / runs.mean()
        counts = None if seen is None else seen.jobs
        losses = [self._loss(pace, run, counts) for run in runs]
        others = [
            self._loss(pace, *one) for one in _other_orders(runs[0], counts, orders if is_coarse else 0)
        ]
        return ForetoldLoss(
            mean=max(math.fsum(losses) / len(losses), 0.0),
            least=max(min(*losses, *others, math.inf), 0.0),
            most=max(*losses, *others, 0.0),
            jobs=jobs,
            is_coarse=is_coarse,
        )

    def _loss(self, pace: Pace, load: Floats, jobs: Floats | None) -> float:
        return self._ratio(*self._run(pace, load, jobs)) - 1.0

    def _ratio(self, work: Floats, spend: Floats) -> float:
        """Return the mean JCT of work at its spends over that at a constant spend for the same money."""
        budgets = np.clip(spend, self.frontier.cheapest_feasible_spend, self.frontier.largest_useful_spend)
        mean, waits = np.array([work @ budgets / work.sum()]), self.frontier.mean_jct_at(budgets)
        return float(work @ waits / work.sum() / self.frontier.mean_jct_at(mean)[0])

    def _run(self, pace: Pace, load: Floats, jobs: Floats | None) -> tuple[Floats, Floats]:
        """Return the work done in each step, and what an hour of mean load costs at its multiplier."""
        hours, work = steps_of(load, jobs, min(len(load), pace.period_hours) / STEPS)
        done, cost = np.empty(len(work) + 1), np.empty(len(work) + 1)
        spent, at, present, memory = 0.0, 0.0, 0.0, tuple[float, ...]()
        least, most = self.frontier.cheapest_feasible_spend, self.frontier.largest_useful_spend
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
            if jobs is not None:
                present += came
            found = pace_step(pace, self.table, self.table.rates * present, money)
            memory = found.memory
            cost[step] = self.table.rates_cost_at(found.position)
            if jobs is None:
                done[step] = came
            else:
                takes = self.frontier.mean_jct_at(np.array([min(max(cost.item(step), least), most)])).item()
                done[step] = present * -math.expm1(-lasts / takes)
                present -= done.item(step)
            spent += done.item(step) * cost.item(step)
            at += lasts
        # What is left ends as it was going.
        done[-1], cost[-1] = present, cost[-2]
        return done, cost


def steps_of(load: Floats, jobs: Floats | None, longest: float) -> tuple[Floats, Floats]:
    """Return the hours and the work of each step of the law: shorter where much comes at once.

    `load` is the work of each hour over its mean, `jobs` how many equal jobs bring it. The law sees the jobs
    of a burst one by one, and has narrowed the last ones before they come: an hour that brings more than a
    mean part of the load is divided among its jobs. Other hours go together, up to `longest` of them; all do
    where the jobs are not known.
    """
    if jobs is None:
        begins = np.arange(0, len(load), max(1, round(longest)))
        return np.add.reduceat(np.ones(len(load)), begins), np.add.reduceat(load, begins)
    most = float(load.sum()) / MOST_BURSTS
    lasts: list[float] = []
    works: list[float] = []
    hours = came = 0.0
    for work, count in zip(load.tolist(), jobs.tolist(), strict=True):
        parts = min(max(1, math.ceil(count)), math.ceil(work / most)) if work > most else 0
        if hours and (parts or hours + 1.0 > longest or came + work > most):
            lasts.append(hours)
            works.append(came)
            hours = came = 0.0
        if parts:
            lasts += [1.0 / parts] * parts
            works += [work / parts] * parts
        else:
            hours, came = hours + 1.0, came + work
    if hours:
        lasts.append(hours)
        works.append(came)
    return np.array(lasts), np.array(works)


def equal_jobs(pace: Pace, loads: Floats | SeenLoad | None = None) -> float:
    """Return how many equal jobs would spread the load of a period as much as its jobs do.

    By the jobs that were seen, or else by the stated grain, which takes sizes as exponential.
    """
    if not isinstance(loads, SeenLoad):
        return pace.period_hours / max(2.0 * pace.grain_hours, 1e-9)
    work = float(loads.work.sum())
    squares = np.divide(
        loads.work**2, loads.jobs, out=np.zeros(len(loads.work)), where=loads.jobs > 0.0
    ).sum()
    return work * work / float(squares) * pace.period_hours / len(loads.work) if squares > 0.0 else 0.0


def _other_orders(load: Floats, jobs: Floats | None, orders: int) -> Iterator[tuple[Floats, Floats]]:
    """Yield a load that was seen with its days in other orders; nothing where its jobs are not known."""
    if jobs is None:
        return
    rng, hours = np.random.default_rng(0), np.arange(len(load))
    days = np.array_split(hours, np.arange(HOURS_PER_DAY, len(load), HOURS_PER_DAY))
    for _ in range(orders):
        order = np.concatenate([days[day] for day in rng.permutation(len(days))])
        yield load[order], jobs[order]


def drawn_by_grain(grain_hours: float, hours: float, *, seed: int = 0, paths: int = PATHS) -> Floats:
    """Return loads in which only single jobs vary: Gamma distributed, of variance 2 x grain per hour."""
    noise = max(2.0 * grain_hours, 1e-9)
    return np.random.default_rng(seed).gamma(1.0 / noise, noise, size=(paths, math.ceil(hours)))


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
