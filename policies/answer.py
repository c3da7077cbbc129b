"""What a policy answers: an `Allocation` says the width of each job, a `Placement` the GPUs.

With its allocation a policy may hand on `NodePrices`: what whole nodes, spare GPUs and scarce room are worth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, Protocol

from policies.capacity_claims import Claims
from policies.fast_dataclasses import fast_init
from policies.model import GpuSlot, Job, JobId, Width


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Reasons(Mapping[JobId, str]):
    """Sentences made when somebody asks, because a tick decides about thousands of jobs and explains few."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class LentWidth:
    """A wider width on spare GPUs, and the hours that it saves beyond its restarts."""

    width: Width
    saved_hours: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRetention:
    """How many idle nodes to keep, and for how many seconds at the most; the others go back at once."""

    nodes: int
    seconds: float


class NodePrices(Protocol):
    """What whole nodes are worth to a policy that knows sizes, speeds and the price of money."""

    @property
    def boot_hours(self) -> float:
        """Hours from launch to ready."""
        ...

    @property
    def knows_messages(self) -> bool:
        """Whether any class says what its jobs send."""
        ...

    def hold(self, gpu_type: str) -> NodeRetention:
        """Return how many idle nodes of a type are worth holding, and how long."""
        ...

    def warm(self, gpu_type: str, *, saved_hours: float, share: float) -> NodeRetention:
        """Return how many stopped nodes of a type are worth keeping, and how long.

        Each saves `saved_hours` of a boot, and takes `share` of what a running one takes from the budget.
        """
        ...

    def patience_hours(self, gpu_type: str) -> float:
        """Return how long a job had better wait for GPUs to fall free before a node is rented for it."""
        ...

    def hours_left(self, job: Job) -> float:
        """Return how long a job runs on at the width that it holds; infinite where it holds none."""
        ...

    def head_start(self, job: Job, then: Width, *, most_gpus: int, wait_hours: float) -> Width | None:
        """Return the width to start at now where the planned one is to come later; None for not at all."""
        ...

    def stretch(self, job: Job, now: Width, *, most_gpus: int, hours_left: float | None) -> LentWidth | None:
        """Return a wider width on GPUs that are rented anyway, if that pays for its restarts.

        `hours_left` is what a running job has left at the width `now`; None for one that is about to start.
        """
        ...

    def hours_lost(self, job: Job, then: Width, *, hours_left: float, back_in_hours: float) -> float:
        """Return the weighted hours that a running job loses if it is started again at another width.

        Where that is narrower, it gets back what it lets go of in `back_in_hours`, if it is still there then.
        """
        ...

    def hours_sending(self, job: Job, *, share: float | None, gigabits: float, hours_left: float) -> float:
        """Return the weighted hours that messages between nodes add to what is left of a running job.

        `share` is seconds of sending per second of computing as measured; without it, as its class says for
        links of that speed, and none where the class says nothing.
        """
        ...

    def node_worth(self, gpu_type: str) -> float:
        """Return the weighted hours that the money for an hour of a node would save elsewhere."""
        ...

    def claims(
        self, jobs: Sequence[Job], planned: Sequence[Width], *, size_per_gpu: Mapping[str, float], now: float
    ) -> Claims:
        """Return what jobs ask of scarce room: the widths of their types up to the planned ones.

        `size_per_gpu` is what a GPU of each type takes of the room.
        """
        ...


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """The width of each job, and the nodes to hold where the policy fixes them.

    A job that is absent from `widths` waits. `nodes` maps an instance type's name to a count; None means
    "rent what the widths need". `memory` is what the store should keep for the next tick. `node_prices` says
    what whole nodes are worth to the policy; None where it does not know, and the site's rules hold.
    Jobs in `stay` keep the width that they hold, whatever falls free or is wanted; jobs in `exact` get just
    the width that is named, even where more is free beside them. Jobs in `compact` start
    only on as few nodes as their width needs, and wait where free GPUs lie on more. Where there is not room
    for all, those in `order` are served in that order, before the others. `most_usd_per_hour` is a ceiling on
    what may be rented at a time, in the unit of the budget; None for no ceiling. `above_ceiling` says what
    may happen on nodes that are rented already and cost more than that: jobs may start on them, only finish
    on them, or have to leave them.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The GPUs of each job that could be placed; the others wait for nodes."""

    slots: Mapping[JobId, tuple[GpuSlot, ...]]
