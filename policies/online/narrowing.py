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


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Widths that fit into the room together. Jobs without one wait; `order` says who is served first."""

    widths: Mapping[JobId, Width]
    order: tuple[JobId, ...]
    price: float


def worths(claims: Sequence[Claim], room: float) -> list[float]:
    """Return what a unit of each job's work is worth, while all of them are there."""
    order = sorted(range(len(claims)), key=lambda n: (-claims[n].room_hours_over_weight, -n))
    # Where there is no room at all, the order is still that of the least room that is of use.
    least = min((claim.menu.steps[0][1] * claim.size_per_gpu for claim in claims), default=0.0)
    free, found = max(room, least), [0.0] * len(claims)
    # Of each job taken before, the last step up to what it has: (value per room, job, corner, room).
    steps: list[tuple[float, int, int, float]] = []
    for number in order:
        claim = claims[number]
        menu, size = claim.menu, claim.size_per_gpu
        cost, speed, last = claim.urgency, 0.0, (0, 0.0)
        money = claim.money_per_gpu / size
        for corner, (slope_per_gpu, gpus) in enumerate(menu.steps):
            slope, left = slope_per_gpu / size, gpus * size
            while left > ROUNDING and (free > 0.0 or steps):
                lost = 0.0 if free > 0.0 else max(0.0, steps[0][0])
                # To take more pays as long as the cost of a unit of speed falls.
                if (lost + money) * speed >= slope * cost:
                    break
                if free > 0.0:
                    taken = min(free, left)
                    free -= taken
                else:
                    taken = _take(claims, found, steps, left)
                cost += (lost + money) * taken
                speed += slope * taken
                left -= taken
            if left < gpus * size:
                last = (corner, gpus * size - left)
            if left > ROUNDING:
                break
        found[number] = cost / speed
        if last[1] > 0.0:
            heapq.heappush(steps, (_value(claim, found[number], last[0]), number, *last))
    return found


def _take(
    claims: Sequence[Claim], found: Sequence[float], steps: list[tuple[float, int, int, float]], most: float
) -> float:
    """Take room from the step that is worth least, `most` of it at the most; return how much that is."""
    value, loser, corner, size = heapq.heappop(steps)
    if size > most + ROUNDING:
        heapq.heappush(steps, (value, loser, corner, size - most))
        return most
    if corner:
        claim = claims[loser]
        below = claim.menu.steps[corner - 1][1] * claim.size_per_gpu
        heapq.heappush(steps, (_value(claim, found[loser], corner - 1), loser, corner - 1, below))
    return size


def _value(claim: Claim, worth: float, corner: int) -> float:
    """Return what a unit of room is worth in the step up to a corner."""
    return (worth * claim.menu.steps[corner][0] - claim.money_per_gpu) / claim.size_per_gpu


def shares(claims: Sequence[Claim], room: float) -> Shares:
    """Return the widths that are worth most within the room; running jobs get one in any case."""
    if not claims:
        return Shares(widths={}, order=(), price=0.0)
    options = _Options.of(claims, worths(claims, room))
    chosen, price = options.within(room)
    rank = sorted(range(len(claims)), key=lambda n: (-options.index[n], claims[n].job.arrived_at, n))
    return Shares(
        widths={
            claim.job.id: claim.menu.widths[number - 1]
            for claim, number in zip(claims, chosen.tolist(), strict=True)
            if number > 0
        },
        order=tuple(claims[n].job.id for n in rank),
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
        rows_of: dict[int, list[int]] = {}
        for row, claim in enumerate(claims):
            rows_of.setdefault(id(claim.menu), []).append(row)
        columns = max(len(claim.menu.widths) for claim in claims) + 1
        sizes = np.zeros((len(claims), columns))
        values = np.full((len(claims), columns), -math.inf)
        size = np.array([claim.size_per_gpu for claim in claims])
        money = np.array([claim.money_per_gpu for claim in claims])
        value = np.array(worth)
        kept = 1.0 - np.array([claim.restart_share for claim in claims])
        for rows in rows_of.values():
            menu = claims[rows[0]].menu
            end = len(menu.widths) + 1
            sizes[rows, 1:end] = np.outer(size[rows], menu.gpus_array)
            gain = np.outer(value[rows] * kept[rows], menu.speeds_array)
            values[rows, 1:end] = gain - np.outer(money[rows], menu.gpus_array)
        for row, (claim, each) in enumerate(zip(claims, worth, strict=True)):
            held = claim.job.width
            if held is None:
                values[row, 0] = 0.0
            elif kept[row] < 1.0:
                here = claim.menu.widths.index(held)
                values[row, here + 1] += each * (1.0 - kept[row]) * claim.menu.speeds[here]
        index = np.array([_value(claim, each, 0) for claim, each in zip(claims, worth, strict=True)])
        most = float(np.abs(index).max()) + 1.0
        for row, claim in enumerate(claims):
            if claim.is_overdue:
                index[row] += most * FIRST * claim.overdue
                if claim.job.width is None:
                    values[row, 0] = -most * FIRST * claim.overdue * sizes[row, 1 + claim.menu.corners[0]]
        return cls(sizes=sizes, values=values, index=index)

    def at(self, price: float) -> Ints:
        """Return what each job takes at a price of room."""
        return np.asarray((self.values - price * self.sizes).argmax(axis=1))

    def taken(self, chosen: Ints) -> float:
        """Return the room that a choice takes."""
        return float(self.sizes[np.arange(len(chosen)), chosen].sum())

    def within(self, room: float) -> tuple[Ints, float]:
        """Return the choice that fits into the room, and the price at which it does."""
        wider = self.at(0.0)
        if self.taken(wider) <= room + ROUNDING:
            return wider, 0.0
        low, high = 0.0, 1.0
        while self.taken(chosen := self.at(high)) > room + ROUNDING:
            if high > 1e30:
                return chosen, high  # the narrowest widths of those who run take more than there is
            low, wider, high = high, chosen, high * 16.0
        for _ in range(HALVINGS):
            middle = 0.5 * (low + high)
            at = self.at(middle)
            if self.taken(at) > room + ROUNDING:
                low, wider = middle, at
            else:
                high, chosen = middle, at
            if np.count_nonzero(wider != chosen) <= 1:
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
