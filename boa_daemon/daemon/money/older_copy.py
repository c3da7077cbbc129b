"""What was spent after the copy was made from which a database was restored.

A restored copy knows no bill of a node that began and ended since. The state of the last tick says what was
spent by then; what the copy lacks is charged at once, on the days on which it was spent, so that caps hold.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from boa_daemon.store.records import InstanceRecord
from boa_daemon.store.sql import SqlStore
from boa_daemon.tick.facts.limits import DAY_SECONDS, Window, day_of, month_of
from boa_daemon.tick.facts.ports import Charge
from boa_daemon.tick.facts.state import ClusterState, NodeState
from boa_daemon.tick.money.ledger import bill_within, charge_for
from policies.model import NodeId

RESTORED = "restored"
"""The kind of such a charge, where nodes have their instance type."""


def charge_what_a_copy_lacks(
    store: SqlStore, last: ClusterState, listed: Collection[NodeState], recorded: Collection[InstanceRecord]
) -> int:
    """Charge the difference between the spend of the last tick and that of the database; return it.

    `listed` are the nodes that the cloud lists now, at the prices that are counted: those that ended are
    billed, the others have meters. `recorded` are the nodes that the copy believes alive. Both sides are
    compared at the instant of the last tick. The answer is in micro-dollars.
    """
    believed = {record.node.id: record for record in recorded if record.node.ended_at is None}
    nodes = [node for node in listed if not _was_over(node, last, believed)]
    nodes += _gone(last, {node.id for node in nodes}, believed)
    # Bills of nodes that ended after the last tick are no part of what was spent by then.
    store.reopen_charges([node.id for node in nodes])

    def lacks(window: Window, settled: int) -> int:
        before = settled + _metered(last.nodes.values(), window, last.now)
        now = store.settled_since(window.begins_at) + _metered(nodes, window, last.now)
        return max(before - now, 0)

    day, month = day_of(last.now), month_of(last.now)
    of_day = lacks(day, last.settled_today_micro_dollars)
    of_month = max(lacks(month, last.settled_month_micro_dollars), of_day)
    always = Window(begins_at=0.0, ends_at=month.ends_at)
    before = last.settled_micro_dollars + _metered(last.nodes.values(), always, last.now)
    whole = max(before - store.settled_micro_dollars() - _metered(nodes, always, last.now), of_month)
    for node in nodes:
        if node.ended_at is not None:
            store.record_charge(charge_for(node))
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


def _was_over(node: NodeState, last: ClusterState, believed: Collection[NodeId]) -> bool:
    """Whether a node that the cloud misses only now, because the copy believes it alive, ended before."""
    return (
        node.ended_at is not None
        and node.ended_at > last.now
        and node.id in believed
        and node.id not in last.nodes
    )


def _gone(
    last: ClusterState, listed: Collection[NodeId], believed: Mapping[NodeId, InstanceRecord]
) -> Iterator[NodeState]:
    """Yield the nodes that the copy believes alive and the cloud does not list, with their ends.

    Those that the last tick did not know either had ended by then: what they cost after they were last seen
    is in that tick's sums.
    """
    for name, record in believed.items():
        if name not in listed:
            ended_at = last.now if name in last.nodes else record.last_seen_at
            yield replace(record.node, phase="terminated", ended_at=max(ended_at, record.node.launched_at))


def _metered(nodes: Collection[NodeState], window: Window, until: float) -> int:
    """Return what nodes cost up to an instant within a window, in micro-dollars."""
    return sum(
        bill_within(node, window, until=until if node.ended_at is None else min(node.ended_at, until))
        for node in nodes
        if node.launched_at <= until
    )
