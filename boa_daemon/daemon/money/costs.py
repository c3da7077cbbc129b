"""Attribute costs to jobs, classes, users, teams, markets, regions, machines, tags, days or kinds.

A job pays its GPUs' share of the node's price. A node's cost before its first job (its boot, the minimum
charge of one minute) belongs to the jobs that start on it first. Two rows of their own hold the rest:
`UNUSED_ROW` the cost of idle nodes, free GPUs and nodes that never ran a job, `STANDING_ROW` the costs
without nodes (a NAT gateway, images, reservations). Where rows are about nodes (market, region, machine,
tag), what nobody uses of a node is in the node's own row. The rows therefore always add up to the bills.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeAlias

from sqlalchemy import select

from boa_daemon.daemon.money.cost_labels import (
    NO_TAGS,
    STANDING_ROW,
    UNOWNED_ROWS,
    UNUSED_ROW,
    CostBy,
    HouseTags,
    labels_by,
)
from boa_daemon.daemon.money.older_copy import RESTORED
from boa_daemon.daemon.money.standing_costs import STANDING
from boa_daemon.store.database import Database
from boa_daemon.store.queue import JobQueue
from boa_daemon.store.records import GenerationRecord
from boa_daemon.store.storage import Storage
from boa_daemon.store.tables import CHARGE_DAYS, CHARGES
from boa_daemon.tick.facts.limits import DAY_SECONDS, FixedCost, Window, day_of, fixed_usd
from boa_daemon.tick.facts.state import NodeState
from boa_daemon.tick.money.ledger import COMPUTE, bill, bill_by_kind_within, bill_within
from boa_daemon.units import MICRO_DOLLARS_PER_DOLLAR, dollars
from policies.model import JobId

_Standing: TypeAlias = Sequence[tuple[str, int, int]]
FIXED_ROW = "(commitments and blocks)"


def spent_usd(storage: Storage, *, now: float) -> float:
    """Return dollars of all final bills and of the running nodes so far."""
    present = (record.node for record in list(storage.queue.instances.values()))
    running = sum(bill(node, until=now) for node in present if node.ended_at is None)
    return dollars(storage.store.settled_micro_dollars() + running)


def cost_rows(
    queue: JobQueue, *, by: CostBy, since: float, now: float, tags: HouseTags = NO_TAGS
) -> list[dict[str, Any]]:
    """Return rows of name, dollars and GPU-hours, most expensive first; days in order.

    `tags` are those of the settings, for rows by `tag:KEY`.

    Raises:
        InputError: when nothing carries a tag of that key.
    """
    nodes = nodes_within(queue, since, now)
    window = Window(begins_at=since, ends_at=max(now, since) + 1.0)
    stands = standing_charges(queue.database, since, now)
    if by == "kind":
        return _by_kind(nodes.values(), stands, window, now)
    if by == "day":
        return _by_day(queue.database, nodes, stands, since, now)
    unused: dict[str, float] = {
        name: bill_within(node, window, until=billed_until(node, now)) for name, node in nodes.items()
    }
    usd: dict[str, float] = defaultdict(float)
    hours: dict[str, float] = defaultdict(float)
    boots: dict[str, float] = defaultdict(float)
    usages = usages_within(queue, since, now)
    labels = labels_by(by, queue.database, usages, nodes.values(), tags)
    for job, node, micro in boots_of_jobs(usages, nodes, since):
        name = labels.of_use(job, node)
        usd[name] += micro
        boots[name] += micro
        unused[node.id] -= micro
    for usage in usages:
        begin, end = max(usage.started_at, since), now if usage.ended_at is None else usage.ended_at
        if end <= begin:
            continue
        for slot in usage.slots:
            found = nodes.get(slot.node)
            if found is None:
                continue
            part = bill_within(found, Window(begins_at=begin, ends_at=end), until=end)
            name = labels.of_use(usage.job, found)
            usd[name] += part / found.instance_type.gpus
            unused[found.id] -= part / found.instance_type.gpus
            hours[name] += (end - begin) / 3600.0
    rest: dict[str, float] = defaultdict(float)
    for name, amount in unused.items():
        rest[labels.of_unused(nodes[name])] += amount
    for kind, _, amount in stands:
        rest[labels.of_standing(kind)] += amount
    for name in rest.keys() - UNOWNED_ROWS:
        usd[name] += rest.pop(name)
    rows = [
        {
            "name": name,
            "usd": amount / MICRO_DOLLARS_PER_DOLLAR,
            "boot_usd": boots[name] / MICRO_DOLLARS_PER_DOLLAR,
            "gpu_hours": hours[name],
        }
        for name, amount in sorted(usd.items(), key=lambda item: -item[1])
    ]
    for name in (UNUSED_ROW, STANDING_ROW):
        if name in rest and (abs(rest[name]) >= 1.0 or (name == STANDING_ROW and stands)):
            usd_rest = rest[name] / MICRO_DOLLARS_PER_DOLLAR
            rows.append({"name": name, "usd": usd_rest, "boot_usd": 0.0, "gpu_hours": None})
    return rows


def nodes_within(queue: JobQueue, since: float, now: float) -> dict[str, NodeState]:
    """Return the nodes of which something was billed between two instants, by name."""
    nodes = {record.node.id: record.node for record in queue.past_instances(since)}
    # A copy, because requests ask while a tick adds nodes.
    nodes |= {name: record.node for name, record in list(queue.instances.items())}
    return {name: node for name, node in nodes.items() if node.launched_at <= now}


def billed_until(node: NodeState, now: float) -> float:
    """Return until when a node had been billed at an instant."""
    return now if node.ended_at is None else min(node.ended_at, now)


def usages_within(queue: JobQueue, since: float, now: float) -> list[GenerationRecord]:
    """Return the generations that held GPUs between two instants, as they were known at the second.

    A report of a month that is over would count what jobs held after it.
    """
    return [
        usage if usage.ended_at is None or usage.ended_at <= now else replace(usage, ended_at=now)
        for usage in queue.usages(since)
        if usage.started_at <= now
    ]


def standing_charges(database: Database, since: float, now: float) -> list[tuple[str, int, int]]:
    """Return (kind, day since the epoch, micro-dollars) of costs without a node between two instants."""
    columns = (CHARGES.c.instance_type, CHARGES.c.started_at, CHARGES.c.micro_dollars)
    # Select by day, which is indexed: node bills are many, and each hourly charge lies within one day.
    query = (
        select(*columns)
        .join(CHARGE_DAYS, CHARGE_DAYS.c.node == CHARGES.c.node)
        .where(CHARGE_DAYS.c.day >= int(since // DAY_SECONDS), CHARGES.c.ended_at > since)
        .where(CHARGES.c.instance_type.in_((*STANDING, RESTORED)), CHARGES.c.started_at < now)
    )
    with database.read() as connection:
        rows = connection.execute(query.order_by(CHARGES.c.started_at)).all()
    return [(str(kind), int(at // DAY_SECONDS), int(amount)) for kind, at, amount in rows]


def with_fixed_costs(
    rows: list[dict[str, Any]], fixed: Sequence[FixedCost], *, by: CostBy, since: float, now: float
) -> list[dict[str, Any]]:
    """Add commitments and blocks, which are paid whether used or not, as a row or a part of each day."""
    usd = fixed_usd(fixed, since, now)
    if not usd:
        return rows
    if by == "kind":
        return [*rows, {"name": FIXED_ROW, "usd": usd}]
    if by != "day":
        return [*rows, {"name": FIXED_ROW, "usd": usd, "boot_usd": 0.0, "gpu_hours": None}]
    found = {row["name"]: row for row in rows}
    for day in range(int(since // DAY_SECONDS), int(now // DAY_SECONDS) + 1):
        begin, end = max(day * DAY_SECONDS, since), min((day + 1) * DAY_SECONDS, now)
        if part := fixed_usd(fixed, begin, end):
            name = _day_name(day)
            row = found.get(name, {"name": name, "usd": 0.0, "kinds": {}})
            found[name] = {**row, "usd": row["usd"] + part, "kinds": {**row["kinds"], FIXED_ROW: part}}
    return [found[name] for name in sorted(found)]


def _day_name(day: int) -> str:
    """Format a day since the epoch as YYYY-MM-DD."""
    return datetime.fromtimestamp(day * DAY_SECONDS, UTC).strftime("%Y-%m-%d")


def boots_of_jobs(
    usages: Sequence[GenerationRecord], nodes: Mapping[str, NodeState], since: float
) -> Iterator[tuple[JobId, NodeState, float]]:
    """Yield (job, node, micro-dollars): a node's cost before its first jobs, divided by these jobs' GPUs.

    Nodes launched before `since` are left out: their first jobs are unknown here.
    """
    first: dict[str, float] = {}
    for usage in usages:
        for slot in usage.slots:
            first[slot.node] = min(usage.started_at, first.get(slot.node, usage.started_at))
    held: Counter[tuple[str, str]] = Counter(
        (slot.node, usage.job)
        for usage in usages
        for slot in usage.slots
        if usage.started_at == first[slot.node]
    )
    in_all: Counter[str] = Counter()
    for (name, _), gpus in held.items():
        in_all[name] += gpus
    for (name, job), gpus in held.items():
        node = nodes.get(name)
        if node is None or node.launched_at < since:
            continue
        window = Window(begins_at=node.launched_at, ends_at=first[name])
        if window.ends_at > window.begins_at:
            yield job, node, bill_within(node, window, until=first[name]) * gpus / in_all[name]


def team_costs(
    queue: JobQueue, team: str, *, since: float, now: float
) -> list[tuple[JobId, str, float, float]]:
    """Return (job, day, dollars, GPU-hours) of a team's jobs, a row for each start and day, boots included.

    These rows add up to the team's row in costs by team.
    """
    nodes, usages = nodes_within(queue, since, now), usages_within(queue, since, now)
    own = labels_by("team", queue.database, usages, nodes.values(), NO_TAGS)
    found = [
        (job, _day_name(int(node.launched_at // DAY_SECONDS)), micro / MICRO_DOLLARS_PER_DOLLAR, 0.0)
        for job, node, micro in boots_of_jobs(usages, nodes, since)
        if own.of_use(job, node) == team
    ]
    for usage in usages:
        begin, end = max(usage.started_at, since), now if usage.ended_at is None else usage.ended_at
        slots = [nodes[slot.node] for slot in usage.slots if slot.node in nodes]
        if end <= begin or not slots or own.of_use(usage.job, slots[0]) != team:
            continue
        for day in range(int(begin // DAY_SECONDS), int(end // DAY_SECONDS) + 1):
            first, last = max(begin, day * DAY_SECONDS), min(end, (day + 1) * DAY_SECONDS)
            if last <= first:
                continue
            window = Window(begins_at=first, ends_at=last)
            usd = sum(bill_within(node, window, until=last) / node.instance_type.gpus for node in slots)
            hours = len(slots) * (last - first) / 3600.0
            found.append((usage.job, _day_name(day), usd / MICRO_DOLLARS_PER_DOLLAR, hours))
    return found


def spent_today(queue: JobQueue, *, now: float) -> Mapping[str, float]:
    """Return the dollars that each user's jobs cost today (UTC)."""
    rows = cost_rows(queue, by="user", since=day_of(now).begins_at, now=now)
    return {row["name"]: float(row["usd"]) for row in rows if row["name"] not in UNOWNED_ROWS}


def _by_kind(
    nodes: Iterable[NodeState], stands: _Standing, window: Window, now: float
) -> list[dict[str, Any]]:
    """Return a row for each billed kind: compute, disk, address, requests, gateway, images, reservations."""
    total: Counter[str] = Counter({COMPUTE: 0})
    for node in nodes:
        total.update(bill_by_kind_within(node, window, until=billed_until(node, now)))
    for kind, _, amount in stands:
        total[kind] += amount
    return [{"name": kind, "usd": dollars(amount)} for kind, amount in total.items()]


def _kinds_by_day(
    nodes: Iterable[NodeState], stands: _Standing, since: float, now: float
) -> dict[int, Counter[str]]:
    """Return billed micro-dollars by day since the epoch and kind."""
    days: dict[int, Counter[str]] = defaultdict(Counter)
    for kind, day, amount in stands:
        days[day][kind] += amount
    for node in nodes:
        until = billed_until(node, now)
        first = int(max(since, node.launched_at) // DAY_SECONDS)
        for day in range(first, int(until // DAY_SECONDS) + 1):
            window = Window(begins_at=day * DAY_SECONDS, ends_at=(day + 1) * DAY_SECONDS)
            days[day].update(bill_by_kind_within(node, window, until=until))
    return days


def _by_day(
    database: Database, nodes: Mapping[str, NodeState], stands: _Standing, since: float, now: float
) -> list[dict[str, Any]]:
    """Return a row per day: final bills, and the cost of running nodes so far."""
    first = int(since // DAY_SECONDS)
    days: dict[int, int] = defaultdict(int)
    with database.read() as connection:
        charged = set(connection.scalars(select(CHARGES.c.node).where(CHARGES.c.ended_at >= since)))
        rows = connection.execute(
            select(CHARGE_DAYS.c.day, CHARGE_DAYS.c.micro_dollars).where(CHARGE_DAYS.c.day >= first)
        )
        for day, amount in rows:
            days[int(day)] += int(amount)
    for name, node in nodes.items():
        if name in charged:
            continue
        for day in range(first, int(now // DAY_SECONDS) + 1):
            window = Window(begins_at=day * DAY_SECONDS, ends_at=(day + 1) * DAY_SECONDS)
            days[day] += bill_within(node, window, until=billed_until(node, now))
    kinds = _kinds_by_day(nodes.values(), stands, since, now)
    return [
        {
            "name": _day_name(day),
            "usd": dollars(spent),
            "kinds": {kind: dollars(amount) for kind, amount in kinds[day].items()},
        }
        for day, spent in sorted(days.items())
        if spent
    ]
