"""Standing costs, which arise without any node: each hour is charged in full when it begins.

A NAT gateway is billed by the begun hour, and images by their largest size, so a charge is never too small.
It counts in every sum as a node's bill does: spend, caps, days, kinds. When the price rises within an hour,
the rise is charged in addition. Hours without a running daemon are charged later at the price known then,
except after the stack was removed.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal, TypeAlias, get_args

from boa_daemon.daemon.settings.config import BudgetSettings
from boa_daemon.store.sql import SqlStore
from boa_daemon.tick.facts.limits import DAY_SECONDS, hour_of
from boa_daemon.tick.facts.offers import Extras
from boa_daemon.tick.facts.ports import Charge
from boa_daemon.units import SECONDS_PER_HOUR, micro_dollars

StandingKind: TypeAlias = Literal["gateway", "images", "reservations"]
STANDING: tuple[StandingKind, ...] = get_args(StandingKind)
CLOSED = "is_standing_closed"
"""Flag of a database whose stack was removed: costs until then are charged, and none after."""


def standing_of(budget: BudgetSettings) -> Extras:
    """Return the standing costs per hour in the settings, by kind."""
    return (("gateway", budget.standing_usd_per_hour),) if budget.standing_usd_per_hour else ()


def charged_until(store: SqlStore) -> float:
    """Return until when standing costs are charged; 0 when none are."""
    newest = [found[0] for kind in STANDING if (found := store.newest_charges(kind)) is not None]
    return max(newest) + SECONDS_PER_HOUR if newest else 0.0


class StandingCosts:
    """Charges standing costs hour by hour; reads the database once, then remembers its charges."""

    def __init__(self, store: SqlStore) -> None:
        self._store = store
        self._newest: dict[str, tuple[float, int, int]] = {}

    def charge(self, standing: Extras, *, now: float) -> None:
        """Charge every begun hour that is not charged yet, and a price rise within the current hour."""
        current = hour_of(now).begins_at
        for kind, usd_per_hour in standing:
            self._charge(kind, micro_dollars(usd_per_hour), current)
        if standing and self._store.charged_until <= current and self._store.flag(CLOSED):
            self._store.set_flag(CLOSED, False)
        self._store.charged_until = current + SECONDS_PER_HOUR

    def _charge(self, kind: str, amount: int, current: float) -> None:
        """Charge one kind up to the current hour, at `amount` micro-dollars an hour."""
        newest = self._newest.get(kind) or self._store.newest_charges(kind)
        if newest is None or (newest[0] < current and self._store.flag(CLOSED)):
            # The database knows of no earlier costs.
            newest = (current - SECONDS_PER_HOUR, 0, 0)
        hour, charged, times = newest
        if hour >= current and amount > charged:
            self._append(kind, hour, amount - charged, times)
            newest = (hour, amount, times + 1)
        while hour < current:
            hour += SECONDS_PER_HOUR
            self._append(kind, hour, amount, 0)
            newest = (hour, amount, 1)
        self._newest[kind] = newest

    def _append(self, kind: str, begins_at: float, amount: int, number: int) -> None:
        """Record the charge of an hour, under a name that prevents charging it twice."""
        hour = f"{datetime.fromtimestamp(begins_at, UTC):%Y-%m-%dT%HZ}"
        self._store.record_charge(
            Charge(
                node=f"{kind} {hour} +{number}" if number else f"{kind} {hour}",
                instance_type=kind,
                started_at=begins_at,
                ended_at=begins_at + SECONDS_PER_HOUR,
                micro_dollars=amount,
                days=((int(begins_at // DAY_SECONDS), amount),),
            )
        )
