"""Costs of job groups, whose jobs share one `max_usd`."""

from __future__ import annotations

from dataclasses import dataclass, field

from boa_daemon.daemon.money.job_cost import cost_of
from boa_daemon.store.groups import group_of, settled_micro_dollars
from boa_daemon.store.queue import JobQueue
from boa_daemon.store.records import JobRecord
from boa_daemon.units import SECONDS_PER_HOUR, dollars


@dataclass(slots=True)
class _Running:
    """Cost of a group's running members: micro-dollars in their present generations, and dollars per hour."""

    micro_dollars: int = 0
    usd_per_hour: float = 0.0


@dataclass(slots=True)
class GroupMoney:
    """Adds up the costs of groups, keyed by the number of the first job.

    The cost of ended generations is read from the database once after each end.
    """

    queue: JobQueue
    _settled: dict[int, int] = field(default_factory=dict)
    _running: dict[int, _Running] | None = None
    _as_of: float = 0.0

    def ended(self, job: JobRecord) -> None:
        """Forget cached costs after a generation has ended and been recorded."""
        first = _first(job)
        if first is not None:
            self._settled.pop(first, None)
            self._running = None

    def is_spent(self, job: JobRecord, now: float) -> bool:
        """Return whether a job's group has spent its `max_usd`; false without a group or a limit."""
        most = job.content.get("max_usd")
        if most is None or _first(job) is None:
            return False
        return self.spent_usd(job, now) >= float(most)

    def ends_at(self, job: JobRecord, now: float) -> float | None:
        """Return when a job's group will have spent its `max_usd` at the present rate; None if never."""
        most = job.content.get("max_usd")
        if most is None:
            return None
        left = float(most) - self.spent_usd(job, now)
        rate = self._of(job, now).usd_per_hour
        if left <= 0.0:
            # Any instant in the past: `now` may be slightly later than the tick's own clock reading.
            return job.arrived_at
        return now + left / rate * SECONDS_PER_HOUR if rate else None

    def spent_usd(self, job: JobRecord, now: float) -> float:
        """Return the dollars that a job's group has cost until now."""
        first = _first(job)
        assert first is not None
        if first not in self._settled:
            self._settled[first] = settled_micro_dollars(self.queue, group_of(job))
        return dollars(self._settled[first] + self._of(job, now).micro_dollars)

    def _of(self, job: JobRecord, now: float) -> _Running:
        """Return the cost of the running members of a job's group."""
        if self._running is None or self._as_of != now:
            self._running, self._as_of = self._look(now), now
        return self._running.get(_first(job) or 0, _Running())

    def _look(self, now: float) -> dict[int, _Running]:
        """Add up the running jobs by group."""
        found: dict[int, _Running] = {}
        instances = self.queue.instances
        for job in list(self.queue.active.values()):
            first = _first(job) if job.slots else None
            if first is None:
                continue
            own = found.setdefault(first, _Running())
            own.micro_dollars += cost_of(job, instances, until=now)
            own.usd_per_hour += usd_per_hour_of(job, self.queue)
        return found


def usd_per_hour_of(job: JobRecord, queue: JobQueue) -> float:
    """Return the dollars per hour of a job's GPUs: their share of each node."""
    nodes = (queue.instances.get(slot.node) for slot in job.slots)
    return sum(record.node.usd_per_hour / record.node.instance_type.gpus for record in nodes if record)


def _first(job: JobRecord) -> int | None:
    """Return the number of the first job of a job's group; None without a group."""
    place = job.content.get("group")
    return None if place is None else job.seq - int(place["index"])
