"""Costs of instances rented outside the daemon, such as image builds: cap checks and bills.

A running daemon lists and bills such an instance itself. When no daemon runs, `enter_bill` bills it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing, suppress
from math import inf

from boa_daemon.daemon.loop.assembly import database_url, open_storage, take_lead
from boa_daemon.daemon.loop.lock import AlreadyRunning, Lock
from boa_daemon.daemon.money.costs import cost_rows
from boa_daemon.daemon.money.site_commitments import site_commitments
from boa_daemon.daemon.money.standing_costs import CLOSED, StandingCosts, charged_until, standing_of
from boa_daemon.daemon.planner.machines_and_classes import machines_of, site_catalog
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.daemon.settings.daemon_paths import daemon_paths, make_folder
from boa_daemon.errors import INFEASIBLE, BoaError
from boa_daemon.store.database_setup import StoreUnusable
from boa_daemon.store.leader import LedElsewhere
from boa_daemon.store.order_log import lowest
from boa_daemon.store.records import InstanceRecord
from boa_daemon.store.storage import Storage
from boa_daemon.tick.facts.limits import Caps, day_of, fixed_usd, month_of
from boa_daemon.tick.facts.state import NodeState
from boa_daemon.tick.money.ledger import bill_within, charge_for
from boa_daemon.units import dollars
from policies.money_text import in_dollars, price_in_dollars


class NoRoom(BoaError):
    """Renting the instance could exceed a cap."""

    exit_code = INFEASIBLE


def check_cap_room(
    settings: Settings,
    usd: float,
    usd_per_hour: float,
    *,
    standing_usd_per_hour: float = 0.0,
    now: float | None = None,
) -> None:
    """Refuse to rent one more instance if its highest possible cost, charged at once, could exceed a cap.

    `usd` is that cost. `standing_usd_per_hour` are standing costs, such as those of images, beyond the ones
    in the settings.

    Raises:
        NoRoom: when a cap leaves no room; the error names the cap and the rest.
    """
    now, budget = time.time() if now is None else now, settings.budget
    standing = budget.standing_usd_per_hour + standing_usd_per_hour
    catalog = site_catalog(settings)
    fixed = site_commitments(settings, tuple(machines_of(settings, catalog).values()), catalog).fixed
    make_folder(daemon_paths(settings).state)
    with closing(open_storage(database_url(settings))) as storage:
        lower = storage.orders.lower_caps
        live = [record.node for record in storage.queue.instances.values() if record.node.ended_at is None]
        running = [node for node in live if node.phase != "stopped"]
        for what, cap, window in (
            ("[budget] usd_per_day_cap", lowest(budget.usd_per_day_cap, lower.get("day")), day_of(now)),
            (
                "[budget] usd_per_month_cap",
                lowest(budget.usd_per_month_cap, lower.get("month")),
                month_of(now),
            ),
        ):
            if cap is None:
                continue
            hours = window.overlap_seconds(charged_until(storage.store), inf) / 3600.0
            meters = sum(bill_within(node, window, until=now) for node in live)
            spent = dollars(storage.store.settled_since(window.begins_at) + meters)
            left = cap - spent - standing * hours - fixed_usd(fixed, window.begins_at, window.ends_at)
            if usd > left:
                raise NoRoom(
                    f"it may cost {in_dollars(usd)}, and {what} "
                    f"{price_in_dollars(cap)} leaves {in_dollars(max(left, 0.0))}"
                )
    most, ceiling = budget.max_instances, budget.usd_per_hour_ceiling
    if most is not None and len(running) >= most:
        raise NoRoom(f"{len(running)} instances run, and [budget] max_instances is {most}")
    beside = standing + Caps(fixed=fixed).beside_usd_per_hour(now)
    rate = sum(node.usd_per_hour for node in live) + beside + usd_per_hour
    if ceiling is not None and rate > ceiling:
        raise NoRoom(
            f"{in_dollars(rate)}/hour would run, and [budget] "
            f"usd_per_hour_ceiling is {price_in_dollars(ceiling)}"
        )


def enter_bill(settings: Settings, node: NodeState) -> bool:
    """Store the bill of an instance that has ended; return whether a running daemon does so instead."""

    def write(storage: Storage) -> None:
        storage.queue.save_instance(InstanceRecord(node=node, last_seen_at=node.ended_at or 0.0))
        storage.store.record_charge(charge_for(node))

    return _does_a_daemon(settings, write)


def billed_usd(settings: Settings, *, now: float | None = None) -> dict[str, float] | None:
    """Return billed dollars by kind of cost; None when there is no readable database."""
    if settings.daemon.database is None and not daemon_paths(settings).database.exists():
        return None
    try:
        with closing(open_storage(database_url(settings))) as storage:
            rows = cost_rows(storage.queue, by="kind", since=0.0, now=time.time() if now is None else now)
    except StoreUnusable:
        return None
    return {str(row["name"]): round(float(row["usd"]), 6) for row in rows}


def close_standing(settings: Settings, *, now: float | None = None) -> None:
    """Charge standing costs up to now, and record that later hours are not charged."""
    standing = standing_of(settings.budget)

    def write(storage: Storage) -> None:
        StandingCosts(storage.store).charge(standing, now=time.time() if now is None else now)
        storage.store.set_flag(CLOSED, True)

    if settings.daemon.database is not None or daemon_paths(settings).database.exists():
        with suppress(StoreUnusable):
            _does_a_daemon(settings, write)


def _does_a_daemon(settings: Settings, write: Callable[[Storage], None]) -> bool:
    """Call `write` with the storage, unless a running daemon does the job; return whether one runs."""
    there = daemon_paths(settings)
    make_folder(there.state)
    lock = Lock(there.state)
    try:
        lock.take()
    except AlreadyRunning:
        return True
    try:
        with closing(open_storage(database_url(settings), lead=take_lead)) as storage:
            write(storage)
    except LedElsewhere:
        return True
    finally:
        lock.give_back()
    return False
