"""The six actions of a tick, each with an id and a reason.

The id comes from the tick and the target, so the same decision taken twice is the same request: the id is
also the cloud's idempotency token. A change of a job's width is a stop followed by a start of the next
generation, because another job may need the GPUs that the first one releases.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from boa_daemon.tick.facts.limits import Act
from boa_daemon.tick.facts.offers import Offer, any_offer
from boa_daemon.tick.facts.retries import GiveUpCode
from policies.errors import InvalidProblem
from policies.fast_dataclasses import fast_init
from policies.model import GpuSlot, InstanceType, JobId, NodeId, Width


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class StopJob:
    """Checkpoint a job and free its GPUs; `generation` is the start to be ended."""

    id: str
    job: JobId
    generation: int
    reason: str


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class EndGeneration:
    """End a hung generation at once and without a checkpoint; this counts as a failure."""

    id: str
    job: JobId
    generation: int
    reason: str


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUpJob:
    """Give up a waiting job: it has failed and is not started again. `code` says why, for programs."""

    id: str
    job: JobId
    code: GiveUpCode
    reason: str


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class TerminateNode:
    """Give a node back; with `stops` a cloud that can do so keeps the instance, stopped."""

    id: str
    node: NodeId
    reason: str
    stops: bool = False


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class StartJob:
    """Start a generation of a job on the given GPUs; generations count a job's starts from 1.

    `places_per_gpu` is how many jobs may share each of the GPUs, this one included.
    """

    id: str
    job: JobId
    generation: int
    width: Width
    slots: tuple[GpuSlot, ...]
    reason: str
    places_per_gpu: int = 1


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchNodes:
    """Rent `count` instances of one type in one request.

    A gang is all or nothing: jobs that span its nodes cannot use a part of it. `offer` is the zone and the
    market; None leaves them to the cloud. `for_jobs` are the first jobs that wait for nodes of this type,
    each with the generation that would start; they show whom a forgotten node was rented for. `starts` are
    stopped nodes to start in place of as many new ones; if one cannot be started, a new node is rented.
    """

    id: str
    instance_type: InstanceType
    reason: str
    count: int = 1
    is_gang: bool = False
    offer: Offer | None = None
    for_jobs: tuple[tuple[JobId, int], ...] = ()
    starts: tuple[NodeId, ...] = ()

    def __post_init__(self) -> None:
        if self.count < 1:
            raise InvalidProblem(f"{self.id}: a launch asks for at least one node, got {self.count}")

    @property
    def offer_key(self) -> str:
        """The key of the offer; that of the type alone if the cloud names no offers."""
        return (self.offer or any_offer(self.instance_type.name)).key

    @property
    def together(self) -> int:
        """How many of the nodes must come together or not at all."""
        return self.count if self.is_gang else 1


Action: TypeAlias = GiveUpJob | EndGeneration | StopJob | TerminateNode | StartJob | LaunchNodes


def act_of(action: Action, *, at: float) -> Act:
    """Return an action as an entry of the history; a launch is recorded by its instance type."""
    if isinstance(action, GiveUpJob):
        return Act(kind="give-up", target=action.job, at=at)
    if isinstance(action, EndGeneration):
        return Act(kind="end", target=action.job, at=at)
    if isinstance(action, StopJob):
        return Act(kind="stop", target=action.job, at=at)
    if isinstance(action, StartJob):
        return Act(kind="start", target=action.job, at=at)
    if isinstance(action, TerminateNode):
        return Act(kind="terminate", target=action.node, at=at)
    return Act(kind="launch", target=action.instance_type.name, at=at)
