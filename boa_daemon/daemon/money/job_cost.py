"""What a running job has cost so far."""

from __future__ import annotations

from collections.abc import Mapping

from boa_daemon.store.records import InstanceRecord, JobRecord
from boa_daemon.tick.money.ledger import bill
from boa_daemon.units import MICRO_DOLLARS_PER_DOLLAR, SECONDS_PER_HOUR
from policies.model import NodeId


def cost_of(job: JobRecord, instances: Mapping[NodeId, InstanceRecord], *, until: float) -> int:
    """Return micro-dollars of a running job's GPUs since its start: their share of each node."""
    if job.started_at is None:
        return 0
    total = 0.0
    for slot in job.slots:
        record = instances.get(slot.node)
        if record is None:
            continue
        node = record.node
        if node.prices:
            spent = bill(node, until=until) - bill(node, until=job.started_at)
        else:
            seconds = max(until - job.started_at, 0.0)
            spent = round(seconds * node.usd_per_hour * MICRO_DOLLARS_PER_DOLLAR / SECONDS_PER_HOUR)
        total += spent / node.instance_type.gpus
    return round(total)
