"""The table from budgets to multipliers (the price of money), and the cost of the jobs at each multiplier."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from policies.fast_dataclasses import fast_init
from policies.memo import Memo
from policies.model import Problem
from policies.optimum.hull import lower_hulls, merge
from policies.optimum.options import OptionSet, whole_width_options
from policies.speedup import Floats, Ints

BEYOND = 2.0
"""Factor between the first slope and the first multiplier, and between the last slope and the last one."""

SHARE_STEPS = 40
"""Halvings by which the share of an edge is found."""


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A position on the frontier: `edge` edges are taken, and a share of the next one."""

    edge: int
    share: float
    multiplier: float

    def level_for(self, draw: float) -> int:
        """Return the level for a job: the fraction `share` of all draws is one edge further than the rest."""
        return self.edge + (draw >= 1.0 - self.share)


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiplierTable:
    """The cost of a job of each class at each multiplier, without rates: all hulls, merged by slope once.

    Level k lies between the slopes of edge k - 1 and edge k, so `multipliers` is decreasing and has one more
    entry than there are edges. At level k a class has taken those of its edges that are among the first k.
    """

    multipliers: Floats
    edge_class: Ints
    edge_cost: Floats
    least_cost: Floats  # of a job at level 0, shape (classes,)
    rates: Floats  # expected arrivals per hour, shape (classes,)
    costs_of_rates: Floats = field(init=False, repr=False, compare=False)  # of an hour's arrivals, (levels,)
    _planned: Memo[float, Position] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "costs_of_rates", self.costs(self.rates))
        object.__setattr__(self, "_planned", Memo(lambda budget: self._where(self.costs_of_rates, budget)))

    @classmethod
    def of(cls, problem: Problem, options: OptionSet | None = None) -> MultiplierTable:
        """Build the table from the hulls of all classes; `options` may be passed if they exist already."""
        options = whole_width_options(problem) if options is None else options
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
        """Return the total cost at each level, shape (levels,), of `jobs` jobs of each class."""
        costs = np.zeros(len(self.edge_cost) + 1)
        (jobs[self.edge_class] * self.edge_cost).cumsum(out=costs[1:])
        costs += float(jobs @ self.least_cost)
        return costs

    def cost_at(self, jobs: Floats, position: Position) -> float:
        """Return the total cost at a position of the frontier of `jobs` jobs of each class."""
        return _at(self.costs(jobs), position)

    def rates_cost_at(self, position: Position) -> float:
        """Return the cost of an hour's expected arrivals at a position of the frontier."""
        return _at(self.costs_of_rates, position)

    def position(self, jobs: Floats, money: float) -> Position:
        """Return the position at which `jobs` jobs of each class cost `money`, or the nearest end."""
        return self._where(self.costs(jobs), money)

    def drawn(self, jobs: Floats, planned: Position, draw: Callable[[float], float]) -> Position:
        """Return the position where log(multiplier / planned multiplier) is `draw` of the cost of `jobs`.

        `draw` must not fall as the cost rises, so there is one such position, or an end is the nearest.
        """
        costs, last = self.costs(jobs), len(self.multipliers) - 1
        if draw(_at(costs, planned)) == 0.0:
            return planned
        logs = np.log(self.multipliers / planned.multiplier)

        def is_before(edge: int, share: float) -> bool:
            after = min(edge + 1, last)
            log: float = logs.item(edge) * (1.0 - share) + logs.item(after) * share
            return log > draw(costs.item(edge) * (1.0 - share) + costs.item(after) * share)

        edge = bisect_left(range(last + 1), True, key=lambda level: not is_before(level, 0.0)) - 1
        if edge in (-1, last):
            return self.at(max(edge, 0))
        low, high = 0.0, 1.0
        for _ in range(SHARE_STEPS):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if is_before(edge, middle) else (low, middle)
        here, after = self.multipliers.item(edge), self.multipliers.item(edge + 1)
        return Position(edge=edge, share=high, multiplier=here ** (1.0 - high) * after**high)

    def _where(self, costs: Floats, money: float) -> Position:
        last = len(costs) - 1
        edge = min(max(int(costs.searchsorted(money, side="right")) - 1, 0), last)
        share = 0.0
        if edge < last and money > costs[edge]:
            share = float((money - costs[edge]) / (costs[edge + 1] - costs[edge]))
        after = self.multipliers[min(edge + 1, last)]
        return Position(
            edge=edge, share=share, multiplier=float(self.multipliers[edge] ** (1.0 - share) * after**share)
        )

    def at(self, edge: int) -> Position:
        """Return the position of a level, at which no two plans are mixed."""
        return Position(edge=edge, share=0.0, multiplier=self.multipliers.item(edge))

    def is_end(self, position: Position) -> bool:
        """Return whether every job has its widest width, or every job its narrowest."""
        return position.share == 0.0 and position.edge in (0, len(self.edge_cost))

    def planned(self, budget: float) -> Position:
        """Return the position at which an hour's expected arrivals cost the budget."""
        return self._planned[budget]

    @property
    def least_job_cost(self) -> float:
        """The least cost of a mean job."""
        return float(self.rates @ self.least_cost / self.rates.sum())

    def grain_hours(self, budget: float) -> float:
        """Return the grain of the expected load at a budget, in hours of budget (see `Pace`)."""
        planned = self.planned(budget)
        here, next_one = self._job_costs(planned.edge), self._job_costs(planned.edge + 1)
        costs = here * (1.0 - planned.share) + next_one * planned.share
        return float(self.rates @ costs**2) / budget**2

    def _job_costs(self, edge: int) -> Floats:
        """Return the cost of a job of each class after `edge` edges, shape (classes,)."""
        taken = np.bincount(
            self.edge_class[:edge], weights=self.edge_cost[:edge], minlength=len(self.least_cost)
        )
        return self.least_cost + taken


def _added(values: Sequence[float]) -> float:
    """Return the sum of a few numbers, added in order: `sum` rounds differently in some Python versions."""
    total = 0.0
    for value in values:
        total += value
    return total


def _at(costs: Floats, position: Position) -> float:
    """Return the cost at a position, interpolated from the costs at each level."""
    after = costs[min(position.edge + 1, len(costs) - 1)]
    return float(costs[position.edge] * (1.0 - position.share) + after * position.share)


def _between(slopes: Floats) -> Floats:
    """Return multipliers between neighbouring slopes, and one beyond each end."""
    if not len(slopes):
        return np.ones(1)
    inside = np.sqrt(slopes[:-1] * slopes[1:])
    return np.concatenate([[slopes[0] * BEYOND], inside, [slopes[-1] / BEYOND]])
