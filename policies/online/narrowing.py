"""Less room than the plan wants: the widths whose loss is least per GPU are cut first, and nobody starves.

    minimise  sum_j w_j T_j(k_j)    subject to    sum_j k_j <= G,    least_j <= k_j <= planned_j

On the lower convex hull of each job's points (k, w T(k)) the steps downwards lose ever more per GPU, so
cutting the step that loses least per GPU, over all jobs, again and again, is optimal for every sum that it
passes through: the Lagrangian of the sum, walked from its planned end. The largest loss comes last.

    symbol   here         meaning
    k        size         what a width takes of the room: GPUs, or parts of a node
    w T(k)   hours        weighted hours that the rest of a job takes at a width
    G        room         what there is

Cost: O(n log n) for n widths.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from policies.model import JobId, Width


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A width that a job may be given: what it takes of the room, and the weighted hours of the rest."""

    width: Width
    size: float
    hours: float


def narrowed(choices: Mapping[JobId, Sequence[Choice]], room: float) -> dict[JobId, Width]:
    """Return a width for each job that together take no more than the room, if the narrowest do not.

    `choices` are the widths of a job in any order, the widest of them the planned one. Where even the
    narrowest take more than the room, every job gets its narrowest: who waits is not decided here.
    """
    hulls = {job: _hull(found) for job, found in choices.items()}
    taken = sum(hull[-1].size for hull in hulls.values())
    steps = [
        (_loss(hull[-2], hull[-1]), number, job)
        for number, (job, hull) in enumerate(hulls.items())
        if len(hull) > 1
    ]
    heapq.heapify(steps)
    while taken > room * (1.0 + 1e-12) and steps:
        _, number, job = heapq.heappop(steps)
        hull = hulls[job]
        taken -= hull.pop().size - hull[-1].size
        if len(hull) > 1:
            heapq.heappush(steps, (_loss(hull[-2], hull[-1]), number, job))
    return {job: hull[-1].width for job, hull in hulls.items()}


def _hull(choices: Sequence[Choice]) -> list[Choice]:
    """Return the lower convex hull, the narrowest first; a width no faster than a narrower one is out."""
    hull: list[Choice] = []
    for choice in sorted(choices, key=lambda one: (one.size, one.hours)):
        if hull and choice.hours >= hull[-1].hours:
            continue
        while len(hull) > 1 and _loss(hull[-2], hull[-1]) <= _loss(hull[-1], choice):
            hull.pop()
        hull.append(choice)
    return hull


def _loss(narrow: Choice, wide: Choice) -> float:
    """Return the hours lost per size given up."""
    return (narrow.hours - wide.hours) / (wide.size - narrow.size)
