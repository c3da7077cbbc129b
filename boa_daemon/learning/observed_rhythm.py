"""The weekly rhythm of work, from the daemon's hourly counts of arrivals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from boa_daemon.learning.samples import HOUR, Sample
from policies.online.rhythm import Rhythm, estimate_rhythm
from policies.speedup import Floats


def rhythm_of(rows: Iterable[Sample], gpu_hours: Mapping[str, float], *, now: float) -> Rhythm | None:
    """Return the rhythm of the arriving work since the first job; None if the data show none.

    `gpu_hours` is the work of a job of each class. Arrivals of unknown classes and those of the current hour
    do not count.
    """
    found = work_by_hour(rows, gpu_hours, now=now)
    return None if found is None else estimate_rhythm(found[0], first_hour=found[1])


def work_by_hour(
    rows: Iterable[Sample], gpu_hours: Mapping[str, float], *, now: float
) -> tuple[Floats, int] | None:
    """Return the work of each hour since the first job, and that hour since the epoch; None without."""
    kept = [row for row in rows if row.kind in ("seen", "arrivals") and row.class_name in gpu_hours]
    if not kept:
        return None
    first, last = (int(at // HOUR) for at in (min(row.at for row in kept), now))
    work: Floats = np.zeros(max(last - first, 0))
    for row in kept:
        hour = int(row.at // HOUR) - first
        if row.kind == "arrivals" and hour < len(work):
            work[hour] += row.count * gpu_hours[row.class_name]
    return work, first
