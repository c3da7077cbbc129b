"""What the dollars of a time were for: one partition of all bills, with one idle figure.

    part        dollars
    jobs        GPUs' shares of their nodes' price, while jobs held them
    boots       nodes before their first job
    free        GPUs that nobody held on a node where another job ran
    between     whole nodes between two jobs, and after their last one
    never       nodes that never ran a job, their boots included
    standing    gateway, images, reservations
    fixed       commitments and blocks, paid whether used or not

`free`, `between` and `never` together are what no job used: exactly the row `UNUSED_ROW` of costs by job,
user, team or class. A boot that began before the time counts as `between` there, and so it does here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from boa_daemon.daemon.money.costs import (
    billed_until,
    boots_of_jobs,
    nodes_within,
    standing_charges,
    usages_within,
)
from boa_daemon.store.queue import JobQueue
from boa_daemon.tick.facts.limits import FixedCost, Window, fixed_usd
from boa_daemon.tick.money.ledger import bill_within
from boa_daemon.units import MICRO_DOLLARS_PER_DOLLAR

_Spans = list[tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CostUses:
    """Dollars of a time by what they were for; they add up to the bills."""

    jobs_usd: float
    boots_usd: float
    free_usd: float
    between_usd: float
    never_usd: float
    standing_usd: float
    fixed_usd: float

    @property
    def idle_usd(self) -> float:
        """What no job used: the row of unused cost in every other grouping."""
        return self.free_usd + self.between_usd + self.never_usd

    @property
    def usd(self) -> float:
        """All of it."""
        return self.jobs_usd + self.boots_usd + self.idle_usd + self.standing_usd + self.fixed_usd

    def to_document(self) -> dict[str, float]:
        """Return the parts as JSON, in dollars."""
        return {
            "jobs_usd": self.jobs_usd,
            "boots_usd": self.boots_usd,
            "idle_usd": self.idle_usd,
            "free_usd": self.free_usd,
            "between_usd": self.between_usd,
            "never_usd": self.never_usd,
            "standing_usd": self.standing_usd,
            "fixed_usd": self.fixed_usd,
            "usd": self.usd,
        }


def cost_uses(queue: JobQueue, *, since: float, now: float, fixed: Sequence[FixedCost] = ()) -> CostUses:
    """Return what was spent since an instant by what it was for. O(nodes + starts), sorted."""
    nodes, usages = nodes_within(queue, since, now), usages_within(queue, since, now)
    held: dict[str, _Spans] = defaultdict(list)
    of_jobs: dict[str, float] = defaultdict(float)
    for usage in usages:
        begin, end = max(usage.started_at, since), now if usage.ended_at is None else usage.ended_at
        for slot in usage.slots if end > begin else ():
            node = nodes.get(slot.node)
            if node is not None:
                part = bill_within(node, Window(begins_at=begin, ends_at=end), until=end)
                of_jobs[slot.node] += part / node.instance_type.gpus
                held[slot.node].append((begin, end))
    boots: dict[str, float] = defaultdict(float)
    for _, node, micro in boots_of_jobs(usages, nodes, since):
        boots[node.id] += micro
    window = Window(begins_at=since, ends_at=max(now, since) + 1.0)
    jobs = boot = free = between = never = 0.0
    for name, node in nodes.items():
        whole = bill_within(node, window, until=billed_until(node, now))
        boot += boots[name]
        if name not in held:
            never += whole - boots[name]
            continue
        shared = sum(
            bill_within(node, Window(begins_at=begin, ends_at=end), until=end)
            for begin, end in _union(held[name])
        )
        jobs += of_jobs[name]
        free += shared - of_jobs[name]
        between += whole - shared - boots[name]
    standing = sum(micro for _, _, micro in standing_charges(queue.database, since, now))
    return CostUses(
        jobs_usd=jobs / MICRO_DOLLARS_PER_DOLLAR,
        boots_usd=boot / MICRO_DOLLARS_PER_DOLLAR,
        free_usd=free / MICRO_DOLLARS_PER_DOLLAR,
        between_usd=between / MICRO_DOLLARS_PER_DOLLAR,
        never_usd=never / MICRO_DOLLARS_PER_DOLLAR,
        standing_usd=standing / MICRO_DOLLARS_PER_DOLLAR,
        fixed_usd=fixed_usd(fixed, since, now),
    )


def _union(spans: Iterable[tuple[float, float]]) -> _Spans:
    """Return the union of intervals, in order."""
    found: _Spans = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((begin, end))
    return found
