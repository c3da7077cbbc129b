"""The answers of policies: an `Allocation` gives the width of each job, a `Placement` its GPUs.

An allocation may carry `NodePrices`: what whole nodes, spare GPUs and scarce room are worth to the policy.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, Protocol

from policies.capacity_claims import Claims
from policies.fast_dataclasses import fast_init, replace
from policies.model import GpuSlot, Job, JobId, Width


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Reasons(Mapping[JobId, str]):
    """A reason for each job, written only when it is read: a tick decides about thousands, explains few."""

    jobs: Sequence[Job]
    say: Callable[[Job], str]
    _by_name: dict[JobId, Job] = field(init=False, default_factory=dict, repr=False, compare=False)

    def __getitem__(self, job_id: JobId) -> str:
        if not self._by_name:
            self._by_name.update((job.id, job) for job in self.jobs)
        return self.say(self._by_name[job_id])

    def __iter__(self) -> Iterator[JobId]:
        return (job.id for job in self.jobs)

    def __len__(self) -> int:
        return len(self.jobs)


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedReasons(Mapping[JobId, str]):
    """The reasons of some jobs replaced: `say` writes those of `jobs`, all others are as in `others`."""

    jobs: Collection[JobId]
    say: Callable[[JobId], str]
    others: Mapping[JobId, str]

    def __getitem__(self, job_id: JobId) -> str:
        return self.say(job_id) if job_id in self.jobs else self.others[job_id]

    def __iter__(self) -> Iterator[JobId]:
        yield from self.jobs
        yield from (job for job in self.others if job not in self.jobs)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def was_changed(reasons: Mapping[JobId, str], job: JobId) -> bool:
    """Return whether a reason replaced the one that the policy gave."""
    while isinstance(reasons, ChangedReasons):
        if job in reasons.jobs:
            return True
        reasons = reasons.others
    return False


def changed_widths(
    widths: Mapping[JobId, Width],
    reasons: Mapping[JobId, str],
    changes: Mapping[JobId, Width | None],
    why: Callable[[JobId], str],
) -> tuple[dict[JobId, Width], ChangedReasons]:
    """Return widths and reasons after some changes, None for no width; `why` writes the new reasons.

    This is the one way to change a width, so a reason never outlives the width that it is the reason of.
    """
    merged = {**widths, **changes}
    kept = {job: width for job, width in merged.items() if width is not None}
    return kept, ChangedReasons(jobs=changes.keys(), say=why, others=reasons)


@dataclass(frozen=True, slots=True, kw_only=True)
class LentWidth:
    """A wider width on spare GPUs, and the hours that it saves after its restarts are paid for."""

    width: Width
    saved_hours: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRetention:
    """How many idle nodes to keep, and for at most how many seconds. Other idle nodes go back at once."""

    nodes: int
    seconds: float


class NodePrices(Protocol):
    """What whole nodes are worth to a policy that knows job sizes, speeds and the price of money."""

    @property
    def boot_hours(self) -> float:
        """Hours from launch to ready."""
        ...

    @property
    def knows_messages(self) -> bool:
        """Whether any class states the network traffic of its jobs."""
        ...

    def hold(self, gpu_type: str) -> NodeRetention:
        """Return how many idle nodes of a type are worth keeping, and for how long."""
        ...

    def warm(self, gpu_type: str, *, saved_hours: float, share: float) -> NodeRetention:
        """Return how many stopped nodes of a type are worth keeping, and for how long.

        A stopped node saves `saved_hours` of a boot, and costs `share` of the price of a running node.
        """
        ...

    def patience_hours(self, gpu_type: str) -> float:
        """Return how long a job should wait for GPUs to become free before a node is rented for it."""
        ...

    def hours_left(self, job: Job) -> float:
        """Return the hours that a job has left at its current width; infinite for a job without GPUs."""
        ...

    def head_start(self, job: Job, then: Width, *, most_gpus: int, wait_hours: float) -> Width | None:
        """Return a narrower width to start at before the planned one is available; None if it does not pay.

        The planned width `then` is available in `wait_hours`.
        """
        ...

    def stretch(self, job: Job, now: Width, *, most_gpus: int, hours_left: float | None) -> LentWidth | None:
        """Return a wider width on spare GPUs of rented nodes, if the time saved exceeds the restarts.

        `hours_left` are those of a running job at the width `now`; None for a job that is about to start.
        """
        ...

    def hours_lost(self, job: Job, then: Width, *, hours_left: float, back_in_hours: float) -> float:
        """Return the weighted hours that a running job loses if it restarts at another width.

        At a narrower width the job may get its GPUs back after `back_in_hours`, if it still runs then.
        """
        ...

    def hours_sending(self, job: Job, *, share: float | None, gigabits: float, hours_left: float) -> float:
        """Return the weighted hours that messages between nodes add to the rest of a running job.

        `share` is the measured seconds of sending per second of computing. If it is None, it is computed from
        the traffic that the class states and the link speed in `gigabits` per second; 0 without a statement.
        """
        ...

    def node_worth(self, gpu_type: str) -> float:
        """Return the weighted hours that the price of a node-hour would save if spent on other jobs."""
        ...

    def claims(
        self, jobs: Sequence[Job], planned: Sequence[Width], *, size_per_gpu: Mapping[str, float], now: float
    ) -> Claims:
        """Return the claims of jobs on scarce room: the widths of their GPU types up to the planned ones.

        `size_per_gpu` is the room that one GPU of each type takes.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Accrual:
    """Money that a queue waits for: it accrues at `per_hour`, and `balance` has accrued and is not spent.

    A balance may be spent over `spread_hours`, so what is rented at a time is limited by `most_per_hour`. All
    in the unit of the budget.
    """

    per_hour: float
    balance: float
    spread_hours: float

    @property
    def most_per_hour(self) -> float:
        """What the money pays for at a time."""
        return self.per_hour + max(self.balance, 0.0) / self.spread_hours

    @property
    def is_spent(self) -> bool:
        """Whether so much more than accrued was spent that nodes beyond the budget have to go."""
        return self.balance <= self.least_balance

    @property
    def least_balance(self) -> float:
        """The balance at which nodes beyond the budget have to go."""
        return -0.5 * self.spread_hours * self.per_hour


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """The width of each job, and the nodes to hold where the policy fixes them.

    A job that is absent from `widths` waits. `nodes` maps an instance type's name to a count; None means
    "rent what the widths need". `memory` is stored for the next tick. `node_prices` is None for a policy that
    does not price whole nodes; the site's rules then apply.

    Jobs in `stay` keep their current width whatever else changes. Jobs in `exact` get exactly the named
    width, even if spare GPUs are next to them. Jobs in `compact` start only on as few nodes as their width
    needs; otherwise they wait. If there is not room for all jobs, those in `order` are served first, in that
    order; `order_rule` says in words what it follows.

    `most_usd_per_hour` limits what is rented at a time, in the unit of the budget; None for no limit.
    `above_ceiling` rules nodes that are already rented above this limit: jobs may start on them ("use"), only
    finish on them ("finish"), or must leave them ("leave"). `accrual` is the money behind that limit.
    """

    widths: Mapping[JobId, Width]
    nodes: Mapping[str, int] | None = None
    reasons: Mapping[JobId, str] = field(default_factory=lambda: MappingProxyType({}))
    memory: tuple[float, ...] | None = None
    node_prices: NodePrices | None = None
    stay: frozenset[JobId] = frozenset()
    exact: frozenset[JobId] = frozenset()
    order: tuple[JobId, ...] = ()
    compact: frozenset[JobId] = frozenset()
    most_usd_per_hour: float | None = None
    above_ceiling: Literal["use", "finish", "leave"] = "use"
    order_rule: str = ""
    accrual: Accrual | None = None

    def with_widths(
        self, changes: Mapping[JobId, Width | None], why: Callable[[JobId], str], **others: Any
    ) -> Allocation:
        """Return the allocation with other widths (None: none), their reasons, and other fields changed."""
        widths, reasons = changed_widths(self.widths, self.reasons, changes, why)
        return replace(self, widths=widths, reasons=reasons, **others)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The GPUs of each job that could be placed; jobs that are absent wait for nodes."""

    slots: Mapping[JobId, tuple[GpuSlot, ...]]
