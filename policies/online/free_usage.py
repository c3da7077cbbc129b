"""Prepaid usage: GPU types with a commitment are priced lower until the jobs use what is paid anyway.

A commitment pays for V dollars an hour of usage of some GPU types. Below that level the plan does not price
them at p but at theta p, with the theta at which the jobs present take V:

    a job's width minimises    w T + mu (C_other + theta C_free)        theta in (0, 1]

theta = 1 if the jobs take V anyway, and the least of the grid if even the widest widths take less. So jobs
get wider, or move to the prepaid types, until the prepaid usage is used. Jobs are whole, so one step below
theta they may take more than V. Of these two steps the one with the lower cost is used, where usage above V
is paid in full. If all types are prepaid, the result is the optimum at the multiplier theta mu.

    symbol   here               meaning
    theta    PRICE_FRACTIONS    factor on the price of prepaid usage in a plan
    V        free               prepaid usage per hour at on-demand prices, by set of GPU types
    mu       multiplier         price of money (`policies.online.pacing`)

Cost: O(jobs) at each of log2(41) + 2 steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

FreeUsage: TypeAlias = tuple[tuple[frozenset[str], float], ...]
"""Sets of GPU types with their prepaid usage per hour; sets of few types come before sets of many."""
PRICE_FRACTIONS = tuple(2.0 ** (-step / 4.0) for step in range(41))
"""The factors that are tried, from 1 down to about a thousandth; each is 16 % below the one before."""


def usage_to_pay(free: FreeUsage, taken: Mapping[str, float]) -> dict[str, float]:
    """Return the usage per hour that is not prepaid, by GPU type."""
    left = dict(taken)
    for kinds, usage in free:
        level = usage
        for kind in kinds & left.keys():
            used = min(left[kind], level)
            level -= used
            left[kind] -= used
    return left


def step_that_fills(free: FreeUsage, taken_at: Callable[[int], Mapping[str, float]]) -> int:
    """Return the last step at which all usage of prepaid types is prepaid; -1 if it is not so at step 0.

    A step is an index into `PRICE_FRACTIONS`; `taken_at` gives the usage per hour by GPU type at a step.
    """
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
    """Return the price factor of each prepaid GPU type at a step."""
    return {kind: PRICE_FRACTIONS[step] for kinds, _ in free for kind in kinds}
