"""The knee of a falling convex curve: the budget beyond which further money saves less than its share.

The range is from the cliff (the least feasible budget) to the budget at which only `NEAR_FLOOR` of the time
above the floor is left. The knee is the point of the range furthest below the chord, with both axes scaled to
one (Kneedle: Satopaa et al. 2011, for an exact curve). There one per cent of the money range saves exactly
one per cent of the time range; further left it saves more, further right less. Of several such points it is
the last: along a straight line every dollar saves the same, so the knee is the end of the line. Cost:
O(vertices).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policies.optimum.hull import TIE
from policies.speedup import Floats

NEAR_FLOOR = 0.05
"""Share of the time range, next to the floor, that is excluded from the range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knee:
    """Budget and hours at the knee, and at both ends of the range."""

    budget: float
    hours: float
    cliff_budget: float
    cliff_hours: float
    flat_budget: float
    floor_hours: float


def knee_of(budget: Floats, hours: Floats) -> Knee:
    """Return the knee of a convex curve by rising budget and falling hours, shapes (vertices,)."""
    span = float(hours[0] - hours[-1])
    flat_hours = float(hours[-1]) + NEAR_FLOOR * span
    flat = float(np.interp(-flat_hours, -hours, budget)) if span > 0.0 else float(budget[0])
    inside = budget <= flat
    x, y = np.append(budget[inside], flat), np.append(hours[inside], flat_hours if span > 0.0 else hours[0])
    width, height = max(flat - float(budget[0]), 1e-300), max(float(y[0] - y[-1]), 1e-300)
    below = (y[0] - y) / height - (x - x[0]) / width
    at = int(np.flatnonzero(below >= below.max() - TIE)[-1])
    return Knee(
        budget=float(x[at]),
        hours=float(y[at]),
        cliff_budget=float(budget[0]),
        cliff_hours=float(hours[0]),
        flat_budget=flat,
        floor_hours=float(hours[-1]),
    )
