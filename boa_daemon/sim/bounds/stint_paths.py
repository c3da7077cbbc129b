"""A near-cheapest way through the phases of a job at varying prices, used by the search for prices.

A job does its phases in order, in stints: a stint holds one width and begins with `overhead` hours without
work. The programme walks over units of work (phases, long ones in equal parts) and over steps of time, rounds
to the nearest step, and changes widths only between units. Its result is near the optimum but is not a bound;
`boa_daemon/sim/bounds/stint_costs.py` computes a bound.

Cost: O(units x choices x steps) in time; a byte for each unit, choice and step in memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policies.speedup import Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """Time steps per shortest overhead and in all, and units of work per overhead time and in all.

    The bound holds at any resolution; a finer one gives a higher bound.
    """

    steps_per_overhead: float
    most_steps: int
    units_per_overhead: float
    most_units: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTimes:
    """The hours of each phase of a job at each choice (a GPU type and a width), shape (phases, choices).

    `overhead_hours` is lost by each stint.
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
class Stints:
    """The stints of several jobs, in no order: the choice held, and the first and last step of each."""

    choices: Ints
    begins: Ints
    ends: Ints


def near_paths(
    times: JobTimes,
    prices: Floats,
    tail_rates: Floats,
    multiplier: float,
    first_steps: Ints,
    *,
    step_hours: float,
    resolution: Resolution,
) -> tuple[Floats, Stints]:
    """Return each job's end in hours plus payments, from its first step on, and the stints of all jobs.

    `prices` is the cost of a choice per hour in each step, shape (choices, steps); `tail_rates` is the cost
    after that.
    """
    units = times.in_units(resolution)
    number, (choices, count) = len(units), prices.shape
    overhead = round(times.overhead_hours / step_hours)
    sums = np.pad(np.where(np.isfinite(units), units, 0.0).cumsum(axis=0), ((1, 0), (0, 0)))
    reached = np.rint(sums / step_hours).astype(np.int64)
    steps = reached[1:] - reached[:-1]
    longest = max(int(steps.max()), overhead, 1)
    # Beyond the last step the tail's prices hold at a single step, far from any decision.
    rates = (
        multiplier * step_hours * np.concatenate((prices, np.repeat(tail_rates[:, None], longest, 1)), axis=1)
    )
    paid = np.pad(np.cumsum(rates, axis=1), ((0, 0), (1, 0)))
    clock = step_hours * np.arange(count + 1)
    at = np.minimum(np.arange(count + 1) + np.arange(longest + 1)[:, None], count)
    over = step_hours * (np.arange(count + 1) + np.arange(longest + 1)[:, None] - at)
    staying = np.broadcast_to(clock, (choices, count + 1)).copy()
    stays = np.zeros((number, choices, count + 1), dtype=np.bool_)
    started = np.zeros((number, count + 1), dtype=np.int16)
    next_start = np.zeros((number, count + 1), dtype=np.int32)
    clean = clock
    for unit in range(number - 1, -1, -1):
        runs = np.isfinite(units[unit])
        for choice in range(choices):
            if not runs[choice]:
                # A job that holds this choice begins another stint before this unit.
                staying[choice] = np.inf
                continue
            length = int(steps[unit, choice])
            on = staying[choice, at[length]] + over[length]
            on += paid[choice, length : length + count + 1]
            on -= paid[choice, : count + 1]
            staying[choice] = on
        costs = staying[:, at[overhead]] + over[overhead]
        costs += paid[:, overhead : overhead + count + 1]
        costs -= paid[:, : count + 1]
        started[unit] = costs.argmin(axis=0)
        beginning = costs.min(axis=0)
        clean = np.minimum.accumulate(beginning[::-1])[::-1]
        now = np.where(beginning <= clean, np.arange(count + 1), count)
        next_start[unit] = np.minimum.accumulate(now[::-1])[::-1]
        stays[unit] = staying <= clean
        np.minimum(staying, clean, out=staying)
    walk = _Walk(overhead=overhead, steps=steps, stays=stays, started=started, next_start=next_start)
    return clean[first_steps], walk.followed(first_steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Walk:
    """The best decisions from each unit and step on: whether to keep a choice, and what to begin otherwise.

    Shapes: steps (units, choices), stays (units, choices, steps), started and next_start (units, steps).
    """

    overhead: int
    steps: Ints
    stays: NDArray[np.bool_]
    started: NDArray[np.int16]
    next_start: NDArray[np.int32]

    def followed(self, first_steps: Ints) -> Stints:
        """Return the stints of the jobs that begin at these steps, computed together."""
        number, last = len(self.steps), self.next_start.shape[1] - 1
        unit, step = np.zeros(len(first_steps), dtype=np.int64), first_steps.copy()
        held = np.full(len(first_steps), -1)
        found: list[tuple[Ints, Ints, Ints]] = []
        while len(unit):
            changes = (held < 0) | ~self.stays[unit, held, step]
            begin = np.where(changes, self.next_start[unit, step], step)
            held = np.where(changes, self.started[unit, begin], held)
            end = np.minimum(begin + np.where(changes, self.overhead, 0) + self.steps[unit, held], last)
            found.append((held, begin, end))
            is_on = unit + 1 < number
            unit, step, held = unit[is_on] + 1, end[is_on], held[is_on]
        choices, begins, ends = (np.concatenate([part[n] for part in found]) for n in range(3))
        return Stints(choices=choices, begins=begins, ends=ends)
