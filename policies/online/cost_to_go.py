"""What the rest of a job costs at each width, for one multiplier: whether a change of width pays.

For a multiplier mu, an hour in column o = (GPU type, GPUs) costs w + mu c_o. Backward over the phases:

    A_p(o) = min( F_{p+1}(o),  min_o' F_{p+1}(o') + r (w + mu c_o') )        after phase p, A_last = 0
    F_p(o) = T_p(o) (w + mu c_o) + A_p(o)

A job with a fraction f of phase p left that holds o stays when f T_p(o) (w + mu c_o) + A_p(o) is least, all
others bearing r (w + mu c_o') on top. So the rescale is in the decision, also those that are still to come.

    symbol   here      meaning
    T_p(o)   hours     of phase p in column o, infinite where not allowed
    r, d     rescale, startup   hours, billed at the new width
    c_o      rate      what holding column o takes from the budget per hour

Cost: O(phases x columns) for a table; O(columns) for a job, O(1) where its width is the best anyway.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policies.model import Job, JobClass, Problem, Width
from policies.optimum.options import whole_columns
from policies.speedup import Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class WidthColumns:
    """The widths of a class, as numbers: `index` finds the column of a width."""

    job_class: JobClass
    widths: tuple[Width, ...]
    index: dict[Width, int]
    hours: Floats  # (phases, columns), for a job of scale 1
    hours_after: Floats  # (phases, columns): of all later phases together
    rate: Floats  # (columns,)
    size_after: tuple[float, ...]  # work after each phase, GPU-hours

    @classmethod
    def of(cls, problem: Problem, job_class: JobClass) -> WidthColumns:
        """Lay out one class."""
        columns = whole_columns(problem, job_class)
        names = [gpu.name for gpu in problem.gpu_types]
        pairs = zip(columns.gpu_type.tolist(), columns.gpus.tolist(), strict=True)
        widths = tuple(Width(names[kind], int(gpus)) for kind, gpus in pairs)
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

    def part_left(self, job: Job) -> float:
        """Return the fraction of its phase that a job has still to do."""
        phase_size = self.job_class.phases[job.phase].size_gpu_hours * job.scale
        left = (job.remaining_gpu_hours - self.size_after[job.phase] * job.scale) / phase_size
        return min(max(left, 0.0), 1.0)


def _later(hours: Floats) -> Floats:
    """Return the sums over all later phases, shape (phases, columns)."""
    later = np.zeros_like(hours)
    later[:-1] = np.cumsum(hours[:0:-1], axis=0)[::-1]
    return later


@dataclass(frozen=True, slots=True, kw_only=True)
class CostToGo:
    """Costs of the rest of a job for one class, scale and multiplier."""

    columns: WidthColumns
    phase_cost: Floats  # (phases, columns): the whole phase
    after: Floats  # (phases, columns): everything later
    start_cost: Floats  # (columns,): before the first phase
    change_cost: Floats  # (columns,)
    best: Ints  # (phases,): the column to be in at the beginning of each phase, had it been free

    @classmethod
    def of(cls, columns: WidthColumns, *, scale: float, multiplier: float) -> CostToGo:
        """Go backward over the phases."""
        job_class = columns.job_class
        price = job_class.weight + multiplier * columns.rate
        change = job_class.rescale_hours * price
        phase_cost = columns.hours * scale * price
        after = np.zeros_like(phase_cost)
        for phase in range(len(phase_cost) - 1, 0, -1):
            whole = phase_cost[phase] + after[phase]
            after[phase - 1] = np.minimum(whole, (whole + change).min())
        return cls(
            columns=columns,
            phase_cost=phase_cost,
            after=after,
            start_cost=job_class.startup_hours * price,
            change_cost=change,
            best=(phase_cost + after).argmin(axis=1),
        )

    def width_for(self, phase: int, *, left: float, holds: Width | None, margin: float) -> Width:
        """Return the width for the rest of a job with a fraction `left` of its phase to do.

        A width that is held stays unless a change saves more than `margin` of the cost of the rest.
        """
        held = None if holds is None else self.columns.index.get(holds)
        if held is not None and held == self.best[phase]:
            return self.columns.widths[held]
        rest = left * self.phase_cost[phase] + self.after[phase]
        if held is None:
            begins = self.start_cost if phase == 0 else self.change_cost
            return self.columns.widths[int((rest + begins).argmin())]
        changed = rest + self.change_cost
        other = int(changed.argmin())
        if changed[other] < rest[held] * (1.0 - margin):
            return self.columns.widths[other]
        return self.columns.widths[held]
