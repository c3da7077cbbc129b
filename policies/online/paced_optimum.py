"""BOA under pacing: each tick computes the multiplier that makes the money last, and each job's best width.

The multiplier comes from `policies.online.pacing`. The width minimises weight x hours + multiplier x spend
over the rest of the job (`policies.online.cost_to_go`), so a running job changes only if that pays for the
rescale. If the optimum lies between two neighbouring plans, the job's `draw` selects one, as in
`policies.optimum.boa`. The job's known scale is used: start-up weighs more in a short job, so a short job
gets fewer GPUs.

The policy keeps only tables, so the same jobs and money give the same widths.

Cost: O(jobs + edges) per tick; a table of O(phases x columns) for each class and level, at a few scales, when
first needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import isfinite

import numpy as np

from policies.answer import Allocation, Reasons
from policies.memo import Memo
from policies.model import Job, Money, Problem, Width
from policies.money_text import in_dollars
from policies.online.cost_to_go import CostsByScale, WidthColumns
from policies.online.foretold import PromisePrice
from policies.online.free_usage import (
    PRICE_FRACTIONS,
    FreeUsage,
    price_fractions_at,
    step_that_fills,
    usage_to_pay,
)
from policies.online.multiplier_table import MultiplierTable, Position
from policies.online.node_prices import WholeNodePrices
from policies.online.pacing import Pace, Step, pace_step
from policies.optimum.frontier import MixedFrontier
from policies.optimum.options import OptionSet
from policies.speedup import Floats

SWITCH_MARGIN = 1e-6
"""The share of the cost of the rest that a change of width must save, so that no job flaps between equals."""
MOST_LEVELS = 20_000
"""Cached tables, by class and level; when there are more, the cache is emptied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PacedBudgetOptimal:
    """Give every job the width that is best at the multiplier of the tick; never queue.

    `sizes` are the GPU-hours of a job of each class. `costs` are the cost tables by (class, level of the
    table, step of `PRICE_FRACTIONS` for `free` usage; see `policies.online.free_usage`). `unit` is the unit
    of the budget's money.
    """

    pace: Pace
    table: MultiplierTable
    columns: Mapping[str, WidthColumns]
    sizes: Mapping[str, float]
    margin: float = SWITCH_MARGIN
    nodes: WholeNodePrices | None = None
    free: FreeUsage = ()
    unit: str = "USD"
    costs: Memo[tuple[str, int, int], CostsByScale] = field(repr=False, compare=False)

    @classmethod
    def from_problem(
        cls,
        problem: Problem,
        pace: Pace,
        *,
        nodes: WholeNodePrices | None = None,
        load_over_stated: float = 1.0,
        frontier: MixedFrontier | None = None,
        options: OptionSet | None = None,
        free: FreeUsage = (),
    ) -> PacedBudgetOptimal:
        """Build the policy for a problem.

        The pace corrects the total load itself, so learnt rates are divided by `load_over_stated` and only
        their mix is used. `frontier` foretells what the promise costs. `options` may be passed if the
        problem's options exist already.
        """
        table = MultiplierTable.of(problem, options)
        table = replace(table, rates=table.rates / load_over_stated)
        columns = WidthColumns.by_class(problem)

        def costs(question: tuple[str, int, int]) -> CostsByScale:
            name, level, step = question
            found = columns[name]
            if step:
                parts = price_fractions_at(free, step)
                factors = [parts.get(width.gpu_type, 1.0) for width in found.widths]
                found = replace(found, rate=found.rate * factors)
            return CostsByScale(columns=found, multiplier=float(table.multipliers[level]))

        return cls(
            pace=replace(
                pace,
                grain_hours=table.grain_hours(pace.budget),
                price=None if frontier is None else PromisePrice(table=table, frontier=frontier),
            ),
            nodes=nodes,
            table=table,
            columns=columns,
            sizes={c.name: c.size_gpu_hours for c in problem.classes},
            free=free,
            unit="GPU-hours" if problem.budget_unit == "gpus" else "USD",
            costs=Memo(costs, most=MOST_LEVELS),
        )

    def step(self, jobs: Sequence[Job], money: Money) -> Step:
        """Return the result of the pacing law for this tick."""
        return pace_step(self.pace, self.table, self.present(jobs), money)

    def present(self, jobs: Sequence[Job]) -> Floats:
        """Return the work left of each class in units of whole jobs, shape (classes,)."""
        left = dict.fromkeys(self.sizes, 0.0)
        for job in jobs:
            left[job.class_name] += job.remaining_gpu_hours
        return np.array([left[name] / size for name, size in self.sizes.items()])

    def allocate(self, jobs: Sequence[Job], *, now: float, money: Money | None = None) -> Allocation:
        """Return the width of each job; without `money`, at the planned multiplier."""
        del now
        step = None if money is None else self.step(jobs, money)
        position = self.table.planned(self.pace.budget) if step is None else step.position
        memory = None if step is None else step.memory
        part = self._part(jobs, position) if self.free else 0
        say = partial(_reason, self.unit, position, step)
        if part:
            say = partial(_free_reason, self.unit, self.free, part)
        return self._answer(jobs, position, memory, say, part)

    def alone(self, job: Job) -> Width:
        """Return the width of one job at the planned multiplier."""
        position = self.table.planned(self.pace.budget)
        return self._width_of(job, position, self._part((job,), position) if self.free else 0)

    def keeps_until(self, job: Job) -> int:
        """Return the first later phase in which `alone` may change the job's current width."""
        if self.free:
            return job.phase + 1
        costs = self.costs[job.class_name, self.table.planned(self.pace.budget).level_for(job.draw), 0]
        return costs.keeps_until(job.phase, scale=job.scale, holds=job.width, margin=self.margin)

    def within(self, jobs: Sequence[Job], spend_per_hour: float, money: Money | None) -> Allocation:
        """Return the best widths at which the jobs together take at most `spend_per_hour`.

        If even the cheapest widths take more, they are used. If the pacing law allows wider widths, those are
        used.
        """
        position, say = (
            self._widest_within(jobs, spend_per_hour),
            partial(_burn_reason, self.unit, spend_per_hour),
        )
        step = None if money is None else self.step(jobs, money)
        if step is not None and step.position.multiplier < position.multiplier:
            position, say = step.position, partial(_reason, self.unit, step.position, step)
        memory = None if step is None else step.memory_at(position, self.table)
        return self._answer(jobs, position, memory, say)

    def _widest_within(self, jobs: Sequence[Job], spend_per_hour: float) -> Position:
        """Return the last position at which the jobs together take at most `spend_per_hour`, or the first."""
        low, high = 0, len(self.table.multipliers)
        while high - low > 1:
            middle = (low + high) // 2
            if sum(self._taken(jobs, self.table.at(middle)).values()) <= spend_per_hour:
                low = middle
            else:
                high = middle
        return self.table.at(low)

    def _part(self, jobs: Sequence[Job], position: Position) -> int:
        """Return the step of `PRICE_FRACTIONS` with which jobs fill prepaid usage at the least cost."""
        low = step_that_fills(self.free, lambda part: self._taken(jobs, position, part))
        if low in (-1, len(PRICE_FRACTIONS) - 1):
            return max(low, 0)
        return min((low, low + 1), key=lambda part: self._cost(jobs, position, part))

    def _cost(self, jobs: Sequence[Job], position: Position, part: int) -> float:
        """Return the cost of the jobs' rest in hours: weighted time, and the money that is not prepaid."""
        taken = self._taken(jobs, position, part)
        paid = {kind: left / taken[kind] for kind, left in usage_to_pay(self.free, taken).items()}
        cost = 0.0
        for job in jobs:
            columns, width = self.columns[job.class_name], self._width_of(job, position, part)
            number = columns.index[width]
            after = columns.hours_after.item(job.phase, number)
            left = columns.part_left(job) * columns.hours.item(job.phase, number)
            rate = position.multiplier * columns.rate.item(number) * paid[width.gpu_type]
            weight = columns.job_class.weight
            cost += job.scale * (left + (after if isfinite(after) else 0.0)) * (weight + rate)
        return cost

    def _taken(self, jobs: Sequence[Job], position: Position, part: int = 0) -> dict[str, float]:
        """Return the total spend per hour of the jobs at a position of the frontier, by GPU type."""
        taken: dict[str, float] = {}
        for job in jobs:
            columns, width = self.columns[job.class_name], self._width_of(job, position, part)
            rate = columns.rate.item(columns.index[width])
            taken[width.gpu_type] = taken.get(width.gpu_type, 0.0) + rate
        return taken

    def _answer(
        self,
        jobs: Sequence[Job],
        position: Position,
        memory: tuple[float, ...] | None,
        say: Callable[[Job], str],
        part: int = 0,
    ) -> Allocation:
        """Return the widths at a position of the frontier, with prepaid usage priced by step `part`."""
        nodes = None if self.nodes is None else self.nodes.priced(position.multiplier)
        if nodes is not None and part:
            nodes = nodes.at_part(price_fractions_at(self.free, part))
        return Allocation(
            widths={job.id: self._width_of(job, position, part) for job in jobs},
            memory=memory,
            node_prices=nodes,
            reasons=Reasons(jobs=jobs, say=say),
        )

    def _width_of(self, job: Job, position: Position, part: int = 0) -> Width:
        costs, holds = self.costs[job.class_name, position.level_for(job.draw), part], job.width
        # Most jobs keep their width, which can be decided without the work left.
        if holds is not None and costs.keeps(job.phase, scale=job.scale, holds=holds, margin=self.margin):
            return holds
        left = self.columns[job.class_name].part_left(job)
        return costs.width_for(job.phase, scale=job.scale, left=left, holds=holds, margin=self.margin)


def _amount(amount: float, unit: str) -> str:
    """Return an amount of money or of GPU-hours as text."""
    return in_dollars(amount) if unit == "USD" else f"{amount:.4g} {unit}"


def _reason(unit: str, position: Position, step: Step | None, job: Job) -> str:
    """Return the reason of a width: the price of an hour of waiting, and how long the money must last."""
    counted = ", whatever it costs"
    if position.multiplier > 0.0:
        counted = f" counts an hour of waiting as {_amount(1.0 / position.multiplier, unit)}"
    lasts = ""
    if step is not None:
        load = step.load_correction * step.load_hours / step.horizon_hours
        time = step.horizon_hours
        said = f"{time:.0f} h" if time < 48.0 else f"{time / 24.0:.1f} days"
        lasts = f", so that the money lasts {said} at {load:.2f} times the stated load"
    return f"the plan for the rest of a job of class {job.class_name}{counted}{lasts}"


def _free_reason(unit: str, free: FreeUsage, part: int, job: Job) -> str:
    """Return the reason of a width that fills prepaid usage."""
    level = sum(level for _, level in free)
    return (
        f"the plan for the rest of a job of class {job.class_name}, with committed usage planned at "
        f"{PRICE_FRACTIONS[part]:.2g} of its price, so that the jobs use it: commitments pay for "
        f"{_amount(level, unit)} per hour at on-demand prices, used or not"
    )


def _burn_reason(unit: str, spend_per_hour: float, job: Job) -> str:
    """Return the reason of a width that is limited by the budget per hour."""
    return (
        f"the plan for the rest of a job of class {job.class_name}, at which all jobs together take "
        f"no more than the budget of {_amount(spend_per_hour, unit)} per "
        "hour, or the cheapest width if that is "
        f"not possible"
    )
