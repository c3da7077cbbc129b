"""Spare GPUs of rented nodes: when a job should grow onto them, and when a node is worth emptying.

A node is rented whole, so a spare GPU next to a job that stays costs nothing. In hours of waiting, at the
plan's price of money mu:

    stretch     min(h, H) (1 - s(k) / s(K)) > 2 r     a running job grows from k to K GPUs, and later back
    a change    w h (s(k) / s(K) - 1) + r (w + mu c K)    loss of a job that continues at K GPUs
    for a time  w d (1 - s(K) / s(k)) + 2 r (w + mu c K)  the same, if it grows back after d hours
    emptying    mu P h > 2 x the sum of those changes     the emptied node is given back

    symbol   here          meaning
    h        hours_left    of the job at its k GPUs; for a node, of its last job
    H        lent_hours    estimate of how long GPUs stay spare: until `LENT_ARRIVALS` more jobs have come
    s, r     hours, rescale   speed in the job's phase; the hours that a restart takes
    w, P, c  weight, node price, rate   as in `policies.online.node_prices`

A job that is about to start takes spare GPUs without a restart. Cost: O(columns).
"""

from __future__ import annotations

import math

from policies.answer import LentWidth
from policies.model import Job, Width
from policies.online.cost_to_go import WidthColumns

LENT_ARRIVALS = 3.0
"""Estimate of the number of arrivals until spare GPUs are needed again."""
RESTARTS_OF_LENDING = 2.0
"""One restart to grow, and one when the GPUs are needed back."""


def lent_width(
    columns: WidthColumns,
    job: Job,
    now: Width,
    *,
    most_gpus: int,
    hours_left: float | None,
    lent_hours: float,
    rescale_hours: float,
) -> LentWidth | None:
    """Return the fastest width within `most_gpus` if it saves time; `hours_left` is None for a starting job.

    The answer is None if no wider width saves more than its restarts cost.
    """
    if now not in columns.index:
        return None  # The class was edited and no longer has the job's width.
    hours = columns.hours[job.phase]
    here = float(hours[columns.index[now]])
    best, width = here, now
    for other, number in columns.index.items():
        if other.gpu_type == now.gpu_type and now.gpus < other.gpus <= most_gpus and hours[number] < best:
            best, width = float(hours[number]), other
    if not math.isfinite(here):
        return None
    if hours_left is None:
        left, cost = columns.part_left(job) * job.scale * here, 0.0
    else:
        left, cost = min(hours_left, lent_hours), RESTARTS_OF_LENDING * rescale_hours
    saved = left * (1.0 - best / here) - cost
    return LentWidth(width=width, saved_hours=saved) if saved > 0.0 else None


def hours_lost(
    columns: WidthColumns,
    job: Job,
    then: Width,
    *,
    hours_left: float,
    rescale_hours: float,
    multiplier: float,
    back_in_hours: float = math.inf,
) -> float:
    """Return the weighted hours that a running job loses if it continues at `then`, its restart included.

    At a narrower width the job may grow back after `back_in_hours`, with a second restart, if that loses
    less. Infinite if the class does not have that width. Callers compare the sum over jobs with the cost of a
    node.
    """
    there = columns.index.get(then)
    if job.width is None or there is None:
        return math.inf
    here = columns.index.get(job.width)
    # The class was edited and no longer has the current width: only the restart is counted.
    ratio = 1.0 if here is None else float(columns.hours[job.phase, there] / columns.hours[job.phase, here])
    weight = columns.job_class.weight
    restart = rescale_hours * (weight + multiplier * float(columns.rate[there]))
    for_good = weight * hours_left * (ratio - 1.0) + restart
    if ratio <= 1.0:
        return for_good
    return min(for_good, weight * back_in_hours * (1.0 - 1.0 / ratio) + RESTARTS_OF_LENDING * restart)
