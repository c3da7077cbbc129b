"""The formulas of `policies.online.scarce_room`, one step at a time: the oracle of the fast version."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from policies.capacity_claims import Claims, PhaseWidths
from policies.model import Job
from policies.online.scarce_room import HALVINGS, OVERDUE_ROOM_WORTH, ROUNDING, RoomShares


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A job's claim on scarce room: one row of `Claims`.

    `work` is the work left, in phases at the menu's speeds. `size_per_gpu` is the room that a GPU takes.
    `lasts_hours` is about how long a change of width lasts. `overdue` is the job's time so far over the
    promised time: above 1 the job comes first, and its weight grows.
    """

    job: Job
    menu: PhaseWidths
    weight: float
    work: float
    size_per_gpu: float
    money_per_gpu: float
    restart_hours: float = 0.0
    lasts_hours: float = math.inf
    overdue: float = 0.0

    @property
    def is_overdue(self) -> bool:
        """Whether the job has taken longer than promised."""
        return self.overdue > 1.0

    @property
    def urgency(self) -> float:
        """The weight, times `overdue` if the job is overdue."""
        return self.weight * max(1.0, self.overdue)

    @property
    def room_hours_over_weight(self) -> float:
        """The room-hours of the work left at the most efficient width, over the weight: Smith's order."""
        best = self.menu.corners[0]
        hours = self.work / self.menu.speeds[best]
        return hours * self.menu.gpus[best] * self.size_per_gpu / self.urgency

    @property
    def restart_share(self) -> float:
        """The share of its work that a running job loses to a restart, while the change lasts."""
        held = self.job.width
        number = None if held is None else self.menu.numbers.get(held)
        if number is None or self.restart_hours <= 0.0:
            return 0.0
        left = self.work / self.menu.speeds[number]
        # A change ends when other jobs come or go, or when the job ends.
        rate = 1.0 / self.lasts_hours + (1.0 / left if left > 0.0 else math.inf)
        return min(1.0, self.restart_hours * rate)


def claims_of(rows: Sequence[Claim]) -> Claims:
    """Return the claims in columns."""
    menus = {id(row.menu): row.menu for row in rows}
    numbers = {menu: number for number, menu in enumerate(menus)}
    columns = {
        name: np.array([getattr(row, name) for row in rows])
        for name in (
            "weight",
            "work",
            "size_per_gpu",
            "money_per_gpu",
            "restart_hours",
            "lasts_hours",
            "overdue",
        )
    }
    held = [-1 if row.job.width is None else row.menu.numbers.get(row.job.width, -1) for row in rows]
    return Claims(
        jobs=[row.job for row in rows],
        menus=list(menus.values()),
        menu=np.array([numbers[id(row.menu)] for row in rows], dtype=np.int64),
        held=np.array(held, dtype=np.int64),
        **columns,
    )


def plain_worths(claims: Sequence[Claim], room: float) -> list[float]:
    """Return the value of a unit of each job's work; steps are removed and put back one at a time."""
    order = sorted(range(len(claims)), key=lambda n: (-claims[n].room_hours_over_weight, -n))
    # Without any room, the order is that of the least useful room.
    least = min((claim.menu.steps[0][1] * claim.size_per_gpu for claim in claims), default=0.0)
    free, found = max(room, least), [0.0] * len(claims)
    # The last step of each earlier job: (value per room, job, corner, room).
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
                # A further step pays as long as the cost of a unit of speed falls.
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
    """Take at most `most` room from the step of least value; return how much was taken."""
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
    """Return the value of a unit of room in the step up to a corner."""
    return (worth * claim.menu.steps[corner][0] - claim.money_per_gpu) / claim.size_per_gpu


def plain_shares(claims: Sequence[Claim], room: float) -> RoomShares:
    """Return the most valuable widths within the room; every price is tried on every job."""
    worth = plain_worths(claims, room)
    index = [_value(claim, each, 0) for claim, each in zip(claims, worth, strict=True)]
    most = max(map(abs, index), default=0.0) + 1.0
    columns = max((len(claim.menu.widths) for claim in claims), default=0) + 1
    sizes, values = np.zeros((len(claims), columns)), np.full((len(claims), columns), -math.inf)
    for row, (claim, each) in enumerate(zip(claims, worth, strict=True)):
        kept = 1.0 - claim.restart_share
        if claim.job.width is None:
            values[row, 0] = 0.0
        for number, (gpus, speed) in enumerate(zip(claim.menu.gpus, claim.menu.speeds, strict=True)):
            sizes[row, number + 1] = claim.size_per_gpu * gpus
            values[row, number + 1] = each * kept * speed - claim.money_per_gpu * gpus
            if claim.menu.widths[number] == claim.job.width:
                values[row, number + 1] += each * (1.0 - kept) * speed
        if claim.is_overdue:
            index[row] += most * OVERDUE_ROOM_WORTH * claim.overdue
            if claim.job.width is None:
                values[row, 0] = (
                    -most * OVERDUE_ROOM_WORTH * claim.overdue * sizes[row, 1 + claim.menu.corners[0]]
                )
    chosen, price = _within(values, sizes, room)
    rank = sorted(range(len(claims)), key=lambda n: (-index[n], claims[n].job.arrived_at, n))
    return RoomShares(
        widths={
            claim.job.id: claim.menu.widths[number - 1]
            for claim, number in zip(claims, chosen.tolist(), strict=True)
            if number > 0
        },
        order=tuple(claims[n].job.id for n in rank),
        price=price,
    )


def _within(values: np.ndarray, sizes: np.ndarray, room: float) -> tuple[np.ndarray, float]:
    """Return each job's choice at the price at which all fit, found by bisection, and that price."""
    if not len(values):
        return np.zeros(0, dtype=np.int64), 0.0

    def at(price: float) -> np.ndarray:
        return np.asarray((values - price * sizes).argmax(axis=1))

    def taken(chosen: np.ndarray) -> float:
        return float(sizes[np.arange(len(chosen)), chosen].sum())

    wider, low, high = at(0.0), 0.0, 1.0
    if taken(wider) <= room + ROUNDING:
        return wider, 0.0
    while taken(chosen := at(high)) > room + ROUNDING:
        if high > 1e30:
            return chosen, high
        low, wider, high = high, chosen, high * 16.0
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        if taken(found := at(middle)) > room + ROUNDING:
            low, wider = middle, found
        else:
            high, chosen = middle, found
        if np.count_nonzero(wider != chosen) <= 1:
            break
    left = room - taken(chosen)
    for row in np.flatnonzero(chosen != wider).tolist():
        here = chosen[row]
        fits = sizes[row] <= sizes[row, here] + left + ROUNDING
        gains = np.where(fits, values[row] - values[row, here], -math.inf)
        if gains.max() > 0.0:
            chosen[row] = gains.argmax()
            left -= sizes[row, chosen[row]] - sizes[row, here]
    return chosen, high
