"""What an hour at a width can earn, when each phase of a job is worth a given sum.

A stint is a time for which a job holds one width. It begins with at least `overhead` hours without work (the
start-up, or a rescale where that is shorter); then it works on phases in order. Phases are taken together in
chapters, which follow one another in time. With a value w_i for phase i, and a value D_bk for a stint that is
at choice k when chapter b begins, stints within one chapter earn at most A_k per hour, where A_k is least with

    sum of w_i over its phases - D at its begin + D at its end  <=  A_k x (overhead + sum of t_ik)

for all runs of phases of the chapter. A stint that comes from the chapter before has no overhead in this one and
pays its D; one that goes on into the next earns the D there; the others have no D. Both sides are linear in
the parts of the first and the last phase, so that whole phases are enough.

    symbol   here       meaning
    t_ik     hours      hours that phase i takes at choice k (a GPU type and a width); infinite where it cannot
    c_k      rates      what an hour at choice k costs, at flat prices
    w_i      worth      value of a phase
    D_bk     staying    value of holding k at the begin of a chapter, over holding nothing

The w are differences of the least cost of a job at flat prices, the mean of those seen from its end and from its
begin, and D is what a stint may still earn from then on beyond what it costs: then A_k <= c_k, and the phases are
together worth exactly the least cost of the job.

Cost: O(phases x choices) per cost vector for w and D, and 40 times that for A.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from policies.speedup import Floats

HALVINGS = 40
"""Of the interval that holds A_k; its upper end is taken, which is valid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTimes:
    """The hours of each phase at each choice, shape (phases, choices), and those that each stint loses.

    `begins` are the first phases of the chapters, the first of all included.
    """

    hours: Floats
    overhead_hours: float
    begins: tuple[int, ...] = (0,)


@dataclass(frozen=True, slots=True, kw_only=True)
class StintValues:
    """Of a chapter, for each cost vector: its value, shape (vectors,), and A, shape (vectors, choices)."""

    worth: Floats
    per_hour: Floats


def stint_values(times: JobTimes, rates: Floats, *, usual: int) -> list[StintValues]:
    """Return the values of each chapter, for what an hour at each choice costs, shape (vectors, choices).

    The values D, which must be the same whatever the vector, are those of the vector number `usual`.
    """
    from_end = _least_costs(times.hours, times.overhead_hours, rates)
    from_begin = _least_costs(times.hours[::-1], times.overhead_hours, rates)[::-1]
    worth = 0.5 * (from_end + from_begin)
    ends = (*times.begins[1:], len(times.hours))
    staying = _staying(times, worth[:, usual], rates[usual])
    return [
        StintValues(
            worth=worth[begin:end].sum(axis=0),
            per_hour=_earned(
                times.hours[begin:end],
                times.overhead_hours,
                worth[begin:end],
                staying.get(begin),
                staying.get(end),
            ),
        )
        for begin, end in zip(times.begins, ends, strict=True)
    ]


def _least_costs(hours: Floats, overhead: float, rates: Floats) -> Floats:
    """Return by how much each phase raises the least cost of the phases after it, shape (phases, vectors)."""
    staying = np.zeros_like(rates)
    waiting = np.zeros(len(rates))
    raised = np.empty((len(hours), len(rates)))
    for phase in range(len(hours) - 1, -1, -1):
        staying = hours[phase] * rates + np.minimum(staying, waiting[:, None])
        before, waiting = waiting, (staying + overhead * rates).min(axis=1)
        raised[phase] = waiting - before
    return raised


def _staying(times: JobTimes, worth: Floats, rates: Floats) -> dict[int, Floats]:
    """Return D at the begin of each chapter but the first: what a stint may still earn beyond what it costs."""
    earned = np.zeros_like(rates)
    found = {}
    for phase in range(len(worth) - 1, 0, -1):
        earned = np.maximum(worth[phase] - times.hours[phase] * rates + earned, 0.0)
        if phase in times.begins:
            found[phase] = earned
    return found


def _earned(
    hours: Floats, overhead: float, worth: Floats, came: Floats | None, goes: Floats | None
) -> Floats:
    """Return A for each cost vector and choice of a chapter, rounded up.

    `came` is D at its begin, `goes` at its end; None where the job begins or ends there.
    """
    runs = np.isfinite(hours)
    finite = np.where(runs, hours, 1.0)
    alone = np.where(runs[:, None, :], worth[:, :, None] / finite[:, None, :], 0.0).max(axis=0)
    if overhead <= 0.0:
        return alone
    bonus = np.zeros(hours.shape[1]) if goes is None else goes
    shortest = np.minimum(finite.min(axis=0), overhead)
    high, low = alone + bonus / shortest, np.zeros_like(alone)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        fresh = -middle * overhead
        entry = fresh if came is None else np.maximum(fresh, -came)
        best = entry
        most = np.full_like(middle, -np.inf)
        for phase, value in enumerate(worth):
            gain = np.where(runs[phase], value[:, None] - middle * finite[phase], -np.inf)
            best = np.maximum(best, fresh if phase else entry) + gain
            most = np.maximum(most, best)
        if goes is not None:
            most = np.maximum(most, np.maximum(best, fresh) + bonus)
        is_earned = most > 0.0
        low, high = np.where(is_earned, middle, low), np.where(is_earned, high, middle)
    return high
