"""The best available width of a job when the cloud lacks the machines of its best width.

It is the width with the least cost for the rest of the job (`policies.online.cost_to_go`) among those for
which there is room on some machine type, at the plan's multiplier. So a launch for which one machine type has
no stock goes to another type, and the job returns when that saves more than the rescale costs.

While the machines of the best width may come back, the alternative is to wait for them. An hour at another
width then saves what its work costs at the best width. If that is less than the money of the hour, the job
waits, but no longer than pays: it has to expect to wait as long again as it has waited.

Cost: O(phases x columns) per job.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from policies.model import Job, Width
from policies.online.cost_to_go import CostToGo, WidthColumns

MARGIN = 1e-6
"""The share of the cost of the rest that a change must save, so that no job moves between equal widths."""


def fallback_width(
    job: Job,
    columns: WidthColumns,
    *,
    multiplier: float,
    room: Mapping[str, float],
    holds: Width | None,
    gpus: int | None = None,
    begins: Mapping[str, tuple[float, float]] | None = None,
    rather_than: Width | None = None,
    waited_hours: float = 0.0,
) -> Width | None:
    """Return the best width whose GPUs are available; None if there is none.

    `room` is the number of additional GPUs by GPU type; types that are not in it are excluded. The job may
    always keep what it `holds`. With `gpus`, other widths must have exactly that many GPUs. `begins` are by
    GPU type what a start there costs besides: hours, which are billed, and dollars. `rather_than` is a width
    that may come back: only widths that are better than to wait for it `waited_hours` are allowed.
    """
    allowed = np.array(
        [
            width == holds
            or (width.gpus <= room.get(width.gpu_type, 0.0) and (gpus is None or width.gpus == gpus))
            for width in columns.widths
        ]
    )
    if rather_than is not None and rather_than in columns.index:
        allowed &= _pays(job, columns, rather_than, multiplier=multiplier, waited_hours=waited_hours)
    # Each phase needs one allowed width; a width of this phase may be missing in a later one.
    if not np.isfinite(np.where(allowed, columns.hours, np.inf)[job.phase :]).any(axis=1).all():
        return None
    open_columns = replace(columns, hours=np.where(allowed[None, :], columns.hours, np.inf))
    table = CostToGo.of(open_columns, scale=job.scale, multiplier=multiplier)
    if begins:
        hours, usd = np.array([begins.get(width.gpu_type, (0.0, 0.0)) for width in columns.widths]).T
        table = table.with_begins(
            hours * (columns.job_class.weight + multiplier * columns.rate) + multiplier * usd
        )
    return table.width_for(
        job.phase, scale=job.scale, left=columns.part_left(job), holds=holds, margin=MARGIN
    )


def _pays(
    job: Job, columns: WidthColumns, best: Width, *, multiplier: float, waited_hours: float
) -> NDArray[np.bool_]:
    """Return for each column whether to work there is better than to wait for `best`, shape (columns,)."""
    weight, money = columns.job_class.weight, multiplier * columns.rate
    column = columns.index[best]
    known: NDArray[np.bool_] = np.isfinite(columns.hours[job.phase])
    if not known[column]:
        return known
    # Infinite hours times free money would not be a number.
    hours = np.where(known, columns.hours[job.phase], 0.0)
    cost_of_work = hours[column] * (weight + money[column])
    an_hour_pays = cost_of_work >= money * hours
    left = columns.part_left(job) * job.scale
    whole_pays = left * hours * (weight + money) <= left * cost_of_work + weight * waited_hours
    pays: NDArray[np.bool_] = an_hour_pays | whole_pays
    return pays
