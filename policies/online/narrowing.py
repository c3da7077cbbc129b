"""Scarce room: who waits and who is narrow, so that the sum of weighted completion times is least.

    minimise  sum_j w_j C_j + mu * (money)    subject to    sum_j k_j(t) <= G  at every instant

A unit of a job's work is worth the same, v_j, for as long as the job is there (Pontryagin): speeds do not
depend on how much is left. The jobs S that are there work off what their presence costs, and so does j:

    sum of w_j over S  =  max over widths in G of  sum over S of v_j s_j(k_j) - m_j k_j
    v_j  =  min_k ( w_j + m_j k + L_S(k) ) / s_j(k)       L_S(k): what S loses where j takes k

So the worths are found backwards without a simulation: take the jobs in the reverse order of their ends, each
with S being those taken before. Sizes count only through the order of ends, which is Smith's: least
room-hours over weight first. With one speed-up k^p for all this is heSRPT; with linear ones it is SRPT; for
one job it is BOA. At a price nu the widths worth most, by sum_j v_j s_j(k_j) - m_j k_j, fit into the room.

A change of width costs a running job a restart of r hours. It is spread over the time that the change lasts,
and taken off the value of every width but the one that is held. A running job is never stopped.

Source: heSRPT, Berg, Vesilo and Harchol-Balter (arXiv 1903.09346). The derivation, what it was checked
against and what else was tried: docs/explanation/at-a-cap.md.

    symbol   here            meaning
    k        size            what a width takes of the room: parts of a node, or dollars per hour
    s(k)     speeds          phases per hour
    m        money_per_gpu   weighted hours that the money for a GPU-hour would save elsewhere
    nu       price           weighted hours that a unit of room is worth for an hour
    v        worths          weighted hours that finishing a unit of work is worth
    r        restart_hours   hours without progress
    G        room            what there is

Cost: O(n log n) for n widths of all jobs together.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from policies.claim import Claim
from policies.model import JobId, Width
from policies.speedup import Floats, Ints

ROUNDING = 1e-9
"""Sums of sizes may exceed the room by so much."""
HALVINGS = 60
"""Steps of the bisection on the price."""
FIRST = 1e9
"""What room is worth to an overdue job, over what it is worth to any other."""


_Steps: TypeAlias = list[tuple[float, float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Widths that fit into the room together. Jobs without one wait; `order` says who is served first."""

    widths: Mapping[JobId, Width]
    order: tuple[JobId, ...]
    price: float


def worths(claims: Sequence[Claim], room: float) -> list[float]:
    """Return what a unit of each job's work is worth, while all of them are there."""
    smith = [claim.room_hours_over_weight for claim in claims]
    order = sorted(range(len(claims)), key=lambda n: (-smith[n], -n))
    steps_of, sizes = _steps_of(claims), [claim.size_per_gpu for claim in claims]
    moneys = [claim.money_per_gpu for claim in claims]
    # Where there is no room at all, the order is still that of the least room that is of use.
    free = max(room, min((steps[0][2] for steps in steps_of), default=0.0))
    found = [0.0] * len(claims)
    # Each job taken before is in the heap once, at what its last step is worth per room. Which step that is,
    # and the room that it has in it, stand in the two lists.
    losers: list[tuple[float, int]] = []
    last_step, last_room = [0] * len(claims), [0.0] * len(claims)
    for number in order:
        cost, speed, last, taken_of_last = claims[number].urgency, 0.0, -1, 0.0
        money = moneys[number] / sizes[number]
        for _, slope, size in steps_of[number]:
            left = size
            while left > ROUNDING:
                if free > 0.0:
                    # To take more pays as long as the cost of a unit of speed falls.
                    if money * speed >= slope * cost:
                        break
                    taken = min(free, left)
                    free -= taken
                    cost += money * taken
                elif losers:
                    lost, loser = losers[0]
                    price = money if lost <= 0.0 else lost + money
                    if price * speed >= slope * cost:
                        break
                    taken = last_room[loser]
                    if taken > left + ROUNDING:
                        last_room[loser] = taken - left
                        taken = left
                    elif last_step[loser] > 0:
                        last_step[loser] -= 1
                        slope_per_gpu, _, last_room[loser] = steps_of[loser][last_step[loser]]
                        value = (found[loser] * slope_per_gpu - moneys[loser]) / sizes[loser]
                        heapq.heapreplace(losers, (value, loser))
                    else:
                        heapq.heappop(losers)
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
            last_step[number], last_room[number] = last, taken_of_last
            value = (worth * steps_of[number][last][0] - moneys[number]) / sizes[number]
            heapq.heappush(losers, (value, number))
    return found


def _steps_of(claims: Sequence[Claim]) -> list[_Steps]:
    """Return the steps of each job: (slope per GPU, slope per room, room). Jobs alike share theirs."""
    known: dict[tuple[int, float], _Steps] = {}
    found = []
    for claim in claims:
        size = claim.size_per_gpu
        key = (id(claim.menu), size)
        if key not in known:
            known[key] = [(slope, slope / size, gpus * size) for slope, gpus in claim.menu.steps]
        found.append(known[key])
    return found


def shares(claims: Sequence[Claim], room: float) -> Shares:
    """Return the widths that are worth most within the room; running jobs get one in any case."""
    if not claims:
        return Shares(widths={}, order=(), price=0.0)
    options = _Options.of(claims, worths(claims, room))
    chosen, price = options.within(room)
    arrived = np.array([claim.job.arrived_at for claim in claims])
    return Shares(
        widths={
            claim.job.id: claim.menu.widths[number - 1]
            for claim, number in zip(claims, chosen.tolist(), strict=True)
            if number > 0
        },
        order=tuple(claims[n].job.id for n in np.lexsort((arrived, -options.index)).tolist()),
        price=price,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """What each job may get: arrays of shape (jobs, widths + 1), of which column 0 is to wait."""

    sizes: Floats
    values: Floats
    index: Floats  # (jobs,): the value per room at the most efficient width

    @classmethod
    def of(cls, claims: Sequence[Claim], worth: Sequence[float]) -> _Options:
        """Lay out the options; one that cannot be chosen has a value of minus infinity."""
        columns = max(len(claim.menu.widths) for claim in claims) + 1
        sizes = np.zeros((len(claims), columns))
        values = np.full((len(claims), columns), -math.inf)
        size = np.array([claim.size_per_gpu for claim in claims])
        money = np.array([claim.money_per_gpu for claim in claims])
        value = np.array(worth)
        overdue = np.array([claim.overdue for claim in claims])
        waits = np.array([claim.job.width is None for claim in claims])
        restarts = np.array([claim.restart_share for claim in claims])
        gains, index, least = value * (1.0 - restarts), np.empty(len(claims)), np.empty(len(claims))
        for rows in _rows_by_menu(claims):
            menu = claims[rows[0]].menu
            end, best = len(menu.widths) + 1, menu.corners[0]
            sizes[rows, 1:end] = np.outer(size[rows], menu.gpus_array)
            values[rows, 1:end] = np.outer(gains[rows], menu.speeds_array) - np.outer(
                money[rows], menu.gpus_array
            )
            index[rows] = (value[rows] * menu.steps[0][0] - money[rows]) / size[rows]
            least[rows] = size[rows] * menu.gpus_array[best]
        values[waits, 0] = 0.0
        for row in np.flatnonzero(restarts > 0.0).tolist():
            held, menu = claims[row].job.width, claims[row].menu
            if held is not None:
                here = menu.numbers[held]
                values[row, here + 1] += worth[row] * (1.0 - (1.0 - restarts[row])) * menu.speeds[here]
        late = overdue > 1.0
        first = (float(np.abs(index).max()) + 1.0) * FIRST * overdue[late]
        index[late] += first
        values[late & waits, 0] = -first[waits[late]] * least[late & waits]
        return cls(sizes=sizes, values=values, index=index)

    def at(self, price: float) -> Ints:
        """Return what each job takes at a price of room."""
        return np.asarray((self.values - price * self.sizes).argmax(axis=1))

    def changed(self, chosen: Ints, rows: Ints, price: float) -> Ints:
        """Return the choice with what some jobs take at a price."""
        chosen = chosen.copy()
        chosen[rows] = (self.values[rows] - price * self.sizes[rows]).argmax(axis=1)
        return chosen

    def taken(self, chosen: Ints) -> float:
        """Return the room that a choice takes."""
        return float(self.sizes[np.arange(len(chosen)), chosen].sum())

    def within(self, room: float) -> tuple[Ints, float]:
        """Return the choice that fits into the room, and the price at which it does."""
        wider = self.at(0.0)
        if self.taken(wider) <= room + ROUNDING:
            return wider, 0.0
        # Who takes the least that he ever takes goes on with it at any higher price.
        least = np.isfinite(self.values).argmax(axis=1)
        low, high = 0.0, 1.0
        while (
            self.taken(chosen := self.changed(wider, np.flatnonzero(wider != least), high)) > room + ROUNDING
        ):
            if high > 1e30:
                return chosen, high  # the narrowest widths of those who run take more than there is
            low, wider, high = high, chosen, high * 16.0
        # Who takes the same at both prices takes it in between.
        rows = np.flatnonzero(wider != chosen)
        for _ in range(HALVINGS):
            middle = 0.5 * (low + high)
            at = self.changed(chosen, rows, middle)
            if self.taken(at) > room + ROUNDING:
                low, wider = middle, at
            else:
                high, chosen = middle, at
            rows = rows[wider[rows] != chosen[rows]]
            if len(rows) <= 1:
                break
        return self._filled(chosen, wider, room - self.taken(chosen)), high

    def _filled(self, chosen: Ints, wider: Ints, left: float) -> Ints:
        """Return the choice with the rest of the room given to those who would be next, as far as it goes."""
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


def _rows_by_menu(claims: Sequence[Claim]) -> list[list[int]]:
    """Return the numbers of the claims of each menu."""
    rows_of: dict[int, list[int]] = {}
    for row, claim in enumerate(claims):
        rows_of.setdefault(id(claim.menu), []).append(row)
    return list(rows_of.values())
