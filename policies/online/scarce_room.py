"""Sharing scarce room: the widths, and the jobs that wait, with the least sum of weighted completion times.

    minimise  sum_j w_j C_j + mu * (money)    subject to    sum_j k_j(t) <= G  at every instant

A unit of a job's work has a constant worth v_j while the job is present (Pontryagin), because speeds do not
depend on the work left. The present jobs S, and each job j, work off exactly the cost of their presence:

    sum of w_j over S  =  max over widths in G of  sum over S of v_j s_j(k_j) - m_j k_j
    v_j  =  min_k ( w_j + m_j k + L_S(k) ) / s_j(k)       L_S(k): what S loses if j takes k

So the worths are computed backwards without a simulation: take the jobs in the reverse order of their ends,
and for each let S be those taken before. Sizes matter only through the order of ends, which is Smith's: least
room-hours over weight first. With one speed-up k^p for all jobs this is heSRPT; with linear ones it is SRPT;
for one job it is BOA. The widths that maximise sum_j v_j s_j(k_j) - m_j k_j less nu times their room fit into
the room at the right price nu.

A change of width costs a running job a restart of r hours. This cost is spread over the time that the change
lasts, and subtracted from the value of every width but the current one. A running job is never stopped.

Source: heSRPT, Berg, Vesilo and Harchol-Balter (arXiv 1903.09346). The derivation, what it was checked
against and what else was tried: docs/explanation/at-a-cap.md.

    symbol   here            meaning
    k        size            room that a width takes: parts of a node, or dollars per hour
    s(k)     speeds          phases per hour
    m        money_per_gpu   weighted hours that the price of a GPU-hour would save elsewhere
    nu       price           value of a unit of room for an hour, weighted hours
    v        worths          value of finishing a unit of work, weighted hours
    r        restart_hours   hours without progress
    G        room            the room available

Cost: O(n log n) for n widths of all jobs together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heappop, heappush, heapreplace
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np

from policies.capacity_claims import Claims, PhaseWidths
from policies.model import JobId, Width
from policies.speedup import Floats, Ints, Mask

ROUNDING = 1e-9
"""Sums of sizes may exceed the room by this much."""
HALVINGS = 60
"""Steps of the bisection on the price."""
OVERDUE_ROOM_WORTH = 1e9
"""The value of room to an overdue job over its value to any other job."""


_Steps: TypeAlias = list[tuple[float, float, float]]
"""The steps of a menu: slope per GPU, slope per room, room."""
_Taken: TypeAlias = tuple[float, int, float, Any]
"""A step that a job has taken: value per room, the job, room of the step, and the step below it, if any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomShares:
    """Widths that fit into the room together. Jobs without a width wait; `order` is the order of service."""

    widths: Mapping[JobId, Width]
    order: tuple[JobId, ...]
    price: float


def worths(claims: Claims, room: float) -> Floats:
    """Return the worth of a unit of each job's work while all jobs are present, shape (jobs,)."""
    order = np.lexsort((-np.arange(len(claims)), -claims.room_hours_over_weight))
    # With less room than the smallest step, compute the worths (which give the order) for that step.
    least = [menu.steps[0][1] for menu in claims.menus]
    free = max(room, float((np.array(least)[claims.menu] * claims.size_per_gpu).min(initial=math.inf)))
    unit = _unit(claims, free)
    return _worths(claims, order, free) if unit is None else _worths_alike(claims, order, free, unit)


def _unit(claims: Claims, free: float) -> float | None:
    """Return the room of a step if all steps take the same and divide the free room; else None.

    It must also be a power of two, so that subtracting steps from the room is exact.
    """
    gpus = {gpus for menu in claims.menus for _, gpus in menu.steps}
    units = {size * count for size in np.unique(claims.size_per_gpu).tolist() for count in gpus}
    unit = units.pop() if len(units) == 1 else 0.0
    return unit if math.frexp(unit)[0] == 0.5 and math.fmod(free, unit) == 0.0 else None


def _worths_alike(claims: Claims, order: Ints, free: float, unit: float) -> Floats:
    """Return the worths, computed in `order`, if every step takes one unit of room.

    Then only the value of a lost step matters, not its job, so a heap of numbers does, in half the time.
    """
    size = claims.size_per_gpu.item(0)
    ladders = [_ladder(menu, size, unit) for menu in claims.menus]
    # Steps that can be lost: free room has no value; the last entry stands for the end of the room.
    losers = [-math.inf] * round(free / unit) + [math.inf]
    columns = (claims.urgency, claims.money_per_gpu, claims.menu)
    found: list[float] = []
    for urgency, money_per_gpu, menu in zip(*(column[order].tolist() for column in columns), strict=True):
        ladder, money, cost, speed, steps = ladders[menu], money_per_gpu / size, urgency, 0.0, 0
        for slope, before, after, _ in ladder:
            lost = losers[0]
            price = lost + money if lost > 0.0 else money
            # Taking more pays while the cost of a unit of speed falls.
            if price * before >= slope * cost:
                break
            heappop(losers)
            cost += price * unit
            speed, steps = after, steps + 1
        worth = cost / speed
        found.append(worth)
        for _, _, _, slope_per_gpu in ladder[:steps]:
            heappush(losers, (worth * slope_per_gpu - money_per_gpu) / size)
    worths = np.empty(len(claims))
    worths[order] = found
    return worths


def _ladder(menu: PhaseWidths, size: float, unit: float) -> list[tuple[float, float, float, float]]:
    """Return the steps of a menu: slope per room, the speed before and after the step, slope per GPU."""
    slopes = [slope / size for slope, _ in menu.steps]
    speeds = list(accumulate((slope * unit for slope in slopes), initial=0.0))
    return list(zip(slopes, speeds, speeds[1:], (slope for slope, _ in menu.steps), strict=False))


def _worths(claims: Claims, order: Ints, free: float) -> Floats:
    """Return the worths, computed in `order`, for steps of any room; part of a step may be lost."""
    urgencies, sizes, moneys = (
        column.tolist() for column in (claims.urgency, claims.size_per_gpu, claims.money_per_gpu)
    )
    steps_of, found = _steps_of(claims), [0.0] * len(claims)
    # The last step of each job taken before.
    losers: list[_Taken] = []
    for number in order.tolist():
        steps, size_per_gpu, money_per_gpu = steps_of[number], sizes[number], moneys[number]
        cost, speed, last, taken_of_last = urgencies[number], 0.0, -1, 0.0
        money = money_per_gpu / size_per_gpu
        for _, slope, size in steps:
            left = size
            while left > ROUNDING:
                if free > 0.0:
                    # Taking more pays while the cost of a unit of speed falls.
                    if money * speed >= slope * cost:
                        break
                    taken = min(free, left)
                    free -= taken
                    cost += money * taken
                elif losers:
                    lost, loser, taken, below = losers[0]
                    price = lost + money if lost > 0.0 else money
                    if price * speed >= slope * cost:
                        break
                    if taken > left + ROUNDING:
                        heapreplace(losers, (lost, loser, taken - left, below))
                        taken = left
                    elif below is None:
                        heappop(losers)
                    else:
                        heapreplace(losers, below)
                    cost += price * taken
                else:
                    break
                speed += slope * taken
                left -= taken
            if left < size:
                last, taken_of_last = last + 1, size - left
            if left > ROUNDING:
                break
        found[number] = worth = cost / speed
        if taken_of_last > 0.0:
            step: _Taken | None = None
            for slope, _, size in steps[:last]:
                step = (worth * slope - money_per_gpu) / size_per_gpu, number, size, step
            value = (worth * steps[last][0] - money_per_gpu) / size_per_gpu
            heappush(losers, (value, number, taken_of_last, step))
    return np.array(found)


def _steps_of(claims: Claims) -> list[_Steps]:
    """Return the steps of each job; equal jobs share one list."""
    known: dict[tuple[int, float], _Steps] = {}
    found = []
    for key in zip(claims.menu.tolist(), claims.size_per_gpu.tolist(), strict=True):
        steps = known.get(key)
        if steps is None:
            menu, size = claims.menus[key[0]], key[1]
            steps = known[key] = [(slope, slope / size, gpus * size) for slope, gpus in menu.steps]
        found.append(steps)
    return found


def shares(claims: Claims, room: float) -> RoomShares:
    """Return the widths with the largest total value within the room; every running job gets a width."""
    if not len(claims):
        return RoomShares(widths={}, order=(), price=0.0)
    options = _Options.of(claims, worths(claims, room))
    chosen, price = options.within(room)
    arrived = np.array([job.arrived_at for job in claims.jobs])
    names = [job.id for job in claims.jobs]
    widths = [menu.widths for menu in claims.menus]
    return RoomShares(
        widths={
            name: widths[menu][number - 1]
            for name, menu, number in zip(names, claims.menu.tolist(), chosen.tolist(), strict=True)
            if number > 0
        },
        order=tuple(names[n] for n in np.lexsort((arrived, -options.index)).tolist()),
        price=price,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """The options of each job: arrays of shape (jobs, widths + 1); column 0 means waiting."""

    sizes: Floats
    values: Floats
    index: Floats  # (jobs,): the value per room at the most efficient width

    @classmethod
    def of(cls, claims: Claims, worth: Floats) -> _Options:
        """Build the options; an option that cannot be chosen has the value minus infinity."""
        size, money, overdue = claims.size_per_gpu, claims.money_per_gpu, claims.overdue
        waits = np.array([job.width is None for job in claims.jobs])
        restarts = claims.restart_share
        gpus, speeds = _tables(claims)
        of_job = gpus[claims.menu]
        values = (worth * (1.0 - restarts))[:, None] * speeds[claims.menu] - money[:, None] * of_job
        values[of_job == 0.0] = -math.inf
        values[waits, 0] = 0.0
        stays = np.flatnonzero(restarts > 0.0)
        held = worth[stays] * (1.0 - (1.0 - restarts[stays])) * claims.held_speed[stays]
        values[stays, claims.held[stays] + 1] += held
        slopes = np.array([menu.steps[0][0] for menu in claims.menus])[claims.menu]
        index = (worth * slopes - money) / size
        late = overdue > 1.0
        first = (float(np.abs(index).max()) + 1.0) * OVERDUE_ROOM_WORTH * overdue[late]
        index[late] += first
        best = np.array([menu.gpus[menu.corners[0]] for menu in claims.menus])[claims.menu]
        values[late & waits, 0] = -first[waits[late]] * (size * best)[late & waits]
        return cls(sizes=size[:, None] * of_job, values=values, index=index)

    def taken(self, chosen: Ints) -> float:
        return float(self.sizes[np.arange(len(chosen)), chosen].sum())

    def within(self, room: float) -> tuple[Ints, float]:
        """Return the choice that fits into the room, and the price at which it does."""
        wider = self.values.argmax(axis=1)
        if self.taken(wider) <= room + ROUNDING:
            return wider, 0.0
        # A job that takes its least option keeps it at any higher price.
        least = np.isfinite(self.values).argmax(axis=1)
        undecided, low, high = _Undecided.of(self, wider != least), 0.0, 1.0
        while self.taken(chosen := undecided.at(wider, high)) > room + ROUNDING:
            if high > 1e30:
                return chosen, high  # even the narrowest widths of the running jobs exceed the room
            low, wider, high = high, chosen, high * 16.0
            undecided = undecided.where(wider != least)
        # A job with the same option at both prices has it in between, too.
        undecided = undecided.where(wider != chosen)
        for _ in range(HALVINGS):
            middle = 0.5 * (low + high)
            at = undecided.at(chosen, middle)
            if self.taken(at) > room + ROUNDING:
                low, wider = middle, at
            else:
                high, chosen = middle, at
            undecided = undecided.where(wider != chosen)
            if len(undecided.rows) <= 1:
                break
        return self._filled(chosen, wider, room - self.taken(chosen)), high

    def _filled(self, chosen: Ints, wider: Ints, left: float) -> Ints:
        """Return the choice after giving the room `left` to the jobs that would be wider at a lower price."""
        chosen = chosen.copy()
        for row in np.flatnonzero(chosen != wider).tolist():
            here = chosen[row]
            fits = self.sizes[row] <= self.sizes[row, here] + left + ROUNDING
            gains = np.where(fits, self.values[row] - self.values[row, here], -math.inf)
            best = int(gains.argmax())
            if gains[best] > 0.0:
                left -= self.sizes[row, best] - self.sizes[row, here]
                chosen[row] = best
        return chosen


def _tables(claims: Claims) -> tuple[Floats, Floats]:
    """Return the GPUs and the speeds of each menu, shape (menus, widths + 1); 0 where there is no width."""
    columns = 1 + max(len(menu.widths) for menu in claims.menus)
    gpus, speeds = np.zeros((len(claims.menus), columns)), np.zeros((len(claims.menus), columns))
    for row, menu in enumerate(claims.menus):
        gpus[row, 1 : 1 + len(menu.widths)] = menu.gpus
        speeds[row, 1 : 1 + len(menu.widths)] = menu.speeds
    return gpus, speeds


@dataclass(frozen=True, slots=True, kw_only=True)
class _Undecided:
    """The jobs whose choice still depends on the price: their row numbers and options."""

    rows: Ints
    sizes: Floats
    values: Floats

    @classmethod
    def of(cls, options: _Options, are: Mask) -> _Undecided:
        rows = np.flatnonzero(are)
        return cls(rows=rows, sizes=options.sizes[rows], values=options.values[rows])

    def where(self, are: Mask) -> _Undecided:
        """Return the jobs that are still undecided; the mask `are` covers all jobs."""
        still = np.flatnonzero(are[self.rows])
        if len(still) == len(self.rows):
            return self
        return _Undecided(rows=self.rows[still], sizes=self.sizes[still], values=self.values[still])

    def at(self, chosen: Ints, price: float) -> Ints:
        """Return `chosen` with the best options of the undecided jobs at a price."""
        chosen = chosen.copy()
        chosen[self.rows] = (self.values - price * self.sizes).argmax(axis=1)
        return chosen
