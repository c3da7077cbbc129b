"""The cheapest way through the phases of a job while prices vary: a lower bound by dynamic programming.

A job does its phases in order, in stints: a stint holds one width and begins with `overhead` hours without
work (the start-up, or a rescale where that is shorter). The programme walks over units of work (phases, in
equal parts where long) and over steps of time, and rounds everything down:

* Each stint of the programme lies within the true one, but for a part of a step: it begins at most a step
  early, and takes at most its true time, as the steps of its units are differences of rounded-down sums, too
  long by one step at most, and its overhead is rounded down and shortened by one step more.
* Each step costs the least price of itself and of the two steps beside it, as it may stand for either.
* The unit in which the width changes is paid as a whole where it is cheapest: at the width before and the
  least price while that may do it (`_Charges.head`), at the width after (`tail`), or at a third one between,
  which has an overhead of its own (`between`). It takes the least time of any width. What is left of the
  stint after it is the end of the true one.

    symbol   here        meaning
    V_ik(n)  staying     least end of the job plus what it pays, from step n on, holding k before unit i
    O_i(n)   clean       the same, holding nothing: the least beginning of a stint from n on
             begun       the same where the stint pays for the unit before it as well

Cost: O(units x choices x steps) in time, O(choices x steps) in memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from boa_daemon.sim.stint_paths import JobTimes, Resolution
from policies.speedup import Floats, Ints

MOST_BEHIND = 5
"""Steps that a unit of the programme begins before the true one, at the most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Charges:
    """What the unit costs in which the width changes, by choice and step, the tail's price last."""

    head: Floats
    tail: Floats
    between: Floats


def least_costs(
    times: JobTimes,
    prices: Floats,
    tail_rates: Floats,
    multiplier: float,
    *,
    step_hours: float,
    resolution: Resolution,
) -> Floats:
    """Return the least hours of a job's end plus `multiplier` times what it pays, from each step on.

    `prices` is what a choice costs per hour in each step, shape (choices, steps); `tail_rates` from then on.
    """
    units = times.in_units(resolution)
    choices, count = prices.shape
    overhead = max(int(times.overhead_hours / step_hours + 1e-9) - 1, 0)
    steps = _steps_of(units, times.overhead_hours, step_hours)
    least = prices.copy()
    least[:, 1:] = np.minimum(least[:, 1:], prices[:, :-1])
    least[:, :-1] = np.minimum(least[:, :-1], prices[:, 1:])
    paid = np.pad(np.cumsum(multiplier * step_hours * least, axis=1), ((0, 0), (1, 0)))
    tail = multiplier * step_hours * tail_rates
    clock = step_hours * np.arange(count + 1)
    longest = max(int(steps.max()), overhead, int(units.min(axis=1).max() / step_hours) + overhead + 3)
    # What holding a choice from step 0 on has cost, beyond the last step too.
    paid = np.concatenate((paid, paid[:, -1:] + tail[:, None] * np.arange(1, longest + 1)), axis=1)
    charging = _Charging.of(least, tail_rates, multiplier, step_hours, times.overhead_hours)
    # Costs beyond the last step are the time and a constant.
    beyond: Floats = np.asarray(step_hours * np.arange(1, longest + 1), dtype=np.float64)
    walk = _Walk(clock=clock, beyond=beyond)
    held = paid[:, overhead : overhead + count + 1] - paid[:, : count + 1]
    staying = np.broadcast_to(clock, (choices, count + 1)).copy()
    after = np.zeros(choices)
    for unit in range(len(units) - 1, -1, -1):
        charges = charging.of_unit(units[unit])
        costs = walk.later(staying, after, overhead)
        costs += held
        after_costs = after + overhead * (step_hours + tail)
        clean, after_clean = _from_now_on(costs.min(axis=0)), float(after_costs.min())
        costs += charges.tail
        begun, after_begun = _from_now_on(costs.min(axis=0)), float((after_costs + charges.tail[:, -1]).min())
        fewest, more = charging.steps_between(float(units[unit].min()))
        lone = walk.later(clean[None], np.array([after_clean]), more)[0] + charges.between
        lone = np.minimum(lone, walk.later(begun[None], np.array([after_begun]), fewest)[0])
        after_lone = min(
            after_clean + more * step_hours + float(charges.between[-1]), after_begun + fewest * step_hours
        )
        headed = walk.later(clean[None], np.array([after_clean]), fewest)[0]
        after_headed = after_clean + fewest * step_hours
        before, after_before = staying, after
        staying, after = charges.head + headed, charges.head[:, -1] + after_headed
        np.minimum(staying, lone, out=staying)
        after = np.minimum(after, after_lone)
        for choice in np.flatnonzero(np.isfinite(units[unit])).tolist():
            length = int(steps[unit, choice])
            on = walk.later(before[choice : choice + 1], after_before[choice : choice + 1], length)[0]
            on += paid[choice, length : length + count + 1]
            on -= paid[choice, : count + 1]
            np.minimum(staying[choice], on, out=staying[choice])
            after[choice] = min(
                after[choice], float(after_before[choice]) + length * (step_hours + tail[choice])
            )
    costs = walk.later(staying, after, overhead) + held
    return _from_now_on(costs.min(axis=0))


def _steps_of(units: Floats, overhead_hours: float, step_hours: float) -> Ints:
    """Return the steps of each unit at each choice, none where it cannot run."""
    finite = np.where(np.isfinite(units), units, 0.0)
    if overhead_hours < step_hours:
        # Without an overhead to shorten, every unit is rounded down by itself.
        return np.floor(finite / step_hours).astype(np.int64)
    sums = np.pad(finite.cumsum(axis=0), ((1, 0), (0, 0)))
    reached = np.floor(sums / step_hours + 1e-9).astype(np.int64)
    return reached[1:] - reached[:-1]


def _from_now_on(costs: Floats) -> Floats:
    """Return the least of each step's cost and all later ones."""
    return np.minimum.accumulate(costs[::-1])[::-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Walk:
    """The time of each step, and what it is beyond the last one."""

    clock: Floats
    beyond: Floats

    def later(self, costs: Floats, after: Floats, steps: int) -> Floats:
        """Return a copy of the costs so many steps later; beyond the last step `after` and the time."""
        if steps == 0:
            return costs.copy()
        tail = (self.clock[-1] + self.beyond[:steps]) + after[:, None]
        count = len(self.clock)
        return np.concatenate((costs[:, steps:], tail), axis=1) if steps < count else tail[:, -count:]


@dataclass(slots=True, kw_only=True)
class _Charging:
    """The least prices in windows of 1, 2, 4 ... steps from each step on, and of all later ones."""

    windows: list[Floats]
    cheapest: Floats
    multiplier: float
    step_hours: float
    overhead_hours: float
    last_unit: Floats | None = None
    last_charges: _Charges | None = None

    @classmethod
    def of(
        cls, least: Floats, tail_rates: Floats, multiplier: float, step_hours: float, overhead_hours: float
    ) -> _Charging:
        """Return the windows, the widest of which is one step; others are made when asked for."""
        rates = np.concatenate((least, tail_rates[:, None]), axis=1)
        cheapest = np.minimum.accumulate(rates[:, ::-1], axis=1)[:, ::-1]
        return cls(
            windows=[rates],
            cheapest=cheapest,
            multiplier=multiplier,
            step_hours=step_hours,
            overhead_hours=overhead_hours,
        )

    def of_unit(self, hours: Floats) -> _Charges:
        """Return the charges of a unit that takes so many hours at each choice."""
        if self.last_unit is None or self.last_charges is None or not np.array_equal(self.last_unit, hours):
            self.last_unit, self.last_charges = hours, self._charges(hours)
        return self.last_charges

    def steps_between(self, fastest_hours: float) -> tuple[int, int]:
        """Return the least steps of a unit in which the width changes once, and more often."""
        further = self.overhead_hours if self.overhead_hours >= self.step_hours else 0.0
        once, more = fastest_hours / self.step_hours, (fastest_hours + further) / self.step_hours
        return max(int(once + 1e-9), 0), max(int(more + 1e-9), 0)

    def _charges(self, hours: Floats) -> _Charges:
        step_hours, overhead = self.step_hours, self.overhead_hours
        runs = np.isfinite(hours)
        cheapest = self.cheapest[runs]
        if overhead < step_hours:
            # Units drift from their true times: each is paid at the least price of all that come.
            between = self.multiplier * (cheapest * hours[runs, None]).min(axis=0)
            never = np.full((len(hours), 1), np.inf)
            none = np.broadcast_to(never, self.cheapest.shape)
            return _Charges(head=none, tail=none, between=between)
        head = np.full(self.cheapest.shape, np.inf)
        tail = np.full(self.cheapest.shape, np.inf)
        for choice in np.flatnonzero(runs).tolist():
            length = hours[choice] / step_hours
            paid = self.multiplier * hours[choice]
            head[choice] = paid * self._least(choice, 0, int(length) + 2 + MOST_BEHIND)
            begin = int(np.floor((overhead - hours[choice]) / step_hours)) - 1
            end = int(np.ceil(overhead / step_hours)) + 2
            tail[choice] = paid * self._least(choice, begin, end - begin)
        between = self.multiplier * (cheapest * (hours[runs, None] + overhead)).min(axis=0)
        return _Charges(head=head, tail=tail, between=between)

    def _least(self, choice: int, begin: int, steps: int) -> Floats:
        """Return, for each step n, the least price of a choice over so many steps from n + begin on."""
        level = max(int(np.log2(steps)), 0)
        while len(self.windows) <= level:
            last = self.windows[-1]
            self.windows.append(np.minimum(last, _shifted(last, 1 << (len(self.windows) - 1))))
        found = self.windows[level][choice]
        first = _shifted(found, begin)
        return np.minimum(first, _shifted(found, begin + steps - (1 << level)))


def _shifted(rows: Floats, steps: int) -> Floats:
    """Return the values so many steps later, those at the ends beyond them."""
    count = rows.shape[-1]
    return rows[..., np.clip(np.arange(count) + steps, 0, count - 1)]
