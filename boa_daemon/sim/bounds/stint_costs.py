"""The cheapest way through the phases of a job at varying prices: a lower bound by dynamic programming.

A job does its phases in order, in stints: a stint holds one width and begins with `overhead` hours without
work (the start-up, or a rescale if that is shorter). The programme walks over units of work (phases, long
ones in equal parts) and over steps of time, and rounds everything down:

* Each stint of the programme lies within the true one, except for a part of a step: it begins at most a
  step early and takes at most its true time. The steps of its units are differences of rounded-down sums,
  at most one step too long, and its overhead is rounded down and shortened by one more step.
* Each step costs the least price of itself and its two neighbours, because it may stand for any of them.
* The unit in which the width changes may take any time from the fastest width's on. These times form
  classes. Each class costs at least what the widths need that do the unit no slower on average
  (`_Class.worth`, at flat prices), times the least of prices over flat prices: while the stint before does
  it (`head`), while the one after does (`tail`), or ever from now on, and then with another overhead
  (`between`). What is left of the stint after it is the end of the true one.

    symbol   here        meaning
    V_ik(n)  staying     least end of the job plus payments, from step n on, holding k before unit i
    O_i(n)   clean       the same, holding nothing: the least beginning of a stint from n on
             begun       the same if the stint pays for the unit before it as well
             changed     the same, when the unit is the one in which the width changes

Cost: O(units x choices x steps) in time, O(choices x steps) in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from boa_daemon.sim.bounds.stint_paths import JobTimes, Resolution
from policies.speedup import Floats, Ints

CLASSES = 12
"""The number of classes for the times of the unit in which the width changes."""
MOST_BEHIND = 5
"""The most steps by which a unit of the programme begins before the true one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Class:
    """A class of times of the unit in which the width changes: its least and most hours, and its price.

    `worth` is a lower bound of its cost at flat prices.
    """

    least_hours: float
    most_hours: float
    worth: float


def least_costs(
    times: JobTimes,
    prices: Floats,
    tail_rates: Floats,
    multiplier: float,
    *,
    step_hours: float,
    resolution: Resolution,
) -> Floats:
    """Return the least of a job's end in hours plus `multiplier` times its payments, from each step on.

    `prices` is the cost of a choice per hour in each step, shape (choices, steps); `tail_rates` is the cost
    after that.
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
    slowest = float(np.where(np.isfinite(units), units, 0.0).max())
    longest = int((slowest + times.overhead_hours) / step_hours) + 3
    # The cost of holding a choice from step 0 on, also beyond the last step.
    paid = np.concatenate((paid, paid[:, -1:] + tail[:, None] * np.arange(1, longest + 1)), axis=1)
    beyond: Floats = np.asarray(step_hours * np.arange(1, longest + 1), dtype=np.float64)
    walk = _Walk(clock=clock, beyond=beyond)
    changing = _Changing.of(times, least, tail_rates, multiplier, walk)
    held = paid[:, overhead : overhead + count + 1] - paid[:, : count + 1]
    staying = np.broadcast_to(clock, (choices, count + 1)).copy()
    # Costs beyond the last step are the time plus a constant.
    after = np.zeros(choices)
    for unit in range(len(units) - 1, -1, -1):
        costs = walk.later(staying, after, overhead)
        costs += held
        after_costs = float((after + overhead * (step_hours + tail)).min())
        changed, after_changed = changing.least(units[unit], costs.min(axis=0), after_costs)
        for choice in range(choices):
            if not np.isfinite(units[unit, choice]):
                staying[choice], after[choice] = changed, after_changed
                continue
            length = int(steps[unit, choice])
            on = walk.later(staying[choice : choice + 1], after[choice : choice + 1], length)[0]
            on += paid[choice, length : length + count + 1]
            on -= paid[choice, : count + 1]
            np.minimum(on, changed, out=staying[choice])
            after[choice] = min(after[choice] + length * (step_hours + tail[choice]), after_changed)
    costs = walk.later(staying, after, overhead) + held
    return _from_now_on(costs.min(axis=0))


def _steps_of(units: Floats, overhead_hours: float, step_hours: float) -> Ints:
    """Return the steps of each unit at each choice; 0 if it cannot run there."""
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
    """The time of each step, and the times beyond the last one."""

    clock: Floats
    beyond: Floats

    def later(self, costs: Floats, after: Floats, steps: int) -> Floats:
        """Return a copy of the costs shifted by `steps`; beyond the last step, `after` plus the time."""
        if steps == 0:
            return costs.copy()
        tail = (self.clock[-1] + self.beyond[:steps]) + after[:, None]
        count = len(self.clock)
        return np.concatenate((costs[:, steps:], tail), axis=1) if steps < count else tail[:, -count:]


@dataclass(slots=True, kw_only=True)
class _Changing:
    """The cost of the unit in which the width changes.

    `windows` holds the least price over the flat one in the next 1, 2, 4 ... steps; it is filled on demand.
    """

    windows: list[Floats]
    cheapest: Floats
    flat_rates: Floats
    multiplier: float
    overhead_hours: float
    walk: _Walk
    last_unit: Floats | None = None
    last_classes: tuple[_Class, ...] = ()

    @classmethod
    def of(
        cls, times: JobTimes, least: Floats, tail_rates: Floats, multiplier: float, walk: _Walk
    ) -> _Changing:
        """Return the least prices, so far in windows of one step."""
        by_flat = np.append((least / tail_rates[:, None]).min(axis=0), 1.0)
        return cls(
            windows=[by_flat],
            cheapest=_from_now_on(by_flat),
            flat_rates=tail_rates,
            multiplier=multiplier,
            overhead_hours=times.overhead_hours,
            walk=walk,
        )

    def least(self, hours: Floats, starting: Floats, after: float) -> tuple[Floats, float]:
        """Return the least costs of a change within a unit, from each step on, and beyond the last step.

        `starting` and `after` are the costs of a stint that begins with the next unit.
        """
        step, overhead = float(self.walk.clock[1]), self.overhead_hours
        drifts = overhead < step
        further = 0.0 if drifts else overhead
        clean = _from_now_on(starting)
        found, found_after = np.full_like(starting, np.inf), np.inf
        for of_time in self._classes(hours):
            once = int(of_time.least_hours / step + 1e-9)
            more = int((of_time.least_hours + further) / step + 1e-9)
            worth = self.multiplier * of_time.worth
            # Units that drift from their true times are paid at the least of all later prices.
            worth_more = worth + self.multiplier * further * float(self.flat_rates.min())
            between = self._later(clean, after, more) + worth_more * self.cheapest
            np.minimum(found, between, out=found)
            found_after = min(found_after, after + more * step + worth_more)
            if drifts:
                continue
            long = int(of_time.most_hours / step) + 2
            head = self._later(clean, after, once) + worth * self._within(0, long + MOST_BEHIND)
            begin = int(np.floor((overhead - of_time.most_hours) / step)) - 1
            end = int(np.ceil(overhead / step)) + 2
            begun = _from_now_on(starting + worth * self._within(begin, end - begin))
            tail = self._later(begun, after + worth, once)
            np.minimum(found, head, out=found)
            np.minimum(found, tail, out=found)
            found_after = min(found_after, after + once * step + worth)
        return found, float(found_after)

    def _later(self, costs: Floats, after: float, steps: int) -> Floats:
        """Return the costs shifted by `steps`."""
        (found,) = self.walk.later(costs[None], np.array([after]), steps)
        return np.asarray(found, dtype=np.float64)

    def _classes(self, hours: Floats) -> tuple[_Class, ...]:
        """Return the classes of a unit with these hours at each choice; cached for the last unit."""
        if self.last_unit is None or not np.array_equal(self.last_unit, hours):
            runs = np.isfinite(hours)
            self.last_unit = hours
            self.last_classes = _classes_of(hours[runs], (hours * self.flat_rates)[runs])
        return self.last_classes

    def _within(self, begin: int, steps: int) -> Floats:
        """Return, for each step n, the least price over so many steps from n + begin on."""
        level = max(int(np.log2(steps)), 0)
        while len(self.windows) <= level:
            last = self.windows[-1]
            self.windows.append(np.minimum(last, _shifted(last, 1 << (len(self.windows) - 1))))
        found = self.windows[level]
        return np.minimum(_shifted(found, begin), _shifted(found, begin + steps - (1 << level)))


def _classes_of(hours: Floats, costs: Floats) -> tuple[_Class, ...]:
    """Return the classes of times between some choices; any exchange rate gives a bound on a class's cost."""
    fastest, slowest = float(hours.min()), float(hours.max())
    frugal = max(float(hours[costs.argmin()]), fastest)
    edges = (
        [*np.geomspace(fastest, frugal, CLASSES).tolist(), slowest]
        if frugal > fastest
        else [fastest, slowest]
    )
    rates = np.append(0.0, float(costs.min()) / fastest * np.geomspace(0.01, 100.0, 40))
    least = (costs + rates[:, None] * hours).min(axis=1)
    return tuple(
        _Class(least_hours=begin, most_hours=end, worth=float(max((least - rates * end).max(), 0.0)))
        for begin, end in pairwise(edges)
    )


def _shifted(row: Floats, steps: int) -> Floats:
    """Return the values shifted by `steps`, with the end values beyond the ends."""
    if steps == 0:
        return row
    ends = np.full(min(abs(steps), len(row)), row[-1] if steps > 0 else row[0])
    return np.concatenate((row[steps:], ends) if steps > 0 else (ends, row[:steps]))
