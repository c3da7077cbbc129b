"""What is paid whether used or not, and how jobs fill it: usage that costs nothing more is priced lower.

A commitment pays for V dollars an hour of usage of some GPU types. Below that level their marginal price is
not p but theta p, with the theta at which the jobs that are there take V:

    a job's width minimises    w T + mu (C_other + theta C_free)        theta in (0, 1]

theta = 1 where the jobs take V anyway, and the least of the grid where even the widest widths do not. So jobs
are made wider, or go to the free types from others, until what is paid for is used. Jobs are whole: one step
below theta they may take more than V. Of the two steps that is taken which costs less with the rest paid in
full. Where all types are free it is the optimum at the multiplier theta mu.

    symbol   here       meaning
    theta    PARTS      part of its price that free usage is given in a plan
    V        free       by set of GPU types, usage per hour at prices on demand that is paid for
    mu       multiplier (`policies.online.pacing`)

Cost: O(jobs) at each of log2(41) + 2 steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

FreeUsage: TypeAlias = tuple[tuple[frozenset[str], float], ...]
"""GPU types, and what of their usage per hour is paid for; sets of few types before those of many."""
PRICE_FRACTIONS = tuple(2.0 ** (-step / 4.0) for step in range(41))
"""The parts of its price that are tried: a fifth less each, down to a thousandth."""


def usage_to_pay(free: FreeUsage, taken: Mapping[str, float]) -> dict[str, float]:
    """Return what is left to pay of usage per hour, by GPU type."""
    left = dict(taken)
    for kinds, usage in free:
        level = usage
        for kind in kinds & left.keys():
            used = min(left[kind], level)
            level -= used
            left[kind] -= used
    return left


def step_that_fills(free: FreeUsage, taken_at: Callable[[int], Mapping[str, float]]) -> int:
    """Return the last of PARTS at which what jobs take of free types is paid for; -1 where it never is."""
    kinds = frozenset[str]().union(*(found for found, _ in free))
    low, high = -1, len(PRICE_FRACTIONS) if free else 0
    while high - low > 1:
        middle = (low + high) // 2
        left = usage_to_pay(free, taken_at(middle))
        if any(left.get(kind) for kind in kinds):
            high = middle
        else:
            low = middle
    return low


def price_fractions_at(free: FreeUsage, step: int) -> dict[str, float]:
    """Return by free GPU type the part of its price that it counts."""
    return {kind: PRICE_FRACTIONS[step] for kinds, _ in free for kind in kinds}
