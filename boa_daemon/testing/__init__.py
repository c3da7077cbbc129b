"""Builders and fakes that the tests share.

Builders have defaults for everything that a test does not state. `Ideal` is a world in which every action
succeeds at once. Only the strategies import Hypothesis, so that the package works without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from boa_daemon.tick.facts.actions import Action, LaunchNodes, StartJob, StopJob, TerminateNode
from boa_daemon.tick.facts.offers import Offer
from boa_daemon.tick.facts.ports import Accepted, Launched, Refused, Unknown
from boa_daemon.tick.facts.state import Claim, ClusterState, JobState, NodePhase, NodeState, Rules, UserMoney
from boa_daemon.tick.facts.team_money import TeamMoney
from boa_daemon.traces.reader import Trace, TraceJob
from policies.answer import Allocation
from policies.fast_dataclasses import replace
from policies.model import (
    Budget,
    GpuSlot,
    GpuType,
    InstanceType,
    Job,
    JobClass,
    JobId,
    Money,
    Node,
    NodeId,
    Phase,
    Problem,
    Width,
)
from policies.speedup import SpeedupCurve, Table

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy


def as_read(word: str) -> str:
    """Return an equal string that is another object, as a string from a file, database or cloud is."""
    return word[:1] + word[1:]


def an_instance_type(*, gpu_type: str = "gpu", gpus: int = 4, usd_per_gpu_hour: float = 1.0) -> InstanceType:
    """Return a machine that costs the sum of its GPUs' prices."""
    return InstanceType(
        name=f"{gpu_type}-x{gpus}",
        gpu_type=as_read(gpu_type),
        gpus=gpus,
        usd_per_hour=gpus * usd_per_gpu_hour,
    )


def rules(**changes: Any) -> Rules:
    """Return rules with nodes of four GPUs that are kept idle for 60 s."""
    values: dict[str, Any] = {"instance_types": {"gpu": an_instance_type()}, "idle_hold_seconds": 60.0}
    return Rules(**(values | changes))


def a_node(
    name: NodeId = "n1",
    *,
    gpus: int = 4,
    phase: NodePhase = "ready",
    launched_at: float = 0.0,
    idle_since: float | None = None,
    kind: InstanceType | None = None,
) -> NodeState:
    """Return an empty node; a ready node is idle since its launch unless `idle_since` is given."""
    kind = kind or an_instance_type(gpus=gpus)
    since = idle_since if idle_since is not None else launched_at
    return NodeState(
        id=as_read(name),
        instance_type=kind,
        phase=cast(NodePhase, as_read(phase)),
        launched_at=launched_at,
        gpus=(None,) * kind.gpus,
        launched_by=f"launch-{name}",
        idle_since=since if phase == "ready" else None,
    )


def a_job(name: JobId = "a", **changes: Any) -> Job:
    """Return a job of class "c" that arrived at 0 and has one GPU-hour of work left."""
    values: dict[str, Any] = {
        "id": as_read(name),
        "class_name": "c",
        "arrived_at": 0.0,
        "phase": 0,
        "remaining_gpu_hours": 1.0,
    }
    return Job(**(values | changes))


def a_policy_node(
    name: NodeId = "n1", *, gpus: int = 4, is_ready: bool = True, gpu_type: str = "gpu"
) -> Node:
    """Return a node as placers get it."""
    return Node(
        id=as_read(name), instance_type=an_instance_type(gpu_type=gpu_type, gpus=gpus), is_ready=is_ready
    )


def some_slots(node: NodeId, *indices: int) -> tuple[GpuSlot, ...]:
    """Return some GPU slots of one node."""
    return tuple(GpuSlot(as_read(node), index) for index in indices)


def a_state(
    *jobs: Job,
    nodes: Sequence[NodeState] = (),
    held: Mapping[JobId, tuple[GpuSlot, ...]] | None = None,
    now: float = 0.0,
    **changes: Any,
) -> ClusterState:
    """Return a consistent state in which each job of `held` runs on its slots."""
    held = held or {}
    by_id = {node.id: node for node in nodes}
    states: dict[JobId, JobState] = {}
    for job in jobs:
        slots = held.get(job.id, ())
        kinds = [by_id[slot.node].instance_type.gpu_type for slot in slots]
        width = Width(kinds[0], len(slots)) if slots else None
        states[job.id] = JobState(job=replace(job, width=width), slots=slots, generation=1 if slots else 0)
        for slot in slots:
            node = by_id[slot.node]
            gpus = (*node.gpus[: slot.index], job.id, *node.gpus[slot.index + 1 :])
            by_id[slot.node] = replace(node, gpus=gpus, idle_since=None)
    return ClusterState(now=now, tick=1, nodes=by_id, jobs=states, **changes)


def a_class(
    name: str = "c",
    *,
    sizes: Sequence[float] = (1.0,),
    curve: SpeedupCurve | None = None,
    gpu_type: str = "gpu",
    **changes: Any,
) -> JobClass:
    """Return a class with one speed-up for all its phases: a table for 1, 2 and 4 GPUs unless given."""
    speedup = curve or Table(gpus=(1, 2, 4), speeds=(1.0, 1.8, 3.0))
    phases = tuple(Phase(size_gpu_hours=size, speedups={gpu_type: speedup}) for size in sizes)
    return JobClass(name=name, phases=phases, **changes)


def a_problem(*classes: JobClass, usd_per_gpu_hour: float = 1.0, budget: Budget | None = None) -> Problem:
    """Return a problem with one GPU type, "gpu"."""
    return Problem(
        classes=classes or (a_class(),),
        gpu_types=(GpuType(name="gpu", usd_per_gpu_hour=usd_per_gpu_hour),),
        budget_unit="usd_per_hour" if budget is None else budget.unit,
    )


def a_trace(*arrivals: float, class_names: Sequence[str] = (), scales: Sequence[float] = ()) -> Trace:
    """Return a trace of arrivals in seconds, with class "c" and scale 1 by default."""
    names, factors = class_names or ["c"] * len(arrivals), scales or [1.0] * len(arrivals)
    rows = zip(arrivals, names, factors, strict=True)
    return Trace(tuple(TraceJob(f"j{n}", at, name, scale) for n, (at, name, scale) in enumerate(rows)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """An allocator that returns fixed widths for the jobs that it is given."""

    widths: Mapping[JobId, int]
    nodes: Mapping[str, int] | None = None

    def allocate(self, jobs: Sequence[Job], *, now: float, money: Money | None = None) -> Allocation:
        """Return the widths, GPUs of type "gpu"."""
        widths = {job.id: Width(as_read("gpu"), self.widths[job.id]) for job in jobs if job.id in self.widths}
        return Allocation(widths=widths, nodes=self.nodes)


class NoJobs:
    """A job source without jobs, users, teams and claims."""

    def jobs(self) -> dict[str, Any]:
        """Return an empty mapping."""
        return {}

    def users(self) -> dict[str, Any]:
        """Return an empty mapping."""
        return {}

    def teams(self) -> dict[str, Any]:
        """Return an empty mapping."""
        return {}

    def claims(self) -> dict[str, Any]:
        """Return an empty mapping."""
        return {}


class ManualClock:
    """A clock that a test sets."""

    def __init__(self, instant: float = 0.0) -> None:
        self.instant = instant

    def now(self) -> float:
        """Return the instant that the test set."""
        return self.instant


class Ideal:
    """A world in which every action succeeds at once: launched nodes are ready, stopped jobs have stopped.

    Actions of the types in `refuse` are refused. An action that no tick may ask for raises AssertionError.
    """

    def __init__(self, state: ClusterState, *, refuse: Sequence[type] = ()) -> None:
        self.nodes_by_id = dict(state.nodes)
        self.jobs_by_id = dict(state.jobs)
        self.clock = ManualClock(state.now)
        self.refuse = tuple(refuse)
        self.done: list[Action] = []
        self.ended: list[NodeState] = []

    def nodes(self) -> Sequence[NodeState]:
        """Return the live nodes and the ended ones."""
        return [*self.nodes_by_id.values(), *self.ended]

    def jobs(self) -> Mapping[JobId, JobState]:
        """Return the jobs."""
        return dict(self.jobs_by_id)

    def users(self) -> Mapping[str, UserMoney]:
        """Return an empty mapping: no user has a cap."""
        return {}

    def teams(self) -> Mapping[str, TeamMoney]:
        """Return an empty mapping: there are no teams."""
        return {}

    def claims(self) -> Mapping[JobId, Claim]:
        """Return an empty mapping: jobs stop at once, so none is between its stop and its start."""
        return {}

    def offers(self) -> Sequence[Offer]:
        """Return no offers: there is one zone, and each type has its own price."""
        return ()

    def launch(self, action: LaunchNodes) -> Launched | Refused | Unknown:
        """Add ready nodes."""
        if isinstance(action, self.refuse):
            return Refused(reason="no capacity", kind="no-capacity", retry_after_seconds=60.0)
        self.done.append(action)
        names = tuple(f"node-of-{action.id}-{number}" for number in range(action.count))
        for name in names:
            node = a_node(name, launched_at=self.clock.now(), kind=action.instance_type)
            self.nodes_by_id[name] = replace(node, launched_by=action.id)
        return Launched(nodes=names)

    def terminate(self, actions: Sequence[TerminateNode]) -> Mapping[NodeId, Accepted | Refused | Unknown]:
        """Remove nodes; raise AssertionError if jobs run on one."""
        return {action.node: self._terminate(action) for action in actions}

    def _terminate(self, action: TerminateNode) -> Accepted | Refused:
        if isinstance(action, self.refuse):
            return Refused(reason="not now")
        self.done.append(action)
        node = self.nodes_by_id.pop(action.node)
        if node.free_gpus < len(node.gpus):
            raise AssertionError(f"{node.id} was terminated under running jobs")
        self.ended.append(replace(node, phase="terminated", ended_at=self.clock.now()))
        return Accepted()

    def start(self, action: StartJob) -> Accepted | Refused:
        """Start a job on free GPUs; raise AssertionError if a GPU is taken or the job runs already."""
        if isinstance(action, self.refuse):
            return Refused(reason="not now")
        self.done.append(action)
        job = self.jobs_by_id[action.job]
        if job.slots or action.generation <= job.generation:
            raise AssertionError(f"{action.job} was started twice")
        self._write(action.slots, action.job)
        self.jobs_by_id[action.job] = replace(
            job, job=replace(job.job, width=action.width), slots=action.slots, generation=action.generation
        )
        return Accepted()

    def stop(self, action: StopJob) -> Accepted | Refused:
        """Take a job off its GPUs."""
        if isinstance(action, self.refuse):
            return Refused(reason="not now")
        self.done.append(action)
        job = self.jobs_by_id[action.job]
        self._write(job.slots, None)
        self.jobs_by_id[action.job] = replace(job, job=replace(job.job, width=None), slots=())
        return Accepted()

    def ready_all(self) -> None:
        """Make every requested node ready."""
        for name, node in self.nodes_by_id.items():
            if node.phase == "requested":
                self.nodes_by_id[name] = replace(node, phase="ready", idle_since=self.clock.now())

    def do(self, actions: Sequence[Action]) -> None:
        """Carry out actions in order."""
        for action in actions:
            if isinstance(action, StartJob):
                self.start(action)
            elif isinstance(action, StopJob):
                self.stop(action)
            elif isinstance(action, LaunchNodes):
                self.launch(action)
            elif isinstance(action, TerminateNode):
                self.terminate([action])

    def _write(self, slots: Sequence[GpuSlot], job: JobId | None) -> None:
        """Assign GPUs to a job, or to None."""
        for slot in slots:
            node = self.nodes_by_id[slot.node]
            if node.phase != "ready" or (job is not None and node.gpus[slot.index] is not None):
                raise AssertionError(f"{slot} is not free for {job}")
            gpus = (*node.gpus[: slot.index], job, *node.gpus[slot.index + 1 :])
            is_idle = gpus.count(None) == len(gpus)
            self.nodes_by_id[slot.node] = replace(
                node, gpus=gpus, idle_since=self.clock.now() if is_idle else None
            )


def states() -> SearchStrategy[tuple[ClusterState, Wishes]]:
    """Return a strategy for pairs of a consistent state of four-GPU nodes and wished widths for its jobs."""
    from hypothesis import strategies as st  # noqa: PLC0415 - a test library, for tests alone

    @st.composite
    def build(draw: DrawFn) -> tuple[ClusterState, Wishes]:
        phases = draw(st.lists(st.sampled_from(["ready", "ready", "requested"]), max_size=5))
        nodes = [a_node(f"n{n}", phase=phase) for n, phase in enumerate(phases)]  # type: ignore[arg-type]
        free = [
            GpuSlot(node.id, index)
            for node in nodes
            if node.phase == "ready"
            for index in range(len(node.gpus))
        ]
        free = draw(st.permutations(free))
        jobs = [a_job(f"j{n}", arrived_at=float(n)) for n in range(draw(st.integers(0, 6)))]
        held: dict[JobId, tuple[GpuSlot, ...]] = {}
        for job in jobs:
            held[job.id] = tuple(free.pop() for _ in range(min(len(free), draw(st.integers(0, 5)))))
        wished = {job.id: draw(st.integers(0, 9)) for job in jobs}
        state = a_state(*jobs, nodes=nodes, held=held, now=1000.0)
        return state, Wishes(widths={job: gpus for job, gpus in wished.items() if gpus})

    return build()
