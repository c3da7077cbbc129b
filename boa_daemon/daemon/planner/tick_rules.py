"""Derive the tick's rules from the settings: caps, limits against flapping, how long idle nodes stay."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from boa_daemon.daemon.settings.config import Settings
from boa_daemon.store.order_log import lowest
from boa_daemon.tick.facts.limits import ALLOWED_TICKS, Caps, FixedCost, Steady
from boa_daemon.tick.facts.state import Rules, Transfer, WarmPool
from policies.model import InstanceType


def rules_of(
    settings: Settings,
    machines: Mapping[str, InstanceType],
    *,
    warm_pool: WarmPool | None,
    standing_usd_per_hour: float,
    fixed: tuple[FixedCost, ...],
    transfers: Mapping[str, Transfer],
    lower_caps: Mapping[str, float] = MappingProxyType({}),
    late_tick_seconds: float = 0.0,
) -> Rules:
    """Return the rules; `standing_usd_per_hour` and `fixed` are what the site costs without a node.

    `transfers` are, by GPU type, what it takes to bring a checkpoint to a far machine. `lower_caps` are
    dollars per ``day`` and ``month`` that were ordered; they hold where they are below the settings'.
    `late_tick_seconds` is how far apart ticks have come lately; caps also allow for some lateness unseen.
    """
    budget, steady, daemon = settings.budget, settings.steady, settings.daemon
    return Rules(
        instance_types=machines,
        idle_hold_seconds=daemon.idle_hold_seconds,
        longest_hold_seconds=daemon.idle_hold_seconds,
        max_nodes=budget.max_instances,
        warm_pool=warm_pool,
        caps=Caps(
            usd_per_day=lowest(budget.usd_per_day_cap, lower_caps.get("day")),
            usd_per_month=lowest(budget.usd_per_month_cap, lower_caps.get("month")),
            usd_per_hour=budget.usd_per_hour_ceiling,
            instances=budget.max_instances,
            standing_usd_per_hour=standing_usd_per_hour,
            fixed=fixed,
            checkpoint_seconds=daemon.checkpoint_seconds,
            tick_seconds=daemon.tick_seconds,
            late_tick_seconds=max(ALLOWED_TICKS * daemon.tick_seconds, late_tick_seconds),
        ),
        steady=Steady(**steady.model_dump()),
        transfers=transfers,
    )
