"""The cheapest way through the phases of a job while prices vary: a lower bound by dynamic programming.

A job does its phases in order, in stints: a stint holds one width and begins with `overhead` hours without
work (the start-up, or a rescale where that is shorter). The programme walks over units of work (phases, in
equal parts where long) and over steps of time, and rounds everything down:

* A stint begins at the step before its true begin, and takes at most its true time: the steps of its units
  are differences of rounded-down sums, too long by one step at most, and its overhead is rounded down and
  shortened by one step more.
* Each step costs the least price of itself and of the two steps beside it, as it may stand for either.
* A stint may end anywhere; the unit in which it ends takes its least time and its least price, one apart from
  the other.

    symbol   here        meaning
    V_ik(n)  staying     least end of the job plus what it pays, from step n on, holding k before unit i
    S_i(n)   starting    the same, when a stint begins at step n
    O_i(n)   waiting     the same, holding nothing: the least S_i from n on

Cost: O(units x choices x steps) in time; a byte for each unit, choice and step in memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policies.speedup import Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """Steps of time in the shortest overhead and in all, and units of work in an overhead's time and in all.

    Coarse or fine, the bound holds; a finer one is higher.
    """

    steps_per_overhead: float
    most_steps: int
    units_per_overhead: float
    most_units: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTimes:
    """The hours of each phase of a job at each choice (a GPU type and a width), shape (phases, choices).

    `overhead_hours` are those that each stint loses.
    """

    hours: Floats
    overhead_hours: float

    def in_units(self, resolution: Resolution) -> Floats:
        """Return the hours of each unit at each choice, shape (units, choices)."""
        fastest = self.hours.min(axis=1)
        most = resolution.most_units * fastest / fastest.sum()
        wanted = most
        if self.overhead_hours > 0.0:
            wanted = resolution.units_per_overhead * fastest / self.overhead_hours
        parts = np.maximum(np.floor(np.minimum(wanted, most)).astype(int), 1)
        return np.repeat(self.hours / parts[:, None], parts, axis=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """A schedule: in the order of time, the steps at which a choice is held, and which."""

    begins: list[int]
    ends: list[int]
    choices: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class StintPaths:
    """Least costs from every step on, in hours since step 0, and what was chosen on the way."""

    waiting: Floats
    next_start: NDArray[np.int32]
    started: NDArray[np.int8]
    stays: NDArray[np.bool_]
    steps: Ints
    overhead_steps: int
    fewest: Ints

    def from_step(self, step: int) -> Path:
        """Return a schedule that reaches the least cost from a step on, as far as the steps go."""
        path = Path(begins=[], ends=[], choices=[])
        units, last, unit = len(self.steps), len(self.waiting) - 1, 0
        at = step
        while unit < units + 1 and at < last:
            at = int(self.next_start[unit, at])
            choice = int(self.started[unit, at])
            begin, at = at, at + self.overhead_steps
            while unit < units and at < last and self.stays[unit, choice, at]:
                at += int(self.steps[unit, choice])
                unit += 1
            path.begins.append(begin)
            path.ends.append(min(at, last))
            path.choices.append(choice)
            if unit >= units:
                break
            at, unit = at + int(self.fewest[unit]), unit + 1
        return path


def stint_paths(
    times: JobTimes,
    prices: Floats,
    tail_rates: Floats,
    multiplier: float,
    *,
    step_hours: float,
    resolution: Resolution,
    keeps_choices: bool = True,
) -> StintPaths:
    """Return the least costs of a job: the hours of its end plus `multiplier` times what it pays.

    `prices` is what a choice costs per hour in each step, shape (choices, steps); `tail_rates` from then on.
    Without `keeps_choices` only the costs are kept, for less memory.
    """
    units = times.in_units(resolution)
    choices, count = prices.shape
    overhead = max(int(times.overhead_hours / step_hours + 1e-9) - 1, 0)
    sums = np.where(np.isfinite(units), units, 0.0).cumsum(axis=0)
    reached = np.floor(np.pad(sums, ((1, 0), (0, 0))) / step_hours + 1e-9).astype(np.int64)
    steps = np.diff(reached, axis=0)
    if times.overhead_hours < step_hours:
        # Without an overhead to shorten, every unit is rounded down by itself.
        steps = np.floor(np.where(np.isfinite(units), units, 0.0) / step_hours).astype(np.int64)
    least = prices.copy()
    least[:, 1:] = np.minimum(least[:, 1:], prices[:, :-1])
    least[:, :-1] = np.minimum(least[:, :-1], prices[:, 1:])
    rates = multiplier * step_hours * least
    paid = np.pad(np.cumsum(rates, axis=1), ((0, 0), (1, 0)))
    tail = multiplier * step_hours * tail_rates
    clock = step_hours * np.arange(count + 1)
    longest = max(int(steps.max()), overhead, 1)
    # What holding a choice from step 0 on has cost, beyond the last step too.
    paid = np.concatenate((paid, paid[:, -1:] + tail[:, None] * np.arange(1, longest + 1)), axis=1)
    number = len(units)
    kept = number if keeps_choices else 1
    stays = np.zeros((kept, choices, count + 1), dtype=np.bool_)
    started = np.zeros((kept + 1, count + 1), dtype=np.int8)
    next_start = np.zeros((kept + 1, count + 1), dtype=np.int32)
    staying = np.broadcast_to(clock, (choices, count + 1)).copy()
    beyond = np.zeros(choices)
    steps_beyond: Floats = np.asarray(step_hours * np.arange(1, longest + 1), dtype=np.float64)

    def begun(unit: int) -> tuple[Floats, float]:
        """Return the least cost of holding nothing before a unit; after the last step, less the time."""
        wide = _later(staying, beyond, overhead, clock, steps_beyond)
        costs = wide + paid[:, overhead : overhead + count + 1] - paid[:, : count + 1]
        starting = costs.min(axis=0)
        waiting = np.minimum.accumulate(starting[::-1])[::-1]
        if keeps_choices:
            started[unit] = costs.argmin(axis=0)
            at = np.where(starting <= waiting, np.arange(count + 1), count)
            next_start[unit] = np.minimum.accumulate(at[::-1])[::-1]
        return waiting, float((beyond + overhead * (step_hours + tail)).min())

    fewest_of = np.maximum(np.floor(units.min(axis=1) / step_hours + 1e-9).astype(np.int64) - 1, 0)
    # The least price from two steps before on: what is left of a unit may be done at any time after.
    cheapest = np.concatenate((least, tail_rates[:, None]), axis=1)
    cheapest[:, 1:] = np.minimum(cheapest[:, 1:], cheapest[:, :-1])
    cheapest = np.minimum.accumulate(cheapest[:, ::-1], axis=1)[:, ::-1]
    waiting, waiting_beyond = begun(number)
    for unit in range(number - 1, -1, -1):
        before, before_beyond = staying, beyond
        staying, beyond = np.empty_like(before), np.empty_like(beyond)
        # To change within the unit: its least time, and its least price at any time from now on.
        runs = np.isfinite(units[unit])
        fewest = int(fewest_of[unit])
        spent = multiplier * (cheapest[runs] * units[unit, runs, None]).min(axis=0)
        waiting = _later(waiting[None], np.array([waiting_beyond]), fewest, clock, steps_beyond)[0] + spent
        waiting_beyond += fewest * step_hours + float(spent[-1])
        for choice in range(choices):
            length = int(steps[unit, choice])
            if not np.isfinite(units[unit, choice]):
                staying[choice], beyond[choice] = waiting, waiting_beyond
                continue
            on = _later(
                before[choice : choice + 1], before_beyond[choice : choice + 1], length, clock, steps_beyond
            )
            on = on[0] + paid[choice, length : length + count + 1] - paid[choice, : count + 1]
            if keeps_choices:
                np.less_equal(on, waiting, out=stays[unit, choice])
            np.minimum(on, waiting, out=staying[choice])
            on_beyond = before_beyond[choice] + length * (step_hours + tail[choice])
            beyond[choice] = min(on_beyond, waiting_beyond)
        waiting, waiting_beyond = begun(unit)
    return StintPaths(
        waiting=waiting,
        next_start=next_start,
        started=started,
        stays=stays,
        steps=steps,
        overhead_steps=overhead,
        fewest=fewest_of,
    )


def _later(costs: Floats, beyond: Floats, steps: int, clock: Floats, steps_beyond: Floats) -> Floats:
    """Return costs so many steps later; beyond the last step they are the time and a constant."""
    if steps == 0:
        return costs
    tail = (clock[-1] + steps_beyond[:steps]) + beyond[:, None]
    return np.concatenate((costs[:, steps:], tail), axis=1) if steps < len(clock) else tail[:, -len(clock) :]
