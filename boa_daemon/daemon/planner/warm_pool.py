"""The warm pool of the settings, and its start time: configured, measured or assumed."""

from __future__ import annotations

from boa_daemon.daemon.settings.config import Settings
from boa_daemon.learning.boot_times import BootTimes
from boa_daemon.tick.facts.state import WarmPool

ASSUMED_SHARE = 1.0 / 3.0
"""Assumed start over boot time until starts are measured: disk and driver are there, the rest boots."""


def start_seconds_of(settings: Settings, boot_seconds: float) -> float:
    """Return the configured start time in seconds, else the assumed one."""
    set_to = settings.cloud.start_seconds
    return boot_seconds * ASSUMED_SHARE if set_to is None else set_to


def warm_pool_of(settings: Settings, boot_seconds: float, boots: BootTimes | None) -> WarmPool | None:
    """Return the configured warm pool, or None; `boots` are the measured start times."""
    if not settings.cloud.warm_pool_nodes:
        return None
    assumed = start_seconds_of(settings, boot_seconds)
    seen = (
        assumed if boots is None else boots.started_seconds(settings.cloud.instance_types, otherwise=assumed)
    )
    return WarmPool(nodes=settings.cloud.warm_pool_nodes, start_seconds=seen)
