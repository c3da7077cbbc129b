"""List prices over time: what EC2 charges a running instance on demand changes on the date of the new price.

An instance is charged the price of its launch until a later list price is in effect. Each price that becomes
known is a step: since an instant, so many dollars per hour. A price list of AWS says that instant itself. A
price file or the catalogue says what somebody knew on a day; a change of it counts from when it is noticed.

What is known goes into a document of each type, for the next process: a step without a date, or one that a
later step has replaced in AWS's list, could not be learnt again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, replace
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


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownPrices:
    """What is known of a type: the price noted `last`, AWS's own last one and when it came, and the steps."""

    last: ListPrice | None = None
    live: ListPrice | None = None
    live_at: float = 0.0
    steps: tuple[PriceStep, ...] = ()

    def and_step(self, step: PriceStep) -> KnownPrices:
        """Return this with one more step; what a file says of the past is said once."""
        if not step.is_firm and step in self.steps:
            return self
        return replace(self, steps=(*self.steps, step))


class PriceSteps:
    """Collects the steps of each type; several threads may use it. `version` grows with each new step."""

    def __init__(self) -> None:
        self.version = 0
        self._known: dict[str, KnownPrices] = {}
        self._lock = Lock()

    def note(self, name: str, price: ListPrice, *, now: float) -> tuple[ListPrice, PriceStep] | None:
        """Note the price of a type as known now; return the price before and the step if it has changed."""
        with self._lock:
            known = self._known.get(name, KnownPrices())
            last = known.last
            if price == last:
                return None
            if last is not None and last.is_live and not price.is_live:
                # A file stands in for AWS, as after a restart without the price list: what runs goes on.
                last = None
            known = replace(known, last=price)
            if price.is_live:
                known = replace(known, live=price, live_at=now)
            self._known[name] = known
            if last is None:
                since = now if price.since is None and price.is_live else price.since
                if since is not None:
                    step = PriceStep(since=since, usd_per_hour=price.usd_per_hour, is_firm=price.is_live)
                    self._take(name, known.and_step(step))
                return None
            if is_same_price(last.usd_per_hour, price.usd_per_hour):
                return None
            # A list that says another price than before for the same time does not say since when.
            is_dated = price.is_live and price.since is not None
            is_newer = not last.is_live or last.since is None or last.since < (price.since or 0.0)
            since = price.since if is_dated and is_newer and price.since is not None else now
            step = PriceStep(since=since, usd_per_hour=price.usd_per_hour)
            self._take(name, known.and_step(step))
            return last, step

    def _take(self, name: str, known: KnownPrices) -> None:
        self._known[name] = known
        self.version += 1

    def of(self, name: str) -> Sequence[PriceStep]:
        """Return the steps of a type in the order in which they became known."""
        return self._known.get(name, KnownPrices()).steps

    def last_of_aws(self, name: str) -> tuple[ListPrice, float] | None:
        """Return the last price of a type that AWS itself said, and when; None if it never did."""
        known = self._known.get(name, KnownPrices())
        return None if known.live is None else (known.live, known.live_at)

    def documents(self) -> dict[str, str]:
        """Return what is known of each type as a text."""
        with self._lock:
            return {name: json.dumps(astuple(known)) for name, known in self._known.items()}

    def restore(self, documents: Mapping[str, str]) -> None:
        """Take over what an earlier process knew; a text that cannot be read is as if there were none."""
        with self._lock:
            for name, text in documents.items():
                with suppress(ValueError, TypeError):
                    self._take(name, _known_prices(text))


def _known_prices(text: str) -> KnownPrices:
    """Read what is known of a type.

    Raises:
        ValueError: when the text is no such document.
        TypeError: likewise.
    """
    last, live, live_at, steps = json.loads(text)
    return KnownPrices(
        last=_list_price(last),
        live=_list_price(live),
        live_at=float(live_at),
        steps=tuple(
            PriceStep(since=float(since), usd_per_hour=float(usd), is_firm=bool(is_firm))
            for since, usd, is_firm in steps
        ),
    )


def _list_price(row: Sequence[float | bool | None] | None) -> ListPrice | None:
    if row is None:
        return None
    usd, since, is_live = row
    if usd is None:
        raise ValueError("a price has an amount")
    return ListPrice(usd_per_hour=usd, since=None if since is None else float(since), is_live=bool(is_live))


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


def after_end(
    prices: PricePath, corrected: Callable[[PricePath], PricePath], *, ended_at: float
) -> PricePath:
    """Return what an instance that has ended was charged over time, once that is `corrected`.

    It stays free from the instant on at which it shut down. One that was free altogether stays so.
    """
    paid = tuple(each for each in prices if each[1] > 0.0)
    free = tuple(each for each in prices if each[1] <= 0.0)
    until = free[0][0] if free else ended_at
    if not paid or prices[: len(paid)] != paid:
        return prices
    path = corrected(paid)
    return (path[0], *(each for each in path[1:] if each[0] < until), *free)


def joined(before: PricePath, later: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """Return a market's prices over time: those known `before`, and those of `later` from its begin on."""
    if not later:
        return before
    return (*(each for each in before if each[0] < later[0][0]), *later)


def is_same_price(one: float, other: float) -> bool:
    """Return whether two prices differ by no more than what a tag rounds off."""
    return isclose(one, other, rel_tol=_AS_IN_TAGS)


def day_of(as_of: str) -> float | None:
    """Return the begin of an ISO date in UTC; None for other text."""
    try:
        return datetime.fromisoformat(as_of[:10]).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None
