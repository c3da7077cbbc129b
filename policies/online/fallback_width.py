"""The next best width of a job where the cloud has not got the machines of its best one.

The width that costs the least for the rest of the job (`policies.online.cost_to_go`) among those for which
there is room, on any machine, at the prices that money and time have in the plan. So a launch that one
machine has no stock for goes to another, and a job comes back when that saves more than the rescale costs.

Cost: O(phases x columns) per job.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from policies.model import Job, Width
from policies.online.cost_to_go import CostToGo, WidthColumns

MARGIN = 1e-6
"""What a change must save of the cost of the rest, so that no job moves between equals."""


def fallback_width(
    job: Job,
    columns: WidthColumns,
    *,
    multiplier: float,
    room: Mapping[str, float],
    holds: Width | None,
    gpus: int | None = None,
) -> Width | None:
    """Return the best width of which the GPUs are to be had; None where there is none.

    `room` says by GPU type how many more GPUs there are; types that it does not name are left out. What the
    job `holds` it may keep. With `gpus` only widths of so many count.
    """
    allowed = np.array(
        [
            width == holds
            or (width.gpus <= room.get(width.gpu_type, 0.0) and (gpus is None or width.gpus == gpus))
            for width in columns.widths
        ]
    )
    # A width that a later phase has not got is no reason to leave it out of this one.
    if not np.isfinite(np.where(allowed, columns.hours, np.inf)[job.phase :]).any(axis=1).all():
        return None
    open_columns = replace(columns, hours=np.where(allowed[None, :], columns.hours, np.inf))
    table = CostToGo.of(open_columns, scale=job.scale, multiplier=multiplier)
    return table.width_for(
        job.phase, scale=job.scale, left=columns.part_left(job), holds=holds, margin=MARGIN
    )
