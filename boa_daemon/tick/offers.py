"""What the cloud offers, and which offers are left alone for a while because they were refused.

An offer is an instance type in a zone on a market, at a price. A refusal closes a *scope*: an offer's key, or
a wider one with parts left out or written as `*`: `p4d.24xlarge`, `p4d.24xlarge/*/spot`, `*/us-east-1a`, `*`.
With a number behind it a scope closes only orders of so many nodes that come together or not at all, and of
more: `p4d.24xlarge/us-east-1a/spot/3`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from math import inf, isfinite
from typing import Literal, TypeAlias

from boa_daemon.tick.rests import OFFER, WIDE_OFFER
from policies.errors import InvalidProblem
from policies.model import InstanceType

Market: TypeAlias = Literal["on-demand", "spot", "reserved"]
RefusalKind: TypeAlias = Literal[
    "no-capacity", "quota", "denied", "throttled", "bad-request", "no-price", "busy"
]
"""Why something was not done; a closed list. `busy` is the only one that says nothing about the cloud."""
ExtraKind: TypeAlias = Literal["disk", "address", "requests", "transfer"]
EXTRAS: tuple[ExtraKind, ...] = ("disk", "address", "requests", "transfer")
Extras: TypeAlias = tuple[tuple[str, float], ...]
"""Dollars per hour of a node beside its compute, by kind; each kind once, in the order of `EXTRAS`."""
NO_PRICE_SECONDS = 60.0
"""What has no known price is looked at again after this long: prices are asked for once a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """An instance type that may be rented in a zone on a market.

    `usd_per_hour` is None where the price is not known; it is never taken for zero. The `extras` are part of
    it. `nodes_left` is how many more the quota of its market allows, in all zones together, None where nobody
    knows.
    """

    instance_type: str
    zone: str = ""
    market: Market = "on-demand"
    usd_per_hour: float | None = None
    nodes_left: int | None = None
    extras: Extras = ()

    def __post_init__(self) -> None:
        price = self.usd_per_hour
        if price is not None and not (isfinite(price) and price > 0):
            raise InvalidProblem(f"{self.key}: an offer costs more than nothing, got {price}")

    @property
    def extra_usd_per_hour(self) -> float:
        """What a node costs beside its compute."""
        return sum(usd for _, usd in self.extras)

    @property
    def compute_usd_per_hour(self) -> float | None:
        """What its compute alone costs; None where the price is not known."""
        return None if self.usd_per_hour is None else self.usd_per_hour - self.extra_usd_per_hour

    @property
    def key(self) -> str:
        """The name of the offer: type/zone/market."""
        return f"{self.instance_type}/{self.zone}/{self.market}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cooldown:
    """A scope that is not asked again before `until`, after `times` refusals in a row."""

    until: float
    times: int = 1
    kind: RefusalKind = "no-capacity"


def cooled(
    previous: Cooldown | None,
    *,
    kind: RefusalKind,
    at: float,
    retry_after_seconds: float | None,
    scope: str = "",
) -> Cooldown:
    """Return the cool-down after a refusal: as long as was said, else 3 minutes, doubling up to 30.

    Of a scope that closes wide orders alone it is 10 minutes first.
    """
    times = 1 if previous is None or previous.kind != kind else previous.times + 1
    seconds = retry_after_seconds
    if seconds is None:
        rest = WIDE_OFFER if closes_wide_orders((scope,)) else OFFER
        seconds = rest.seconds(times=times)
    return Cooldown(until=at + seconds, times=times, kind=kind)


def covers(scope: str, key: str, *, together: int = 1) -> bool:
    """Return whether a scope closes the offer of a key to an order of so many nodes together."""
    parts = scope.split("/")
    return together >= _least_closed(parts) and all(
        mine in ("*", its) for mine, its in zip_longest(parts[:3], key.split("/", maxsplit=2), fillvalue="*")
    )


def _least_closed(parts: Sequence[str]) -> int:
    """Return how many nodes together are too many by a scope's parts; 1 where it closes all orders."""
    return int(parts[3]) if len(parts) > 3 else 1


def scope_of_gang(scope: str, nodes: int) -> str:
    """Return what is closed once an offer had not so many nodes together: orders of more than half of them.

    How many there are nobody says, so the next order is for half at most, and one node is tried in its turn.
    """
    return f"{scope}/{nodes // 2 + 1}"


def closing(cooldowns: Mapping[str, Cooldown], key: str, *, now: float, together: int = 1) -> Cooldown | None:
    """Return the cool-down that closes an offer the longest, or None where it is open.

    Open to an order of nodes that come `together` or not at all; of one node, if it does not say how many.
    """
    found = [
        rest
        for scope, rest in cooldowns.items()
        if rest.until > now and covers(scope, key, together=together)
    ]
    return max(found, key=lambda rest: rest.until, default=None)


def offers_of(instance_type: str, offers: Sequence[Offer]) -> Sequence[Offer]:
    """Return the offers of a type; one without zone or price where the cloud names none of any type."""
    if not offers:
        return (Offer(instance_type=instance_type),)
    return [offer for offer in offers if offer.instance_type == instance_type]


def open_offers(
    instance_type: str,
    offers: Sequence[Offer],
    cooldowns: Mapping[str, Cooldown],
    *,
    now: float,
    together: int = 1,
) -> list[Offer]:
    """Return the offers of a type that may be asked for so many nodes together, the cheapest first.

    Where the cloud names prices, one without is not rented: nobody could say what it breaks.
    """
    candidates = (
        offer
        for offer in offers_of(instance_type, offers)
        if (offer.nodes_left is None or offer.nodes_left >= together)
        and (not offers or offer.usd_per_hour is not None)
        and closing(cooldowns, offer.key, now=now, together=together) is None
    )
    return sorted(candidates, key=lambda offer: (offer.usd_per_hour or inf, offer.key))


def room_to_rent(
    instance_type: str, offers: Sequence[Offer], cooldowns: Mapping[str, Cooldown], *, now: float
) -> tuple[float, float]:
    """Return how many nodes of a type may be asked for: in all, and in one order; infinite without a limit.

    The quota of a market is one for all its zones. Where orders of some size are closed, no more are taken to
    be there than the largest that is open.
    """
    by_quota: dict[Market, float] = {}
    by_order: dict[Market, list[float]] = {}
    for offer in open_offers(instance_type, offers, cooldowns, now=now):
        quota = inf if offer.nodes_left is None else float(offer.nodes_left)
        by_quota[offer.market] = max(quota, by_quota.get(offer.market, 0.0))
        most = min((size - 1.0 for size in _closed_sizes(cooldowns, offer.key, now=now)), default=inf)
        by_order.setdefault(offer.market, []).append(min(quota, most))
    in_all = sum(min(by_quota[market], sum(each)) for market, each in by_order.items())
    return in_all, max((most for each in by_order.values() for most in each), default=0.0)


def closes_wide_orders(scopes: Iterable[str]) -> bool:
    """Return whether some scope closes only orders of several nodes together."""
    return any(_least_closed(scope.split("/")) > 1 for scope in scopes)


def _closed_sizes(cooldowns: Mapping[str, Cooldown], key: str, *, now: float) -> Iterator[int]:
    """Yield how many nodes together an offer is closed to."""
    for scope, rest in cooldowns.items():
        size = _least_closed(scope.split("/"))
        if size > 1 and rest.until > now and covers(scope, key, together=size):
            yield size


def closed_until(
    instance_type: str,
    offers: Sequence[Offer],
    cooldowns: Mapping[str, Cooldown],
    *,
    now: float,
    together: int = 1,
) -> Cooldown | None:
    """Return the cool-down that ends first where every offer of a type is closed; None where one is open."""
    if open_offers(instance_type, offers, cooldowns, now=now, together=together):
        return None
    known = offers_of(instance_type, offers)
    rests = [closing(cooldowns, offer.key, now=now, together=together) for offer in known]
    if not any(rests) and any(offer.usd_per_hour is None and offer.nodes_left != 0 for offer in known):
        return Cooldown(until=now + NO_PRICE_SECONDS, kind="no-price")
    return _first(rests)


def _first(cooldowns: Iterable[Cooldown | None]) -> Cooldown:
    """Return the cool-down that ends first; a quota of no nodes has no end of its own."""
    known = [rest for rest in cooldowns if rest is not None]
    return min(known, key=lambda rest: rest.until, default=Cooldown(until=inf, kind="quota"))


def most_usd_per_hour(instance_type: InstanceType, offers: Sequence[Offer]) -> float:
    """Return the most that a node of a type may cost per hour, over the offers that are known."""
    mine = [offer for offer in offers if offer.instance_type == instance_type.name]
    # On the spot market compute may come to cost what it costs on demand, and the extras come on top.
    extra = max((offer.extra_usd_per_hour for offer in mine), default=0.0)
    return max(instance_type.usd_per_hour + extra, *(offer.usd_per_hour or 0.0 for offer in mine), 0.0)


def whole_gangs(gangs: tuple[int, ...], nodes: int) -> tuple[int, ...]:
    """Return the gangs, in order, that fit into so many nodes."""
    kept: list[int] = []
    for size in gangs:
        if sum(kept) + size <= nodes:
            kept.append(size)
    return tuple(kept)
