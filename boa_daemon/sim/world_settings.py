"""Settings of a simulated world: boots, zones, stock, quotas, spot, failures, checkpoints, wrong beliefs.

Everything is off unless set: then there is one zone without limits, nothing fails and beliefs are true. The
defaults of features that are switched on, and their sources, are in `docs/explanation/simulator.md`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from types import MappingProxyType
from typing import TypeVar

from boa_daemon.errors import InputError
from boa_daemon.tick.facts.offers import Market

NORMAL_P99 = 2.3263478740408408
"""The 99 % quantile of the standard normal distribution."""
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Boot:
    """The time of a node from launch to ready, in seconds: lognormal, or constant if p99 is the median."""

    median_seconds: float
    p99_seconds: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.median_seconds <= self.p99_seconds < math.inf:
            raise InputError(
                f"a boot needs 0 <= median <= p99 s; got {self.median_seconds:g} and {self.p99_seconds:g}"
            )
        if self.median_seconds == 0.0 < self.p99_seconds:
            raise InputError("a boot with a median of 0 s needs a p99 of 0 s")

    @classmethod
    def constant(cls, seconds: float) -> Boot:
        """Return a boot that always takes the same time."""
        return cls(median_seconds=seconds, p99_seconds=seconds)

    @property
    def sigma(self) -> float:
        """The standard deviation of the logarithm."""
        if self.median_seconds == self.p99_seconds:
            return 0.0
        return math.log(self.p99_seconds / self.median_seconds) / NORMAL_P99

    @property
    def mean_seconds(self) -> float:
        """The mean of the distribution."""
        return self.median_seconds * math.exp(0.5 * self.sigma**2)

    def draw(self, rng: Random) -> float:
        """Return the boot time of one node."""
        sigma = self.sigma
        return self.median_seconds if sigma == 0.0 else self.median_seconds * math.exp(rng.gauss(0.0, sigma))


AWS_BOOTS: Mapping[str, Boot] = MappingProxyType(
    {
        "p": Boot(median_seconds=360.0, p99_seconds=900.0),
        "g": Boot(median_seconds=180.0, p99_seconds=900.0),
    }
)
"""By the first letter of the instance type: no figures are published; issues report 5 to 15 minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stock:
    """How many nodes of a type a zone has: `nodes` while in stock, none while out of stock.

    Times in and out of stock are exponential. A `path` of (seconds from the start, nodes) replaces them.
    `nodes` None is no limit.
    """

    nodes: int | None = None
    mean_in_hours: float = math.inf
    mean_out_hours: float = 1.0
    path: tuple[tuple[float, int], ...] = ()

    @property
    def most_nodes(self) -> int | None:
        """The most nodes that there ever are; None without a limit."""
        return max(nodes for _, nodes in self.path) if self.path else self.nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """A spot market: the price of a node as a share of the on-demand price, and when it is taken back.

    The logarithm of the price varies hourly around that of `price_fraction` with `price_volatility` and
    returns to it within `price_memory_hours`; the price never exceeds on demand. `prices` of (seconds,
    fraction) replace this. Each node is taken back after an exponential time, and when the stock falls below
    the held nodes; a fraction `unannounced_fraction` of the interruptions comes without notice.
    """

    price_fraction: float = 0.3
    price_volatility: float = 0.2
    price_memory_hours: float = 24.0
    prices: tuple[tuple[float, float], ...] = ()
    mean_interruption_hours: float = 12.0
    notice_seconds: float = 120.0
    unannounced_fraction: float = 0.0
    stock: Stock = field(default_factory=Stock)

    @property
    def mean_listed_fraction(self) -> float:
        """The mean of `prices` over time; the last one holds as long as they do on average."""
        times = [at for at, _ in self.prices]
        spans = [after - at for at, after in pairwise(times)]
        spans.append(math.fsum(spans) / len(spans) if spans else 1.0)
        paid = math.fsum(span * part for span, (_, part) in zip(spans, self.prices, strict=True))
        return min(1.0, paid / math.fsum(spans))


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """What goes wrong: fractions of requests, nodes and boots; mean hours between failures.

    Half of the requests with a lost answer were carried out. A short grant gives part of the requested nodes.
    A node that fails to boot is ended by the cloud and billed. A slow node works at `slow_speed` of its
    speed.
    """

    boot_failure_fraction: float = 0.0
    throttled_fraction: float = 0.0
    lost_answer_fraction: float = 0.0
    short_grant_fraction: float = 0.0
    slow_node_fraction: float = 0.0
    slow_speed: float = 0.7
    mean_node_failure_hours: float = math.inf
    mean_job_failure_hours: float = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """A job saves its progress after each `every_seconds` of work, which takes `cost_seconds` of its GPUs.

    Work since then is lost when the job or one of its nodes fails; an ordered stop saves.
    """

    every_seconds: float = 600.0
    cost_seconds: float = 0.0

    def __post_init__(self) -> None:
        if not (self.every_seconds > 0.0 and self.cost_seconds >= 0.0):
            raise InputError(
                f"checkpoints need every_seconds > 0 and cost_seconds >= 0; got {self.every_seconds:g} and "
                f"{self.cost_seconds:g}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongBeliefs:
    """What the policy believes, as factors on the truth; by class, "" for the others.

    A speed-up s is believed to be s(least) (s / s(least)) ** exponent: above 1 too good, below 1 too bad.
    `size_spread` is the standard deviation of the logarithm of each job's own error. Without `tells_scales` a
    job does not say how large it is within its class: its scale is reported as 1. `boot_seconds` is the
    believed time of every boot, if it is not the truth.
    """

    rates: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    sizes: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    speedup_exponents: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    size_spread: float = 0.0
    tells_scales: bool = True
    boot_seconds: float | None = None

    def __post_init__(self) -> None:
        if self.boot_seconds is not None and not 0.0 <= self.boot_seconds < math.inf:
            raise InputError(f"a believed boot time must be 0 seconds or more; got {self.boot_seconds:g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """A tier of the network: each part of the one above has `groups` of these, each with one uplink."""

    name: str
    groups: int
    gigabits_per_second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldSettings:
    """A world. Mappings are by instance type, or GPU type; "" stands for all others.

    Without `boots` every boot takes the run's constant. A quota is a number of nodes over all zones and
    markets. With `spot` there is a spot market beside on demand, or instead of it if not `on_demand`.
    `topology` are the tiers of the network within a zone, the widest first; without tiers all nodes are
    equally near. `bursts` moves the arrivals of the same jobs together, hour by hour: the added variance of
    an hour's rate over its square.
    """

    zones: tuple[str, ...] = ()
    boots: Mapping[str, Boot] = field(default_factory=lambda: MappingProxyType({}))
    stock: Mapping[str, Stock] = field(default_factory=lambda: MappingProxyType({}))
    zone_stock: Mapping[str, Mapping[str, Stock]] = field(default_factory=lambda: MappingProxyType({}))
    quotas: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    spot: Spot | None = None
    on_demand: bool = True
    faults: Faults = field(default_factory=Faults)
    checkpoints: Checkpoints | None = None
    beliefs: WrongBeliefs = field(default_factory=WrongBeliefs)
    topology: tuple[Tier, ...] = ()
    bursts: float = 0.0

    @property
    def markets(self) -> tuple[Market, ...]:
        """The existing markets."""
        spot: tuple[Market, ...] = () if self.spot is None else ("spot",)
        return (*spot, "on-demand") if self.on_demand else spot

    @property
    def mean_price_fraction(self) -> float:
        """The mean price of a node as a share of the on-demand price; spot is asked first."""
        if self.spot is None:
            return 1.0
        return self.spot.mean_listed_fraction if self.spot.prices else min(1.0, self.spot.price_fraction)

    @property
    def names_offers(self) -> bool:
        """Whether the cloud says in which zones and on which markets it rents."""
        return bool(self.zones or self.quotas) or self.spot is not None

    def stock_in(self, zone: str, *names: str) -> Stock:
        """Return the stock on demand of a type in a zone."""
        return of_type(self.zone_stock.get(zone, {}), *names) or of_type(self.stock, *names) or Stock()

    def most_nodes(self, *names: str) -> int | None:
        """Return the most nodes of a type that one zone and the quota ever allow; None without a limit."""
        stocks = [self.stock_in(zone, *names).most_nodes for zone in self.zones or ("",)]
        spot = () if self.spot is None else (self.spot.stock.most_nodes,)
        by_market = [*(stocks if self.on_demand else ()), *spot]
        in_stock = None if None in by_market else max(most for most in by_market if most is not None)
        limits = [most for most in (in_stock, of_type(self.quotas, *names)) if most is not None]
        return min(limits, default=None)


def of_type(by_name: Mapping[str, _Value], *names: str) -> _Value | None:
    """Return the value of the first name that has one; else the value for all others, if any."""
    return next((by_name[name] for name in (*names, "") if name in by_name), None)
