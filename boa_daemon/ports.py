"""What the controller needs from the world: six small protocols.

Expected failures are values. A launch that the cloud cannot serve returns `Refused`; the next tick reads it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from boa_daemon.actions import Action, LaunchNodes, StartJob, StopJob, TerminateNode
from boa_daemon.offers import Cooldown, Offer, RefusalKind
from boa_daemon.state import ClusterState, JobState, NodeState
from policies.model import JobId, NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """The cloud said yes: the nodes are requested. Where they are fewer than asked for, `short` says why."""

    nodes: tuple[NodeId, ...]
    short: Refused | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """It was done, or is being done; observation will show it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """It was not done, and nothing changed.

    `scopes` are what is out of reach (see `boa_daemon.offers`), where it is more than what was asked for.
    `retry_after_seconds` is when to ask again; None leaves it to the cool-downs, which grow.
    """

    reason: str
    kind: RefusalKind = "busy"
    retry_after_seconds: float | None = None
    scopes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """Nobody knows whether it was done: the answer was lost. The intent stays open and counts as spent."""

    reason: str


Outcome: TypeAlias = Launched | Accepted | Refused | Unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLaunch:
    """A launch that is not settled: unanswered, or answered with nodes that no listing has shown yet.

    `nodes` are those that the answer named, None without an answer; `seen` are those that were listed.
    """

    action: LaunchNodes
    at: float
    nodes: tuple[NodeId, ...] | None = None
    seen: frozenset[NodeId] = frozenset()

    @property
    def unseen(self) -> tuple[NodeId, ...]:
        """The nodes that may exist and were not listed yet; made-up names where no answer named them."""
        if self.nodes is not None:
            return tuple(node for node in self.nodes if node not in self.seen)
        return tuple(f"{self.action.id}/{number}" for number in range(len(self.seen), self.action.count))


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """The final bill of one node, in whole micro-dollars."""

    node: NodeId
    instance_type: str
    started_at: float
    ended_at: float
    micro_dollars: int


class Clock(Protocol):
    """Tells the time."""

    def now(self) -> float:
        """Return the instant: seconds since the Unix epoch."""
        ...


class Cloud(Protocol):
    """Rents nodes."""

    def nodes(self) -> Sequence[NodeState]:
        """Return every node that is ours, and each ended one at least once with its `ended_at`."""
        ...

    def offers(self) -> Sequence[Offer]:
        """Return what may be rented where at which price, as cached; empty where nothing is named."""
        ...

    def launch(self, action: LaunchNodes) -> Launched | Refused | Unknown:
        """Ask for nodes; the same action id asks for the same nodes."""
        ...

    def terminate(self, actions: Sequence[TerminateNode]) -> Mapping[NodeId, Accepted | Refused | Unknown]:
        """Give nodes back, and say of each what became of it; one that is gone already is accepted."""
        ...


class JobSource(Protocol):
    """Knows the jobs."""

    def jobs(self) -> Mapping[JobId, JobState]:
        """Return the jobs that are present and not finished, in order of arrival."""
        ...


class Engine(Protocol):
    """Runs jobs on nodes."""

    def start(self, action: StartJob) -> Accepted | Refused:
        """Start one generation of a job; a generation that runs already is accepted."""
        ...

    def stop(self, action: StopJob) -> Accepted | Refused:
        """Checkpoint and stop a job; one that does not run is accepted."""
        ...

    def order_links(self, order: Mapping[NodeId, tuple[JobId, ...]]) -> None:
        """Tell the jobs that share a node's link who may send first; links not named are not shared."""
        ...


class Store(Protocol):
    """Remembers: intents before the act, outcomes after it, charges and decisions."""

    def next_tick(self) -> int:
        """Return the number of the tick that begins: one more than any before."""
        ...

    def record_intent(self, action: Action, *, at: float) -> None:
        """Write down an action before it is tried."""
        ...

    def record_outcome(self, action: Action, outcome: Outcome, *, at: float) -> None:
        """Write down what became of an action."""
        ...

    def unsettled(self) -> Sequence[OpenLaunch]:
        """Return launches that have no outcome, or whose nodes were not all seen yet."""
        ...

    def record_seen(self, launched_by: str, nodes: Collection[NodeId]) -> None:
        """Write down that nodes of a launch are in the cloud's list; all of them settle it."""
        ...

    def give_up(self, launched_by: str, reason: str, *, at: float) -> None:
        """Settle a launch with the nodes that were seen: the others are not coming."""
        ...

    def cooldowns(self, now: float) -> Mapping[str, Cooldown]:
        """Return the scopes that were refused and are not to be asked again yet."""
        ...

    def record_charge(self, charge: Charge) -> None:
        """Append a final bill; a second one for the same node is ignored."""
        ...

    def settled_micro_dollars(self) -> int:
        """Return the sum of all final bills."""
        ...

    def books_opened_at(self, now: float) -> float:
        """Return the instant from which the budget accrues; the first call sets it to `now`."""
        ...

    def reopen_books(self, at: float) -> None:
        """Let the budget accrue from a later instant: what was not spent before is forgone."""
        ...

    def record_lean(self, lean: float, *, at: float) -> None:
        """Write down what the policy learnt about its beliefs."""
        ...

    def lean(self) -> tuple[float, float] | None:
        """Return what was learnt last, and when; None before the first time."""
        ...

    def record_decision(self, state: ClusterState, actions: Sequence[Action]) -> None:
        """Write down what a tick saw and what it decided."""
        ...


class Telemetry(Protocol):
    """Sends sentences for people and numbers for machines."""

    def say(self, sentence: str, **numbers: float | str) -> None:
        """Publish one sentence with the numbers in it."""
        ...
