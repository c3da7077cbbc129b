"""The hull of whole-job plans of a class whose phases are coupled by a rescale cost, by shortest paths.

Each change of type or width costs `rescale_hours` at the new width, so the phases of a job must be
planned together. For one multiplier mu the best plan is a shortest path over (phase, column), where a
column is a (type, width) pair:

    f_p(o) = T_p(o) + mu C_p(o) + min( f_{p-1}(o),  min_o' f_{p-1}(o') + r (1 + mu c_o) )

Every plan on the lower hull is the best for some mu, so the hull is found by repeated shortest paths: first
the two ends and some between, then the plan furthest below each chord, which splits it into two, until there
is none. One vectorised pass handles the open chords of all classes.

    symbol   here             meaning
    T_p(o)   phase_time       hours of phase p in column o, inf where not allowed
    C_p(o)   phase_time*rate  its cost
    c_o      rate             cost per hour of holding column o
    r, d     rescale, startup overheads of the class, hours

Cost: O(phases x columns) per shortest path, about two paths per hull vertex; memory O(rows x phases x
columns) with rows bounded by `ROW_CELLS`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from policies.fast_dataclasses import fast_init
from policies.optimum.hull import TIE, lower_hulls
from policies.speedup import Floats, Ints

ROW_CELLS = 400_000
"""Cells (rows x phases x columns) that one vectorised pass may hold."""
ENDS = (1e18, 1e9, 1e-9, 1e-18)
"""Two multipliers for each end: one for cost (or time) alone, one that breaks ties by the other."""
SPREAD = np.concatenate([ENDS[:2], np.geomspace(1e2, 1e-2, 24), ENDS[2:]])
"""The first multipliers of a class, in units of its mean rate: both ends, and a spread between them."""


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class CoupledClass:
    """One coupled class in arrays: phase_time (phases, columns), rate (columns,), overheads in hours."""

    phase_time: Floats
    rate: Floats
    startup_hours: float
    rescale_hours: float


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class PlanHull:
    """Hull vertices of a class by rising cost: cost and time (plans,), columns (plans, phases)."""

    cost: Floats
    time: Floats
    columns: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stack:
    """Classes padded to one shape: missing phases take no time in real columns, missing columns take inf."""

    phase_time: Floats  # (classes, phases, columns)
    rate: Floats  # (classes, columns)
    startup: Floats  # (classes,)
    rescale: Floats  # (classes,)
    phases: Ints  # (classes,)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plans:
    """Plans found so far, of all classes: shapes (plans,) and columns (plans, phases)."""

    owner: Ints
    cost: Floats
    time: Floats
    columns: Ints

    def some(self, which: Ints) -> _Plans:
        return _Plans(
            owner=self.owner[which],
            cost=self.cost[which],
            time=self.time[which],
            columns=self.columns[which],
        )

    def and_more(self, other: _Plans) -> _Plans:
        return _Plans(
            owner=np.concatenate([self.owner, other.owner]),
            cost=np.concatenate([self.cost, other.cost]),
            time=np.concatenate([self.time, other.time]),
            columns=np.concatenate([self.columns, other.columns]),
        )


def plan_hulls(classes: Sequence[CoupledClass], *, tolerance: float = TIE) -> list[PlanHull]:
    """Return the lower hull of all plans of each class, to the relative `tolerance`."""
    stack = _stack(classes)
    # A smaller multiplier gives a plan of higher cost: neighbours are the two ends of a chord.
    plans = _best_plans(stack, *_first_multipliers(classes))
    a = np.flatnonzero(plans.owner[1:] == plans.owner[:-1])
    b = a + 1
    while True:
        # Two plans that differ by rounding alone have no chord.
        saved, spent = plans.time[a] - plans.time[b], plans.cost[b] - plans.cost[a]
        is_chord = (saved > TIE * plans.time[b]) & (spent > TIE * plans.cost[b])
        a, b, multiplier = a[is_chord], b[is_chord], saved[is_chord] / spent[is_chord]
        if not len(a):
            break
        found = _best_plans(stack, plans.owner[a], multiplier)
        on_chord = plans.time[a] + multiplier * plans.cost[a]
        is_below = found.time + multiplier * found.cost < on_chord * (1.0 - tolerance)
        # A plan that is not between the ends is below by rounding alone.
        is_between = (plans.cost[a] < found.cost) & (found.cost < plans.cost[b])
        split = np.flatnonzero(is_below & is_between)
        middle = len(plans.owner) + np.arange(len(split))
        plans = plans.and_more(found.some(split))
        a, b = np.concatenate([a[split], middle]), np.concatenate([middle, b[split]])
    chains = lower_hulls(plans.cost, plans.time, plans.owner, groups=len(classes))
    plans = plans.some(chains.option)
    return [
        PlanHull(
            cost=chains.cost[start:end],
            time=chains.time[start:end],
            columns=plans.columns[start:end, : stack.phases[i]],
        )
        for i, (start, end) in enumerate(zip(chains.starts, chains.starts[1:], strict=False))
    ]


def best_costs(job_class: CoupledClass, multiplier: Floats) -> Floats:
    """Return the least (time + multiplier x cost) of a plan for each multiplier, shape (multipliers,)."""
    plans = _best_plans(_stack([job_class]), np.zeros(len(multiplier), dtype=np.int64), multiplier)
    return plans.time + multiplier * plans.cost


def _stack(classes: Sequence[CoupledClass]) -> _Stack:
    """Pad all classes to the longest and widest."""
    phases = max(c.phase_time.shape[0] for c in classes)
    columns = max(c.phase_time.shape[1] for c in classes)
    time = np.zeros((len(classes), phases, columns))
    rate = np.zeros((len(classes), columns))
    for i, c in enumerate(classes):
        rows, wide = c.phase_time.shape
        time[i, :rows, :wide] = c.phase_time
        time[i, :, wide:] = np.inf
        rate[i, :wide] = c.rate
    return _Stack(
        phase_time=time,
        rate=rate,
        startup=np.array([c.startup_hours for c in classes]),
        rescale=np.array([c.rescale_hours for c in classes]),
        phases=np.array([c.phase_time.shape[0] for c in classes]),
    )


def _first_multipliers(classes: Sequence[CoupledClass]) -> tuple[Ints, Floats]:
    """Return (owner, multiplier) of the first paths, those of a class by falling multiplier."""
    owner = np.repeat(np.arange(len(classes)), len(SPREAD))
    mean_rate = np.array([c.rate.sum() for c in classes]) / [len(c.rate) for c in classes]
    return owner, (SPREAD / mean_rate[:, None]).ravel()


def _best_plans(stack: _Stack, owner: Ints, multiplier: Floats) -> _Plans:
    """Return the plan of least time + multiplier x cost for each row, in passes of bounded memory."""
    _, phases, columns = stack.phase_time.shape
    rows = max(1, ROW_CELLS // (phases * columns))
    parts = [
        _one_pass(stack, owner[i : i + rows], multiplier[i : i + rows]) for i in range(0, len(owner), rows)
    ]
    plans = parts[0]
    for part in parts[1:]:
        plans = plans.and_more(part)
    return plans


def _one_pass(stack: _Stack, owner: Ints, multiplier: Floats) -> _Plans:
    """Run all shortest paths of one pass forward, then read them backward."""
    _, phases, columns = stack.phase_time.shape
    first = np.arange(len(owner)) * columns  # the flat index of the first column of each row
    price = 1.0 + multiplier[:, None] * stack.rate[owner]
    switch_price = stack.rescale[owner][:, None] * price
    least = (stack.phase_time[owner, 0] + stack.startup[owner][:, None]) * price
    stays = np.empty((phases, len(owner), columns), dtype=bool)
    best = np.empty((phases, len(owner)), dtype=np.int64)
    added = np.empty_like(least)  # one array for all phases: making arrays takes as long as filling them
    for p in range(1, phases):
        least.argmin(axis=1, out=best[p])
        np.add(least.take(first + best[p])[:, None], switch_price, out=added)
        np.less_equal(least, added, out=stays[p])
        np.minimum(least, added, out=least)
        np.multiply(stack.phase_time[:, p].take(owner, axis=0), price, out=added)
        least += added
    chosen = np.empty((phases, len(owner)), dtype=np.int64)
    chosen[-1] = least.argmin(axis=1)
    for p in range(phases - 1, 0, -1):
        chosen[p - 1] = np.where(stays[p].take(first + chosen[p]), chosen[p], best[p])
    chosen = np.ascontiguousarray(chosen.T)
    cost, time = _cost_and_time(stack, owner, chosen)
    return _Plans(owner=owner, cost=cost, time=time, columns=chosen)


def _cost_and_time(stack: _Stack, owner: Ints, columns: Ints) -> tuple[Floats, Floats]:
    """Return (cost, hours) of each plan, overheads included, shapes (plans,)."""
    phases = columns.shape[1]
    rate = stack.rate[owner[:, None], columns]
    hours = stack.phase_time[owner[:, None], np.arange(phases), columns]
    hours[:, 0] += stack.startup[owner]
    changes = columns[:, 1:] != columns[:, :-1]
    hours[:, 1:] += changes * stack.rescale[owner][:, None]
    return (rate * hours).sum(axis=1), hours.sum(axis=1)
