"""What a site costs without any node, in the ledger: each hour is charged in full as it begins.

A NAT gateway is billed by the begun hour, and images by what they hold at the most, so a charge of an hour is
never too small and stands in every sum as a node's bill does: spend, caps, days, kinds. Where the price rises
within an hour, the rise is charged on top. Hours in which no daemon ran cost as much, and are made up for at
the price that is known now; after the stack was taken away they are not.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal, TypeAlias, get_args

from boa_daemon.daemon.config import BudgetSettings
from boa_daemon.store.sql import SqlStore
from boa_daemon.tick.limits import DAY_SECONDS, hour_of
from boa_daemon.tick.offers import Extras
from boa_daemon.tick.ports import Charge
from boa_daemon.units import SECONDS_PER_HOUR, micro_dollars

StandingKind: TypeAlias = Literal["gateway", "images"]
STANDING: tuple[StandingKind, ...] = get_args(StandingKind)
CLOSED = "is_standing_closed"
"""The flag of books whose stack was taken away: what stood until then is charged, and nothing after it."""


def standing_of(budget: BudgetSettings) -> Extras:
    """Return what the settings say that the site costs per hour without any node."""
    return (("gateway", budget.standing_usd_per_hour),) if budget.standing_usd_per_hour else ()


def charged_until(store: SqlStore) -> float:
    """Return until when the books hold what stands; 0 where they hold none of it."""
    newest = [found[0] for kind in STANDING if (found := store.newest_charges(kind)) is not None]
    return max(newest) + SECONDS_PER_HOUR if newest else 0.0


class StandingCosts:
    """Charges what stands, hour by hour; asks the books once, and remembers what it has charged."""

    def __init__(self, store: SqlStore) -> None:
        self._store = store
        self._newest: dict[str, tuple[float, int, int]] = {}

    def charge(self, standing: Extras, *, now: float) -> None:
        """Charge every hour that has begun and is not charged yet, and what the current one became dearer."""
        current = hour_of(now).begins_at
        for kind, usd_per_hour in standing:
            self._charge(kind, micro_dollars(usd_per_hour), current)
        if standing and self._store.charged_until <= current and self._store.flag(CLOSED):
            self._store.set_flag(CLOSED, False)
        self._store.charged_until = current + SECONDS_PER_HOUR

    def _charge(self, kind: str, amount: int, current: float) -> None:
        """Charge one kind up to the current hour at so many micro-dollars an hour."""
        newest = self._newest.get(kind) or self._store.newest_charges(kind)
        if newest is None or (newest[0] < current and self._store.flag(CLOSED)):
            # Nothing stood before, as far as these books know.
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
        """Append the charge of an hour; the same one is never appended twice."""
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
