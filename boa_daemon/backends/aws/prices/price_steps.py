"""List prices over time: what EC2 charges a running instance on demand changes on the date of the new price.

An instance is charged the price of its launch until a later list price is in effect. Each price that becomes
known is a step: since an instant, so many dollars per hour. A price list of AWS says that instant itself. A
price file or the catalogue says what somebody knew on a day; a change of it counts from when it is noticed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import isclose
from threading import Lock
from typing import TypeAlias

_AS_IN_TAGS = 1e-5
"""Relative difference from which on two prices differ: tags hold six digits."""
PricePath: TypeAlias = tuple[tuple[float, float], ...]
"""Pairs (instant, USD per hour from then on), in order of time; the first is that of the launch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPrice:
    """A price on demand in USD per hour, `since` an instant if that is known; `is_live` from AWS itself."""

    usd_per_hour: float
    since: float | None = None
    is_live: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceStep:
    """A list price since an instant. One that is not `is_firm` says nothing of what was known later."""

    since: float
    usd_per_hour: float
    is_firm: bool = True


class PriceSteps:
    """Collects the steps of each type; several threads may use it."""

    def __init__(self) -> None:
        self._last: dict[str, ListPrice] = {}
        self._steps: dict[str, tuple[PriceStep, ...]] = {}
        self._lock = Lock()

    def note(self, name: str, price: ListPrice, *, now: float) -> tuple[ListPrice, PriceStep] | None:
        """Note the price of a type as known now; return the price before and the step if it has changed."""
        with self._lock:
            last = self._last.get(name)
            if price == last:
                return None
            self._last[name] = price
            if last is None:
                since = now if price.since is None and price.is_live else price.since
                if since is not None:
                    step = PriceStep(since=since, usd_per_hour=price.usd_per_hour, is_firm=price.is_live)
                    self._steps[name] = (step,)
                return None
            if is_same_price(last.usd_per_hour, price.usd_per_hour):
                return None
            # A list that says another price than before for the same time does not say since when.
            is_dated = price.is_live and price.since is not None
            is_newer = not last.is_live or last.since is None or last.since < (price.since or 0.0)
            since = price.since if is_dated and is_newer and price.since is not None else now
            step = PriceStep(since=since, usd_per_hour=price.usd_per_hour)
            self._steps[name] = (*self._steps.get(name, ()), step)
            return last, step

    def of(self, name: str) -> Sequence[PriceStep]:
        """Return the steps of a type in the order in which they became known."""
        return self._steps.get(name, ())


def after_steps(path: PricePath, steps: Sequence[PriceStep]) -> PricePath:
    """Return what an instance is charged over time, once the steps are known; its first pair stays.

    A price that was in effect at the launch already follows the first pair at the same instant: the instance
    was launched before the price was known.
    """
    launched_at = path[0][0]
    for step in steps:
        begin = max(step.since, launched_at)
        if is_same_price(path[-1][1], step.usd_per_hour):
            continue
        if step.since <= path[-1][0] and not step.is_firm:
            continue
        path = (path[0], *(each for each in path[1:] if each[0] < begin))
        if not is_same_price(path[-1][1], step.usd_per_hour):
            path = (*path, (begin, step.usd_per_hour))
    return path


def is_same_price(one: float, other: float) -> bool:
    """Return whether two prices differ by no more than what a tag rounds off."""
    return isclose(one, other, rel_tol=_AS_IN_TAGS)


def day_of(as_of: str) -> float | None:
    """Return the begin of an ISO date in UTC; None for other text."""
    try:
        return datetime.fromisoformat(as_of[:10]).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None
