"""Cost of a job's width, in money and waiting, compared with its next best width.

At the price of money, mu hours per unit of budget, an hour of waiting of a job of weight w costs w / mu units
of the budget. So the rest of its phase at a width o = (GPU type, GPUs) costs

    f T(o) (w / mu + c_o)  +  d_o (w / mu + c_o)

    symbol   here              meaning
    f, T     part_left, hours  of the phase, and its hours at the width, scale included
    c_o      rate              what holding the width takes from the budget per hour
    d_o      overhead          hours to start or to change: none at the current width

Later phases are left out. Two widths that a plan mixes cost the same. If whole nodes or later phases
influenced the decision, the next best width may be the cheaper one.

Cost: O(jobs x widths), in arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from policies.model import Job, JobId, Width
from policies.online.cost_to_go import WidthColumns
from policies.speedup import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class WidthComparison:
    """Two widths of a job, and the cost of the rest of its phase at each, in units of the budget."""

    width: Width
    cost: float
    other: Width
    other_cost: float

    @property
    def difference(self) -> float:
        """How much more the other width costs; negative if it costs less."""
        return self.other_cost - self.cost


def compare_widths(
    jobs: Sequence[Job],
    widths: Mapping[JobId, Width],
    columns: Mapping[str, WidthColumns],
    *,
    multiplier: float,
    has_room: Callable[[Job, Width], bool] | None = None,
) -> dict[JobId, WidthComparison]:
    """Return for each job the cost of its width and of its next best one.

    Jobs without a width, or with only one allowed width, are left out. Empty if the multiplier is 0. Widths
    for which `has_room` is false are no alternatives.
    """
    found: dict[JobId, WidthComparison] = {}
    if multiplier <= 0.0:
        return found
    groups: dict[tuple[str, int], list[Job]] = {}
    for job in jobs:
        width = widths.get(job.id)
        if width is not None and width in columns[job.class_name].index:
            groups.setdefault((job.class_name, job.phase), []).append(job)
    for (name, phase), group in groups.items():
        own = columns[name]
        price = own.job_class.weight / multiplier + own.rate
        costs = _costs(group, own, phase, price)
        rows = np.arange(len(group))
        planned = np.array([own.index[widths[job.id]] for job in group])
        chosen = costs[rows, planned]
        costs[rows, planned] = np.inf
        if has_room is not None:
            for row, job in enumerate(group):
                for number in np.flatnonzero(np.isfinite(costs[row])).tolist():
                    if not has_room(job, own.widths[number]):
                        costs[row, number] = np.inf
        others = costs.argmin(axis=1)
        for row, job in enumerate(group):
            cost, other = float(chosen[row]), int(others[row])
            other_cost = float(costs[row, other])
            if np.isfinite(cost) and np.isfinite(other_cost):
                found[job.id] = WidthComparison(
                    width=own.widths[int(planned[row])],
                    cost=cost,
                    other=own.widths[other],
                    other_cost=other_cost,
                )
    return found


def _costs(jobs: Sequence[Job], own: WidthColumns, phase: int, price: Floats) -> Floats:
    """Return the cost of the rest of the phase, shape (jobs, widths); infinite where not allowed."""
    job_class = own.job_class
    scale = np.array([job.scale for job in jobs])
    left = np.array([job.remaining_gpu_hours for job in jobs]) - own.size_after[phase] * scale
    part = np.clip(left / job_class.phases[phase].size_gpu_hours, 0.0, scale)
    held = [-1 if job.width is None else own.index.get(job.width, -1) for job in jobs]
    fresh = job_class.startup_hours if phase == 0 else job_class.rescale_hours
    overhead = np.where(np.array(held) < 0, fresh, job_class.rescale_hours)[:, None] * np.ones(len(price))
    for row, column in enumerate(held):
        if column >= 0:
            overhead[row, column] = 0.0
    allowed = np.isfinite(own.hours[phase])
    hours = part[:, None] * np.where(allowed, own.hours[phase], 0.0)[None, :]
    found: Floats = np.where(allowed[None, :], (hours + overhead) * price[None, :], np.inf)
    return found
