"""Data types of the fake cloud: its behaviour, its record of an instance, and what its rules read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Protocol

from boa_daemon.inputs.catalog import Catalog
from boa_daemon.testing.fake_answers import Answer


@dataclass(slots=True)
class Block:
    """A Capacity Block: instances of a type in a zone between two instants; sold `bought` times."""

    instance_type: str
    zone: str
    instances: int
    begins_at: float
    ends_at: float
    usd: float
    bought: int = 0


@dataclass(slots=True)
class Lifetime:
    """The cloud's record of an instance; `ended_at` is when it left `running` for good, None before.

    `stopped_at` is when it was stopped, None if it is not; `runs` are earlier runs, from launch to stop. An
    instance that `fails_with` a reason ends while it is pending, one that `fails_to_start` is stopped again.
    """

    id: str
    region: str
    instance_type: str
    zone: str
    market: str
    tags: dict[str, str]
    launched_at: float
    max_usd_per_hour: float = inf
    warned_at: float | None = None
    ended_at: float | None = None
    reason: str = ""
    is_protected: bool = False
    profile: str = ""
    is_reachable: bool = True
    stopped_at: float | None = None
    fails_with: str = ""
    fails_to_start: str = ""
    runs: list[tuple[float, float]] = field(default_factory=list)

    @property
    def is_running(self) -> bool:
        """Whether the instance uses stock and quota, and costs more than its disk."""
        return self.ended_at is None and self.stopped_at is None


@dataclass(slots=True)
class Terms:
    """The behaviour of the fake cloud. Stock and quotas without an entry are unlimited."""

    boot_seconds: float = 0.0
    shutdown_seconds: float = 0.0
    invisible_seconds: float = 0.0
    warning_seconds: float = 120.0
    stock: dict[tuple[str, str, str], int] = field(default_factory=dict)
    vcpu_quotas: dict[str, int] = field(default_factory=dict)
    spot_paths: dict[tuple[str, str], list[tuple[float, float]]] = field(default_factory=dict)
    spot_fraction: float = 0.0
    """Spot price of types without a path, as a fraction of the list price; 0: no spot price is known."""
    list_prices: dict[str, float] = field(default_factory=dict)
    dated_prices: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """Terms of list prices by type: since when, and USD per hour; of other types the price has no date."""
    side_prices: dict[str, dict[str, float]] = field(default_factory=dict)
    """Prices besides instances in the Pricing API by region, by the field names of `SidePrices`."""
    free_addresses: dict[str, int] = field(default_factory=dict)
    reservations: dict[str, tuple[str, str, int]] = field(default_factory=dict)
    capacity: dict[str, Capacity] = field(default_factory=dict)
    """More capacity reservations, by id: several of a type, with tags, ends and nodes of others."""
    blocks: dict[str, Block] = field(default_factory=dict)
    """Capacity Blocks by offering; a sold one becomes the reservation `cr-` and the offering's name."""
    event_queue: str = ""
    enforces_cluster: str = ""
    required_tags: tuple[str, ...] = ()
    """Keys that an organisation's policy wants on everything that a launch makes, with a value."""
    throttles: bool = False
    network_nodes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Network nodes above each instance; instances without an entry have no answer."""
    allows: tuple[str, str, str] | None = None
    """The one (type, zone, market) whose launch a policy allows; None: all."""
    launch_failures: dict[str, str] = field(default_factory=dict)
    """Types whose launches are accepted and end before they run, with EC2's reason for that."""
    failing_seconds: float = 10.0
    """Seconds from the launch to the end of an instance that fails."""
    impaired: dict[str, str] = field(default_factory=dict)
    """Instances with a failed status check: `system`, `instance` or `attachedEbs`."""
    events: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Instances with a scheduled event: its code, and when it is due."""
    image_seconds: float = 0.0
    """Seconds that an image is pending."""


@dataclass(slots=True)
class Capacity:
    """A capacity reservation; others than us use `used_by_others` of its nodes."""

    instance_type: str
    zone: str
    instances: int
    tags: dict[str, str] = field(default_factory=dict)
    used_by_others: int = 0
    ends_at: float | None = None
    is_cancelled: bool = False


class CloudFacts(Protocol):
    """The part of the cloud that the launch rules and the other services read."""

    clock: Callable[[], float]
    terms: Terms
    catalog: Catalog

    def history(self) -> Sequence[Lifetime]:
        """Return every instance since the start, in order of launch."""
        ...

    def spot_price(self, name: str, zone: str) -> float:
        """Return the current spot price of a type in a zone."""
        ...

    def error(self, code: str, service: str = "ec2") -> Answer:
        """Return a planned error in the format of a service."""
        ...

    def backend(self, region: str) -> Any:
        """Return moto's EC2 of a region."""
        ...
