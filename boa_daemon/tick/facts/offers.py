"""The cloud's offers, and which of them are not asked for a while because they were refused.

An offer is an instance type in a zone on a market, at a price. A refusal closes a *scope*: the key of an
offer, or a wider scope with parts left out or written as `*`: `p4d.24xlarge`, `p4d.24xlarge/*/spot`,
`*/us-east-1a`, `*`. A number at the end closes only orders of at least that many nodes together (all or
nothing): `p4d.24xlarge/us-east-1a/spot/3`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest
from math import inf, isfinite
from typing import Literal, NamedTuple, TypeAlias

from boa_daemon.tick.facts.rests import OFFER, WIDE_OFFER
from policies.errors import InvalidProblem
from policies.model import InstanceType

Market: TypeAlias = Literal["on-demand", "spot", "reserved"]
RefusalKind: TypeAlias = Literal[
    "no-capacity", "quota", "denied", "throttled", "bad-request", "no-price", "busy"
]
"""Why something was not done; a closed list. Only `busy` says nothing about the cloud."""
OF_PEOPLE: frozenset[RefusalKind] = frozenset({"quota", "denied", "bad-request", "no-price"})
"""Refusals that stay until a person or the cloud's owner has changed something."""
ExtraKind: TypeAlias = Literal["disk", "address", "requests", "transfer"]
EXTRAS: tuple[ExtraKind, ...] = ("disk", "address", "requests", "transfer")
Extras: TypeAlias = tuple[tuple[str, float], ...]
"""A node's costs beside compute, in USD/hour by kind; each kind once, in the order of `EXTRAS`."""
ANY = "*"
"""What a scope has in the place of a part that it leaves open."""
NO_PRICE_SECONDS = 60.0
"""How soon an offer without a known price is tried again: prices are refreshed once a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """An instance type that may be rented in a zone on a market.

    `usd_per_hour` includes the `extras`; None if the price is unknown, which is never taken for zero.
    `nodes_left` is how many more nodes may be had, None if unknown: offers of one market and `pool` share it,
    such as the zones that share a region's quota. A reservation is a pool of its own.
    """

    instance_type: str
    zone: str = ""
    market: Market = "on-demand"
    usd_per_hour: float | None = None
    nodes_left: int | None = None
    extras: Extras = ()
    pool: str = ""

    def __post_init__(self) -> None:
        price = self.usd_per_hour
        if price is not None and not (isfinite(price) and price > 0):
            raise InvalidProblem(f"{self.key}: an offer costs more than nothing, got {price}")

    @property
    def extra_usd_per_hour(self) -> float:
        """A node's cost per hour beside compute."""
        return sum(usd for _, usd in self.extras)

    @property
    def compute_usd_per_hour(self) -> float | None:
        """A node's cost per hour for compute alone; None if the price is unknown."""
        return None if self.usd_per_hour is None else self.usd_per_hour - self.extra_usd_per_hour

    @property
    def key(self) -> str:
        """The name of the offer: type/zone/market, and after a colon the reservation if it is one."""
        own = f":{self.pool}" if self.market == "reserved" and self.pool else ""
        return f"{self.instance_type}/{self.zone}/{self.market}{own}"


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
    """Return the cool-down after a refusal: as long as the cloud said, else 3 minutes, doubling up to 30.

    For a scope that closes only wide orders it begins with 10 minutes.
    """
    times = 1 if previous is None or previous.kind != kind else previous.times + 1
    seconds = retry_after_seconds
    if seconds is None:
        rest = WIDE_OFFER if closes_wide_orders((scope,)) else OFFER
        seconds = rest.seconds(times=times)
    return Cooldown(until=at + seconds, times=times, kind=kind)


class Scope(NamedTuple):
    """The parts of a scope or of an offer's key: the instance type, then the others as far as it has them."""

    instance_type: str
    others: tuple[str, ...] = ()

    @property
    def market(self) -> str:
        """The market, with the reservation if it is one; `*` if the scope has none."""
        return self.others[1] if len(self.others) > 1 else ANY

    @property
    def least_nodes(self) -> int:
        """The smallest order that the scope closes; 1 if it closes all orders."""
        return int(self.others[2]) if len(self.others) > 2 else 1

    def of_type(self, instance_type: str) -> Scope:
        """Return the same scope of another instance type."""
        return Scope(instance_type, self.others)

    def __str__(self) -> str:
        """Return the scope as records and answers have it."""
        return "/".join((self.instance_type, *self.others))


@lru_cache(maxsize=4_096)
def scope_of(text: str) -> Scope:
    """Return the parts of a scope or of an offer's key: `str(scope_of(text)) == text`."""
    instance_type, *others = text.split("/")
    return Scope(instance_type, tuple(others))


def covers(scope: str, key: str, *, together: int = 1) -> bool:
    """Return whether a scope closes the offer with this key to an order of `together` nodes."""
    closed = scope_of(scope)
    return together >= closed.least_nodes and all(
        mine in (ANY, its) or its.startswith(f"{mine}:")
        for mine, its in zip_longest(
            (closed.instance_type, *closed.others[:2]), key.split("/", maxsplit=2), fillvalue=ANY
        )
    )


def scope_of_gang(scope: str, nodes: int) -> str:
    """Return what to close once an offer refused so many nodes together: orders of more than half of them.

    The cloud does not say how many it has, so the next order is for at most half, and eventually for one
    node.
    """
    return f"{scope}/{nodes // 2 + 1}"


def closing(cooldowns: Mapping[str, Cooldown], key: str, *, now: float, together: int = 1) -> Cooldown | None:
    """Return the cool-down that closes an offer the longest to an order of `together` nodes; None if open."""
    found = [
        rest
        for scope, rest in cooldowns.items()
        if rest.until > now and covers(scope, key, together=together)
    ]
    return max(found, key=lambda rest: rest.until, default=None)


@lru_cache(maxsize=64)
def any_offer(instance_type: str) -> Offer:
    """Return the offer of a type without zone and price; cached because every launch asks for it."""
    return Offer(instance_type=instance_type)


def offers_of(instance_type: str, offers: Sequence[Offer]) -> Sequence[Offer]:
    """Return the offers of a type; one without zone and price if the cloud names no offers at all."""
    if not offers:
        return (any_offer(instance_type),)
    return [offer for offer in offers if offer.instance_type == instance_type]


def open_offers(
    instance_type: str,
    offers: Sequence[Offer],
    cooldowns: Mapping[str, Cooldown],
    *,
    now: float,
    together: int = 1,
) -> list[Offer]:
    """Return the offers of a type that may be asked for so many nodes together, cheapest first.

    If the cloud names prices, an offer without a price is not rented, because it might break a cap.
    """
    if not offers and not cooldowns:
        return [any_offer(instance_type)]
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
    """Return how many nodes of a type may be requested in all, and in one order; infinite without a limit.

    All offers of a pool share its quota. If orders of some size are closed, the largest open order is taken
    as all that the offer has.
    """
    by_quota: dict[tuple[Market, str], float] = {}
    by_order: dict[tuple[Market, str], list[float]] = {}
    for offer in open_offers(instance_type, offers, cooldowns, now=now):
        quota = inf if offer.nodes_left is None else float(offer.nodes_left)
        pool = (offer.market, offer.pool)
        by_quota[pool] = max(quota, by_quota.get(pool, 0.0))
        most = min((size - 1.0 for size in _closed_sizes(cooldowns, offer.key, now=now)), default=inf)
        by_order.setdefault(pool, []).append(min(quota, most))
    in_all = sum(min(by_quota[pool], sum(each)) for pool, each in by_order.items())
    return in_all, max((most for each in by_order.values() for most in each), default=0.0)


def closes_wide_orders(scopes: Iterable[str]) -> bool:
    """Return whether any scope closes only orders of several nodes together."""
    return any(scope_of(scope).least_nodes > 1 for scope in scopes)


def _closed_sizes(cooldowns: Mapping[str, Cooldown], key: str, *, now: float) -> Iterator[int]:
    """Yield the sizes of orders that are closed for an offer."""
    for scope, rest in cooldowns.items():
        size = scope_of(scope).least_nodes
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
    """Return the cool-down that ends first if every offer of a type is closed; None if one is open."""
    if open_offers(instance_type, offers, cooldowns, now=now, together=together):
        return None
    known = offers_of(instance_type, offers)
    rests = [closing(cooldowns, offer.key, now=now, together=together) for offer in known]
    if not any(rests) and any(offer.usd_per_hour is None and offer.nodes_left != 0 for offer in known):
        return Cooldown(until=now + NO_PRICE_SECONDS, kind="no-price")
    return _first(rests)


def _first(cooldowns: Iterable[Cooldown | None]) -> Cooldown:
    """Return the cool-down that ends first; without any, a used-up quota, which has no end."""
    known = [rest for rest in cooldowns if rest is not None]
    return min(known, key=lambda rest: rest.until, default=Cooldown(until=inf, kind="quota"))


def most_usd_per_hour(instance_type: InstanceType, offers: Sequence[Offer]) -> float:
    """Return the most that a node of a type may cost per hour, over all known offers."""
    mine = [offer for offer in offers if offer.instance_type == instance_type.name]
    # The spot price of compute may rise to the on-demand price; extras are added to it.
    extra = max((offer.extra_usd_per_hour for offer in mine), default=0.0)
    return max(instance_type.usd_per_hour + extra, *(offer.usd_per_hour or 0.0 for offer in mine), 0.0)


def whole_gangs(gangs: tuple[int, ...], nodes: int) -> tuple[int, ...]:
    """Return the gangs, in order, that fit into so many nodes."""
    kept: list[int] = []
    for size in gangs:
        if sum(kept) + size <= nodes:
            kept.append(size)
    return tuple(kept)
