"""Cost of the rest of a job at each width, for one multiplier; it decides whether a change of width pays.

For a multiplier mu, an hour in column o = (GPU type, GPUs) costs w + mu c_o. Backward over the phases:

    A_p(o) = min( F_{p+1}(o),  min_o' F_{p+1}(o') + r (w + mu c_o') )        after phase p, A_last = 0
    F_p(o) = T_p(o) (w + mu c_o) + A_p(o)

A job that holds o and has a fraction f of phase p left keeps o if f T_p(o) (w + mu c_o) + A_p(o) is least,
where every other width o' costs r (w + mu c_o') extra. So the decision includes the cost of this rescale and
of the later ones.

A job of scale x has x T_p(o) in place of T_p(o) and the same r. Each sequence of later widths costs slope x +
constant, so A_p(o), the least of these, is concave in x. A table is exact at the scale that it was made for.
Between two tables

    chord through A(x1), A(x2)  <=  A(x)  <=  the cheaper of the sequences that are best at x1 and at x2

and these bounds choose a width if they leave no doubt. If they do not, a table is made for the exact scale,
which also tightens the bounds for scales nearby. So every width is right for the job's exact scale, and few
tables are made. Whether a job keeps its width at all scales between two tables and for any work left is
computed once. With one phase or r = 0 the constants are zero and one table serves every scale.

    symbol   here      meaning
    T_p(o)   hours     of phase p in column o, infinite where not allowed
    r, d     rescale, startup   hours, billed at the new width
    c_o      rate      what holding column o takes from the budget per hour
    x        scale     of the job
    A_p(o)   after_slope, after_constant    of the best sequence at the table's scale

Cost: O(phases x columns) for a table; O(columns) for a job, O(1) if its current width is already the best.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter

import numpy as np

from policies.memo import Memo
from policies.model import Job, JobClass, Problem, Width, width_of
from policies.optimum.options import whole_columns
from policies.speedup import Floats, Ints

MOST_TABLES = 256
"""Tables (scales) kept for a class and multiplier; when there are more, all are dropped and made again."""
MOST_KEPT = 256
"""Remembered jobs that certainly keep their widths, by class and multiplier; beyond it all are dropped."""
LEAST_PART = 1e-12
"""The least fraction of a phase left: zero times the infinite cost of a width that is not allowed is NaN."""
DOUBTLESS = 0.99
"""A change that saves less than this part of the margin does not pay, whatever the rounding errors."""
_SCALE = attrgetter("scale")


@dataclass(frozen=True, slots=True, kw_only=True)
class WidthColumns:
    """The widths of a class as columns of arrays; `index` maps a width to its column."""

    job_class: JobClass
    widths: tuple[Width, ...]
    index: dict[Width, int]
    hours: Floats  # (phases, columns), for a job of scale 1
    hours_after: Floats  # (phases, columns): of all later phases together
    rate: Floats  # (columns,)
    size_after: tuple[float, ...]  # work after each phase, GPU-hours

    @classmethod
    def of(cls, problem: Problem, job_class: JobClass) -> WidthColumns:
        """Build the arrays of one class."""
        columns = whole_columns(problem, job_class)
        names = [gpu.name for gpu in problem.gpu_types]
        pairs = zip(columns.gpu_type.tolist(), columns.gpus.tolist(), strict=True)
        widths = tuple([width_of(names[kind], int(gpus)) for kind, gpus in pairs])
        sizes = [phase.size_gpu_hours for phase in job_class.phases]
        return cls(
            job_class=job_class,
            widths=widths,
            index={width: number for number, width in enumerate(widths)},
            hours=columns.arrays.phase_time,
            hours_after=_later(columns.arrays.phase_time),
            rate=columns.arrays.rate,
            size_after=tuple(sum(sizes[number + 1 :]) for number in range(len(sizes))),
        )

    @classmethod
    def by_class(cls, problem: Problem) -> Mapping[str, WidthColumns]:
        """Return the columns of each class by name; each is built when it is first used."""
        classes = {job_class.name: job_class for job_class in problem.classes}
        return Memo(lambda name: cls.of(problem, classes[name]))

    def part_left(self, job: Job) -> float:
        """Return the fraction of its current phase that a job still has to do, from `LEAST_PART` to 1."""
        phase_size = self.job_class.phases[job.phase].size_gpu_hours * job.scale
        left = (job.remaining_gpu_hours - self.size_after[job.phase] * job.scale) / phase_size
        return 1.0 if left >= 1.0 else left if left > LEAST_PART else LEAST_PART


def _later(hours: Floats) -> Floats:
    """Return the sums over all later phases, shape (phases, columns)."""
    later = np.zeros_like(hours)
    later[:-1] = np.cumsum(hours[:0:-1], axis=0)[::-1]
    return later


@dataclass(frozen=True, slots=True, kw_only=True)
class CostToGo:
    """Costs of the rest of a job for one class and multiplier, exact at one scale.

    A cost is slope x scale + constant; `phase_cost` is a slope.
    """

    columns: WidthColumns
    scale: float
    phase_cost: Floats  # (phases, columns): the whole phase of a job of scale 1
    after_slope: Floats  # (phases, columns): everything later
    after_constant: Floats  # (phases, columns)
    start_cost: Floats  # (columns,): before the first phase
    change_cost: Floats  # (columns,)
    best: Ints  # (phases,): the best column at the beginning of each phase if changing to it were free
    first: int  # the best column for starting a new job
    is_straight: bool  # costs are proportional to the scale, so the table is exact at every scale
    _stay_to: dict[tuple[int, float], list[float]] = field(
        init=False, default_factory=dict, repr=False, compare=False
    )
    _stay_between: dict[tuple[float, int, int, float], bool] = field(
        init=False, default_factory=dict, repr=False, compare=False
    )

    @classmethod
    def of(cls, columns: WidthColumns, *, scale: float, multiplier: float) -> CostToGo:
        """Compute the table, backward over the phases."""
        job_class = columns.job_class
        price = job_class.weight + multiplier * columns.rate
        change = job_class.rescale_hours * price
        phase_cost = columns.hours * price
        slope, constant = np.zeros_like(phase_cost), np.zeros_like(phase_cost)
        for phase in range(len(phase_cost) - 1, 0, -1):
            whole, fixed = slope[phase - 1], constant[phase - 1]
            np.add(phase_cost[phase], slope[phase], out=whole)
            fixed[:] = constant[phase]
            cost = whole * scale + fixed
            other = (cost + change).argmin()
            changes = cost > cost[other] + change[other]
            if changes.any():
                whole[changes] = whole[other]
                fixed[changes] = fixed[other] + change[other]
        start = job_class.startup_hours * price
        costs = (phase_cost + slope) * scale + constant
        return cls(
            columns=columns,
            scale=scale,
            phase_cost=phase_cost,
            after_slope=slope,
            after_constant=constant,
            start_cost=start,
            change_cost=change,
            best=costs.argmin(axis=1),
            first=int((costs[0] + start).argmin()),
            # Zero constants at this scale would not be enough: at larger scales a change pays sooner.
            is_straight=len(phase_cost) == 1 or job_class.rescale_hours == 0.0,
        )

    def with_begins(self, costs: Floats) -> CostToGo:
        """Return the table with a further cost of each start or change to a column, shape (columns,)."""
        start = self.start_cost + costs
        whole = self.rest(0, scale=self.scale, left=1.0)
        return replace(
            self,
            start_cost=start,
            change_cost=self.change_cost + costs,
            first=int((whole + start).argmin()),
        )

    def rest(self, phase: int, *, scale: float, left: float) -> Floats:
        """Return the cost of the rest of a job in each column, with a fraction `left` of its phase to do.

        At a scale other than the table's, it is the cost of the sequences that are best at the table's scale.
        """
        slope: Floats = left * self.phase_cost[phase] + self.after_slope[phase]
        rest: Floats = slope * scale + self.after_constant[phase]
        return rest

    def width_for(
        self, phase: int, *, scale: float, left: float, holds: Width | None, margin: float
    ) -> Width:
        """Return the width for the rest of a job with a fraction `left` of its phase to do.

        `scale` must be the table's unless the table `is_straight`. The current width `holds` is kept unless a
        change saves more than `margin` of the cost of the rest.
        """
        widths = self.columns.widths
        held = None if holds is None else self.columns.index.get(holds)
        if scale == self.scale:
            if held is None and phase == 0 and left == 1.0:
                return widths[self.first]
            if held is not None and held == self.best[phase]:
                return widths[held]
        if held is not None and scale <= self._stays_to(phase, held, margin):
            return widths[held]
        rest = self.rest(phase, scale=scale, left=left)
        if held is None:
            return widths[int((rest + self._begins(phase)).argmin())]
        changed = rest + self.change_cost
        other = int(changed.argmin())
        return widths[other] if changed[other] < rest[held] * (1.0 - margin) else widths[held]

    def keeps(self, other: CostToGo, phase: int, held: int, *, scale: float, margin: float) -> bool:
        """Return whether a job certainly keeps column `held`, whatever is left of its phase.

        `scale` is between those of the two tables; if `other` is this table, this table is exact for it.
        """
        if other is not self:
            return self._stays_between(other, phase, held, margin)
        if scale == self.scale and held == self.best[phase]:
            return True
        return scale <= self._stays_to(phase, held, margin)

    def _stays_to(self, phase: int, held: int, margin: float) -> float:
        """Return the largest scale up to which a job keeps column `held`, whatever is left of its phase.

        The saving of a change is linear in the work left, so it pays nowhere if it pays at neither end. The
        cost of a change weighs more in a shorter job. If costs are not straight, the result is the table's
        scale or zero.
        """
        known = self._stay_to.get((held, margin))
        if known is None:
            known = self._stay_to[held, margin] = self._reckon_stay(held, margin)
        return known[phase]

    def _reckon_stay(self, held: int, margin: float) -> list[float]:
        """Return the scale of `_stays_to` for each phase, rounded down; zero where there is any doubt."""
        keeps, after, found = 1.0 - DOUBTLESS * margin, self.after_slope, np.zeros(len(self.phase_cost))
        works = np.isfinite(after[:, held] + self.phase_cost[:, held])
        slopes = after[works], (after + self.phase_cost)[works]
        lost = np.minimum(*(slope - keeps * slope[:, held, None] for slope in slopes))
        if self.is_straight:
            scales = np.full_like(lost, math.inf)
            np.divide(self.change_cost, -lost, out=scales, where=lost < 0.0)
            found[works] = scales.min(axis=1)
        else:
            constant = self.after_constant[works]
            stays = lost * self.scale + constant - keeps * constant[:, held, None] + self.change_cost >= 0.0
            found[works] = np.where(stays.all(axis=1), self.scale, 0.0)
        return found.tolist()

    def width_between(
        self, other: CostToGo, phase: int, *, scale: float, left: float, holds: Width | None, margin: float
    ) -> Width | None:
        """Return the width at a scale between those of two tables; None if the bounds leave doubt."""
        held = None if holds is None else self.columns.index.get(holds)
        if held is not None and self._stays_between(other, phase, held, margin):
            return self.columns.widths[held]
        most = np.minimum(self.rest(phase, scale=scale, left=left), other.rest(phase, scale=scale, left=left))
        share = (scale - self.scale) / (other.scale - self.scale)
        here = self.after_slope[phase] * self.scale + self.after_constant[phase]
        there = other.after_slope[phase] * other.scale + other.after_constant[phase]
        least = left * scale * self.phase_cost[phase] + here + share * (there - here)
        begins = self._begins(phase) if held is None else self.change_cost
        begun, widths = most + begins, self.columns.widths
        found = int(begun.argmin())
        at_least = least + begins
        at_least[found] = math.inf
        second = float(at_least.min())
        stays = math.inf if held is None else 1.0 - margin
        if held is not None:
            if min(second, float(least[found] + begins[found])) >= most[held] * stays:
                return widths[held]
            if begun[found] >= least[held] * stays:
                return None
        return widths[found] if begun[found] <= second else None

    def _stays_between(self, other: CostToGo, phase: int, held: int, margin: float) -> bool:
        """Return whether a job keeps column `held` at all scales between two tables, whatever is left."""
        question = other.scale, phase, held, margin
        known = self._stay_between.get(question)
        if known is None:
            known = self._stay_between[question] = self._reckon_between(other, phase, held, margin)
        return known

    def _reckon_between(self, other: CostToGo, phase: int, held: int, margin: float) -> bool:
        """Compute `_stays_between` from the bounds; False where there is any doubt.

        The loss of a change is at least the chord less the cost of this table's best sequence. That is linear
        in the scale and in the work left: if it is not negative at the ends of both, it is so nowhere.
        """
        cost = self.phase_cost[phase]
        if margin == 0.0 or not np.isfinite(cost[held]):
            return False
        allowed, keeps = np.isfinite(cost), 1.0 - DOUBTLESS * margin
        here = (self.after_slope[phase] * self.scale + self.after_constant[phase])[allowed]
        there = (other.after_slope[phase] * other.scale + other.after_constant[phase])[allowed]
        change, lost = self.change_cost[allowed], cost[allowed] - keeps * cost[held]
        for scale, least in ((self.scale, here), (other.scale, there)):
            after = self.after_slope[phase][held] * scale + self.after_constant[phase][held]
            loses = least + change - keeps * after
            if not (loses >= 0.0).all() or not (loses + scale * lost >= 0.0).all():
                return False
        return True

    def _begins(self, phase: int) -> Floats:
        """Return the start cost (first phase) or restart cost (later phases) of a job without GPUs."""
        return self.start_cost if phase == 0 else self.change_cost


@dataclass(slots=True, kw_only=True)
class CostsByScale:
    """The best widths of a class's jobs at one multiplier; holds `CostToGo` tables in order of scale."""

    columns: WidthColumns
    multiplier: float
    _tables: list[CostToGo] = field(default_factory=list, repr=False, compare=False)
    _kept: set[tuple[int, float, Width | None, float]] = field(default_factory=set, repr=False, compare=False)

    def width_for(
        self, phase: int, *, scale: float, left: float, holds: Width | None, margin: float
    ) -> Width:
        """Return the best width of a job: that of `CostToGo.width_for` with the table of its exact scale."""
        below, above = self._around(scale)
        if below is not above:
            found = below.width_between(above, phase, scale=scale, left=left, holds=holds, margin=margin)
            if found is not None:
                return found
            above = self._table(scale)
            if len(self._tables) >= MOST_TABLES:
                self._tables.clear()
            insort(self._tables, above, key=_SCALE)
        return above.width_for(phase, scale=scale, left=left, holds=holds, margin=margin)

    def keeps(self, phase: int, *, scale: float, holds: Width | None, margin: float) -> bool:
        """Return whether a job certainly keeps its current width, whatever is left of its phase.

        What is certain stays so, therefore it is remembered: the same job asks at every tick.
        """
        question = phase, scale, holds, margin
        if question in self._kept:
            return True
        held = None if holds is None else self.columns.index.get(holds)
        if held is None:
            return False
        below, above = self._around(scale)
        is_certain = below.keeps(above, phase, held, scale=scale, margin=margin)
        if is_certain:
            if len(self._kept) >= MOST_KEPT:
                self._kept.clear()
            self._kept.add(question)
        return is_certain

    def keeps_until(self, phase: int, *, scale: float, holds: Width | None, margin: float) -> int:
        """Return the first later phase in which a job may change its width; the number of phases if none."""
        held = None if holds is None else self.columns.index.get(holds)
        if held is None:
            return phase + 1
        below, above = self._around(scale)
        phases = len(above.phase_cost)
        for later in range(phase + 1, phases):
            if not below.keeps(above, later, held, scale=scale, margin=margin):
                return later
        return phases

    def _around(self, scale: float) -> tuple[CostToGo, CostToGo]:
        """Return the two tables around a scale; the same table twice if it is exact for the scale."""
        tables = self._tables
        if not tables:
            tables.append(self._table(2.0 ** math.floor(math.log2(scale))))
        if tables[0].is_straight:
            return tables[0], tables[0]
        at = bisect_left(tables, scale, key=_SCALE)
        if at == len(tables):
            tables.append(self._table(2.0 ** math.ceil(math.log2(scale))))
        if at == 0 and tables[0].scale != scale:
            tables.insert(0, self._table(2.0 ** math.floor(math.log2(scale))))
            at = int(tables[0].scale != scale)
        above = tables[at]
        return (above if above.scale == scale else tables[at - 1]), above

    def _table(self, scale: float) -> CostToGo:
        return CostToGo.of(self.columns, scale=scale, multiplier=self.multiplier)
