"""The warm pool that the settings ask for, and how long its starts take: as set, as seen, or as assumed."""

from __future__ import annotations

from boa_daemon.daemon.config import Settings
from boa_daemon.learning.boot_times import BootTimes
from boa_daemon.tick.state import WarmPool

ASSUMED_SHARE = 1.0 / 3.0
"""A start takes this part of a boot until starts were seen: disk and driver are there, the rest boots."""


def start_seconds_of(settings: Settings, boot_seconds: float) -> float:
    """Return how long a start takes by the settings, else as assumed."""
    set_to = settings.cloud.start_seconds
    return boot_seconds * ASSUMED_SHARE if set_to is None else set_to


def warm_pool_of(settings: Settings, boot_seconds: float, boots: BootTimes | None) -> WarmPool | None:
    """Return the pool of the settings; None where they ask for none. `boots` is what was seen."""
    if not settings.cloud.warm_pool_nodes:
        return None
    assumed = start_seconds_of(settings, boot_seconds)
    seen = (
        assumed if boots is None else boots.started_seconds(settings.cloud.instance_types, otherwise=assumed)
    )
    return WarmPool(nodes=settings.cloud.warm_pool_nodes, start_seconds=seen)
