"""Step functions of time that no run changes: stock, and prices on the spot market.

A function is drawn only as far as it is read, from its own seed, so two runs of the same world see the same
one.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator
from itertools import count
from random import Random
from typing import Generic, TypeVar

from boa_daemon.sim.world_settings import Spot, Stock
from boa_daemon.units import SECONDS_PER_HOUR

Value = TypeVar("Value")
_Steps = Iterator[tuple[float, Value]]


class StepFunction(Generic[Value]):
    """A step function of time, from steps (instant, value) in order; the first also holds before it."""

    __slots__ = ("_ends_at", "_instants", "_steps", "_values")

    def __init__(self, steps: _Steps[Value]) -> None:
        self._steps = steps
        self._instants: list[float] = []
        self._values: list[Value] = []
        self._ends_at = -math.inf

    def at(self, instant: float) -> Value:
        """Return the value at an instant."""
        return self._values[self.index_at(instant)]

    def index_at(self, instant: float) -> int:
        """Return the number of the step that holds at an instant."""
        self._draw_until(instant)
        return max(0, bisect_right(self._instants, instant) - 1)

    def next_change(self, instant: float) -> float:
        """Return when the value changes next; infinity if never."""
        number = self.index_at(instant) + 1
        if number == len(self._instants):
            self._draw_one()
        return self._instants[number] if number < len(self._instants) else math.inf

    def steps_from(self, begin: float, end: float) -> tuple[tuple[float, Value], ...]:
        """Return the steps that hold between two instants; the first begins at `begin`."""
        first, last = self.index_at(begin), self.index_at(end)
        later = zip(self._instants[first + 1 : last + 1], self._values[first + 1 : last + 1], strict=True)
        return ((begin, self._values[first]), *later)

    def _draw_until(self, instant: float) -> None:
        """Draw steps until one begins after the instant."""
        while self._ends_at <= instant:
            self._draw_one()

    def _draw_one(self) -> None:
        """Draw one more step; after the last, the value stays for ever."""
        step = next(self._steps, None)
        if step is None:
            self._ends_at = math.inf
            return
        self._ends_at = step[0]
        self._instants.append(step[0])
        self._values.append(step[1])


def stock_path(stock: Stock, seed: str, *, start: float) -> StepFunction[float]:
    """Return the number of available nodes from `start` on; infinity without a limit."""
    if stock.path:
        steps: _Steps[float] = ((start + at, float(nodes)) for at, nodes in stock.path)
    elif math.isinf(stock.mean_in_hours):
        steps = iter(((start, _nodes(stock)),))
    else:
        steps = _in_and_out(stock, Random(seed), start)
    return StepFunction(steps)


def price_path(spot: Spot, usd_per_hour: float, seed: str, *, start: float) -> StepFunction[float]:
    """Return the spot price of a type in a zone, dollars per hour, from `start` on."""
    if spot.prices:
        return StepFunction((start + at, fraction * usd_per_hour) for at, fraction in spot.prices)
    return StepFunction((at, part * usd_per_hour) for at, part in _wandering(spot, Random(seed), start))


def _nodes(stock: Stock) -> float:
    """Return the nodes while in stock."""
    return math.inf if stock.nodes is None else float(stock.nodes)


def _in_and_out(stock: Stock, rng: Random, start: float) -> _Steps[float]:
    """Yield the times in and out of stock; the start is a random instant of the process."""
    share_in = stock.mean_in_hours / (stock.mean_in_hours + stock.mean_out_hours)
    is_in, at = rng.random() < share_in, start
    while True:
        yield at, _nodes(stock) if is_in else 0.0
        mean_hours = stock.mean_in_hours if is_in else stock.mean_out_hours
        at += rng.expovariate(1.0) * mean_hours * SECONDS_PER_HOUR
        is_in = not is_in


def _wandering(spot: Spot, rng: Random, start: float) -> _Steps[float]:
    """Yield hourly prices as shares of the on-demand price: an Ornstein-Uhlenbeck logarithm, at most 1."""
    middle = math.log(spot.price_fraction)
    keeps = math.exp(-1.0 / spot.price_memory_hours)
    shock = spot.price_volatility * math.sqrt(1.0 - keeps**2)
    wander = rng.gauss(0.0, spot.price_volatility)
    for hour in count():
        yield start + hour * SECONDS_PER_HOUR, min(1.0, math.exp(middle + wander))
        wander = keeps * wander + rng.gauss(0.0, shock)
