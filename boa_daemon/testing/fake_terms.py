"""The nouns of the fake cloud: how it behaves, what it knows of an instance, and what its rules read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Protocol

from boa_daemon.inputs.catalog import Catalog
from boa_daemon.testing.fake_answers import Answer


@dataclass(slots=True)
class Block:
    """A Capacity Block: so many of a type in a zone between two instants, for a fee; `bought` times."""

    instance_type: str
    zone: str
    instances: int
    begins_at: float
    ends_at: float
    usd: float
    bought: int = 0


@dataclass(slots=True)
class Lifetime:
    """What the cloud itself knows of an instance; `ended_at` is when it left `running` for good, None before.

    While it is stopped, `stopped_at` says since when; `runs` are its earlier ones, from launch to stop.
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
    runs: list[tuple[float, float]] = field(default_factory=list)

    @property
    def is_running(self) -> bool:
        """Whether it takes stock and quota, and costs more than its disk."""
        return self.ended_at is None and self.stopped_at is None


@dataclass(slots=True)
class Terms:
    """How this cloud behaves. Stock and quotas that are not named are unlimited."""

    boot_seconds: float = 0.0
    shutdown_seconds: float = 0.0
    invisible_seconds: float = 0.0
    warning_seconds: float = 120.0
    stock: dict[tuple[str, str, str], int] = field(default_factory=dict)
    vcpu_quotas: dict[str, int] = field(default_factory=dict)
    spot_paths: dict[tuple[str, str], list[tuple[float, float]]] = field(default_factory=dict)
    spot_fraction: float = 0.0
    """Spot price of types without a path, as a part of the list price; nothing: no spot price is known."""
    list_prices: dict[str, float] = field(default_factory=dict)
    side_prices: dict[str, dict[str, float]] = field(default_factory=dict)
    """What the Pricing API says of a region beside instances, by the names of `SidePrices`."""
    free_addresses: dict[str, int] = field(default_factory=dict)
    reservations: dict[str, tuple[str, str, int]] = field(default_factory=dict)
    blocks: dict[str, Block] = field(default_factory=dict)
    """Capacity Blocks by offering; one that is bought becomes `cr-` and the name of its offering."""
    event_queue: str = ""
    enforces_cluster: str = ""
    throttles: bool = False
    network_nodes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By instance, what is above it in the network; types without it answer with nothing."""
    image_seconds: float = 0.0
    """How long an image is pending."""


class CloudFacts(Protocol):
    """What the rules of a launch and the services beside EC2 read of the cloud."""

    clock: Callable[[], float]
    terms: Terms
    catalog: Catalog

    def history(self) -> Sequence[Lifetime]:
        """Return every instance that ever was, in order of launch."""
        ...

    def spot_price(self, name: str, zone: str) -> float:
        """Return the spot price of a type in a zone, now."""
        ...

    def error(self, code: str, service: str = "ec2") -> Answer:
        """Return a planned error in the wording of a service."""
        ...

    def backend(self, region: str) -> Any:
        """Return moto's EC2 of a region."""
        ...
