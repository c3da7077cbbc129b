"""What was spent after the copy was made from which a database was restored.

A restored copy knows no bill of a node that began and ended since. The state of the last tick says what was
spent by then; what the copy lacks is charged at once, on the days on which it was spent, so that caps hold.
"""

from __future__ import annotations

from collections.abc import Collection

from boa_daemon.store.sql import SqlStore
from boa_daemon.tick.facts.limits import DAY_SECONDS, Window, day_of, month_of
from boa_daemon.tick.facts.ports import Charge
from boa_daemon.tick.facts.state import ClusterState, NodeState
from boa_daemon.tick.money.ledger import bill, bill_within, charge_for

RESTORED = "restored"
"""The kind of such a charge, where nodes have their instance type."""


def charge_what_a_copy_lacks(store: SqlStore, last: ClusterState, listed: Collection[NodeState]) -> int:
    """Charge the difference between the spend of the last tick and that of the database; return it.

    `listed` are the nodes that the cloud lists now: those that ended are billed, the others have meters. The
    answer is in micro-dollars.
    """
    live = [node for node in listed if node.ended_at is None]
    for node in listed:
        if node.ended_at is not None:
            store.record_charge(charge_for(node))
    store.reopen_charges([node.id for node in live])

    def lacks(window: Window, settled: int) -> int:
        before = settled + _metered(last.nodes.values(), window, last.now)
        now = store.settled_since(window.begins_at) + _metered(live, window, last.now)
        return max(before - now, 0)

    day, month = day_of(last.now), month_of(last.now)
    of_day = lacks(day, last.settled_today_micro_dollars)
    of_month = max(lacks(month, last.settled_month_micro_dollars), of_day)
    before = last.settled_micro_dollars + sum(bill(node, until=last.now) for node in last.nodes.values())
    now = store.settled_micro_dollars() + sum(
        bill(node, until=last.now) for node in live if node.launched_at <= last.now
    )
    whole = max(before - now, of_month)
    if not whole:
        return 0
    first_of_month = int(month.begins_at // DAY_SECONDS)
    parts = {first_of_month - 1: whole - of_month}
    parts[first_of_month] = parts.get(first_of_month, 0) + of_month - of_day
    today = int(day.begins_at // DAY_SECONDS)
    parts[today] = parts.get(today, 0) + of_day
    store.record_charge(
        Charge(
            node=f"{RESTORED} t{last.tick}",
            instance_type=RESTORED,
            started_at=day.begins_at,
            ended_at=last.now,
            micro_dollars=whole,
            days=tuple((number, part) for number, part in sorted(parts.items()) if part),
        )
    )
    return whole


def _metered(nodes: Collection[NodeState], window: Window, until: float) -> int:
    """Return what nodes cost up to an instant within a window, in micro-dollars."""
    return sum(bill_within(node, window, until=until) for node in nodes if node.launched_at <= until)
