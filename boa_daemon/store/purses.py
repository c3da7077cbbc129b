"""Spending of teams by the hour, added up when GPUs are released."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import ceil

from sqlalchemy import Connection, select

from boa_daemon.store.database import Database
from boa_daemon.store.records import GenerationRecord, JobRecord
from boa_daemon.store.sql import put
from boa_daemon.store.tables import PURSES
from boa_daemon.tick.facts.limits import Window
from boa_daemon.tick.facts.state import NodeState
from boa_daemon.tick.money.ledger import bill_within
from boa_daemon.units import SECONDS_PER_HOUR
from policies.model import NodeId


def hourly_costs(
    job: JobRecord | GenerationRecord,
    nodes: Mapping[NodeId, NodeState],
    *,
    until: float,
    since: float = 0.0,
) -> dict[int, int]:
    """Return micro-dollars of a job's GPUs by hour since the epoch, from its claim or `since` on."""
    begin = until if job.started_at is None else job.started_at
    gpus = Counter(slot.node for slot in job.slots)
    found: dict[int, int] = {}
    for hour in range(int(max(begin, since) // SECONDS_PER_HOUR), int(until // SECONDS_PER_HOUR) + 1):
        first, last = hour * SECONDS_PER_HOUR, (hour + 1) * SECONDS_PER_HOUR
        window = Window(begins_at=max(begin, first), ends_at=min(until, last))
        if window.ends_at <= window.begins_at:
            continue
        parts = (
            bill_within(node, window, until=min(until, node.ended_at or until))
            * gpus[name]
            / node.instance_type.gpus
            for name, node in nodes.items()
            if name in gpus
        )
        # Round up, so that rounding never exceeds a cap.
        found[hour] = ceil(sum(parts))
    return found


def read_purses(database: Database, *, since: int) -> list[tuple[str, int, int]]:
    """Return (team, hour since the epoch, micro-dollars) from the hour `since` on."""
    query = select(PURSES.c.team, PURSES.c.hour, PURSES.c.micro_dollars).where(PURSES.c.hour >= since)
    with database.read() as connection:
        return [(row[0], int(row[1]), int(row[2])) for row in connection.execute(query)]


def add_to_purse(connection: Connection, team: str, hours: Mapping[int, int]) -> None:
    """Add a generation's hourly costs, in the transaction that releases its GPUs."""
    for hour, amount in hours.items():
        known = select(PURSES.c.micro_dollars).where(PURSES.c.team == team, PURSES.c.hour == hour)
        before = connection.scalar(known) or 0
        put(connection, PURSES, team=team, hour=hour, micro_dollars=int(before) + amount)
