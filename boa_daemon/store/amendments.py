"""Correct final bills: of nodes, of the jobs that held their GPUs, and of these jobs' teams, all or none.

A price may become known after a node has ended. What was recorded by the old price is corrected by the
difference, so that costs by node, day, job, team and user still add up to the bills.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from sqlalchemy import Connection, update

from boa_daemon.store.purses import add_to_purse, hourly_costs
from boa_daemon.store.records import GenerationRecord, InstanceRecord
from boa_daemon.store.storage import Storage
from boa_daemon.store.tables import GENERATIONS
from boa_daemon.tick.facts.state import NodeState
from boa_daemon.tick.money.ledger import bill, charge_for
from policies.model import NodeId


def amend_bills(storage: Storage, amended: Iterable[tuple[InstanceRecord, NodeState]]) -> int:
    """Replace the bills of ended nodes; `amended` are their records and the nodes as they should be.

    Return the difference in micro-dollars.
    """
    pairs = [(record, node) for record, node in amended if node.ended_at is not None]
    before = {record.node.id: record.node for record, _ in pairs}
    after = {node.id: node for _, node in pairs}
    if not pairs:
        return 0
    with storage.store.database.write() as connection:
        for record, node in pairs:
            storage.queue.save_instance(replace(record, node=node))
        total = sum(storage.store.amend_charge(charge_for(node)) for node in after.values())
        since = min(node.launched_at for node in after.values())
        for usage in storage.queue.usages(since):
            if usage.ended_at is not None and any(slot.node in after for slot in usage.slots):
                _amend_usage(storage, connection, usage, before, after)
    return total


def _amend_usage(
    storage: Storage,
    connection: Connection,
    usage: GenerationRecord,
    before: Mapping[NodeId, NodeState],
    after: Mapping[NodeId, NodeState],
) -> None:
    """Add the difference to what a generation has cost, to its job and to the team of the job."""
    job = storage.queue.job(usage.job)
    more = _cost(usage, after) - _cost(usage, before)
    if job is None or usage.ended_at is None:
        return
    row = (GENERATIONS.c.job == usage.job) & (GENERATIONS.c.generation == usage.generation)
    amount = GENERATIONS.c.micro_dollars
    connection.execute(update(GENERATIONS).where(row).values(micro_dollars=amount + more))
    storage.queue.save(replace(job, micro_dollars=job.micro_dollars + more))
    if job.team:
        was, hours = (hourly_costs(usage, nodes, until=usage.ended_at) for nodes in (before, after))
        add_to_purse(connection, job.team, {hour: hours[hour] - was.get(hour, 0) for hour in hours})


def _cost(usage: GenerationRecord, nodes: Mapping[NodeId, NodeState]) -> int:
    """Return micro-dollars of a generation's GPUs on these nodes."""
    total = 0.0
    for slot in usage.slots:
        node = nodes.get(slot.node)
        if node is not None and usage.ended_at is not None:
            until = min(usage.ended_at, node.ended_at or usage.ended_at)
            spent = bill(node, until=until) - bill(node, until=usage.started_at)
            total += spent / node.instance_type.gpus
    return round(total)
