"""The fallback when a tick fails: keep the caps, obey orders to cancel or go down, end hung jobs.

This code needs no plan and trusts no port. When a port raises, the answer comes from memory, and each action
is tried separately. Nodes with jobs keep running. The leases of other nodes are not renewed, so these nodes
end by themselves while the trouble lasts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from boa_daemon.daemon.jobs.job_view import JobView
from boa_daemon.store.storage import Storage
from boa_daemon.tick.decide.controller import requested_node
from boa_daemon.tick.facts.actions import EndGeneration, StopJob, TerminateNode
from boa_daemon.tick.facts.limits import day_of, month_of
from boa_daemon.tick.facts.pending_ends import PendingEnds
from boa_daemon.tick.facts.plan import Plan
from boa_daemon.tick.facts.ports import Clock, Cloud, OpenLaunch, Outcome, Provider, Runner, Unknown
from boa_daemon.tick.facts.state import ClusterState, JobState, NodeState, Rules
from boa_daemon.tick.money.caps import within_caps
from boa_daemon.tick.money.ledger import bill_within, charge_for
from boa_daemon.tick.room.hung_jobs import hung_jobs
from policies.model import JobId, NodeId

_Value = TypeVar("_Value")
UNSEEN_SECONDS = 300.0
"""How long a launch without an answer counts as a node that may exist, as in the tick."""
CAP, DOWN = "a cap would be exceeded", "everything is to be released"


@dataclass(slots=True, kw_only=True)
class CapKeeper:
    """Acts on the ports without a plan; `troubles` lists the errors of the last call, for the log.

    `ends` are the ends that the cloud refused or did not answer.
    """

    cloud: Provider
    runner: Runner
    clock: Clock
    ends: PendingEnds = field(default_factory=PendingEnds)
    troubles: list[str] = field(default_factory=list)

    def _keep_caps(self, state: ClusterState, rules: Rules) -> tuple[NodeId, ...]:
        """Stop the jobs and release the nodes that would exceed a cap; return these nodes."""
        plan = self._try(lambda: within_caps(state, _NOTHING, rules), _NOTHING, "the caps")
        for name in plan.jobs.stops:
            self._stop(name, state.jobs[name], f"cap-{name}", CAP)
        gone = tuple(dict.fromkeys((*plan.releases, *plan.forced)))
        self._end(gone, CAP)
        return gone

    def _renew(self, state: ClusterState, gone: Collection[NodeId]) -> None:
        """Renew the leases of the nodes with jobs."""
        carrying = [name for name, node in state.nodes.items() if any(node.gpus) and name not in gone]
        self._try(lambda: self.cloud.renew(carrying), None, "leases")

    def _stop(self, name: JobId, job: JobState, order: str, reason: str) -> None:
        """Ask one job to write a checkpoint and end."""
        stop = StopJob(id=order, job=name, generation=job.generation, reason=reason)
        self._try(lambda: self.runner.stop(stop), None, f"job {name}")

    def _end(self, names: Sequence[NodeId], reason: str) -> None:
        """Release nodes, one by one."""
        for name in names:
            self._terminate(self.cloud, [name], reason, f"node {name}")

    def _terminate(self, cloud: Cloud, names: Sequence[NodeId], reason: str, what: str) -> bool:
        """Tell the cloud to end nodes, and note what it answered; return whether it answered."""
        orders = [TerminateNode(id=f"last-{name}", node=name, reason=reason) for name in names]
        none: Mapping[NodeId, Outcome] | None = None
        answers = self._try(lambda: cloud.terminate(orders), none, what)
        silent = Unknown(reason=self.troubles[-1] if answers is None else "no answer for this node")
        outcomes = [(name, silent if answers is None else answers.get(name, silent)) for name in names]
        self.ends.note(outcomes, at=self.clock.now())
        return answers is not None

    def _try(self, do: Callable[[], _Value], otherwise: _Value, what: str) -> _Value:
        """Return the result of `do`; on an error, record the trouble and return `otherwise`."""
        try:
            return do()
        except Exception as error:
            self.troubles.append(f"{what}: {type(error).__name__}: {error}".splitlines()[0][:300])
            return otherwise


@dataclass(slots=True, kw_only=True)
class WithoutDatabase(CapKeeper):
    """Keeps the caps and the leases from the state of the last tick, while the database cannot be read.

    Nodes that are missing from the cloud's list are counted as paid until now, so money is never counted
    too low. The running jobs stay; only a cap ends a node.
    """

    _jobs_on: dict[NodeId, list[tuple[JobId, int]]] = field(default_factory=dict)

    def act(self, rules: Rules, last: ClusterState, *, now: float) -> None:
        """Release what would exceed a cap, and renew the leases of nodes with jobs."""
        self.troubles.clear()
        state = self._state(last, now)
        gone = self._keep_caps(state, rules)
        self._renew(state, gone)

    def _end(self, names: Sequence[NodeId], reason: str) -> None:
        """Kill the jobs on the nodes, so that none runs on unseen, and release the nodes."""
        for name in names:
            for job, generation in self._jobs_on.get(name, ()):
                self._try(partial(self.runner.kill, job, generation), None, f"job {job}")
        # `super()` does not work here: with slots the decorator makes another class than the one it is in.
        CapKeeper._end(self, names, reason)

    def _state(self, last: ClusterState, now: float) -> ClusterState:
        """Return the last state as of now: with the cloud's nodes, and with the bills of those that ended."""
        jobs = last.all_jobs
        held = {name: node.gpus for name, node in last.nodes.items()}
        listed = self._try(lambda: {node.id: node for node in self.cloud.nodes()}, None, "the cloud's list")
        nodes: dict[NodeId, NodeState] = {}
        over: list[NodeState] = []
        for name, node in last.nodes.items():
            there = node if listed is None else listed.get(name)
            if there is None and not node.is_listed:
                # A launch without an answer: it may still be listed under its own name.
                if now - node.launched_at <= UNSEEN_SECONDS:
                    nodes[name] = node
                continue
            if there is None or there.ended_at is not None:
                over.append(node if there is None else there)
        for name, node in (last.nodes if listed is None else listed).items():
            if node.ended_at is None and name not in nodes:
                nodes[name] = replace(node, gpus=held.get(name, node.gpus))
        fresh = [
            node
            for node in (listed or {}).values()
            if node.ended_at is not None and node.ended_at >= last.now and node.id not in last.nodes
        ]
        over += fresh
        self._jobs_on = {}
        for name, job in jobs.items():
            for slot in job.slots:
                self._jobs_on.setdefault(slot.node, []).append((name, job.generation))
        day, month = day_of(now), month_of(now)
        is_today, is_this_month = day_of(last.now) == day, month_of(last.now) == month
        return replace(
            last,
            now=now,
            nodes=nodes,
            jobs=jobs,
            unplanned={},
            settled_today_micro_dollars=(last.settled_today_micro_dollars if is_today else 0)
            + sum(bill_within(node, day, until=node.ended_at or now) for node in over),
            settled_month_micro_dollars=(last.settled_month_micro_dollars if is_this_month else 0)
            + sum(bill_within(node, month, until=node.ended_at or now) for node in over),
        )


@dataclass(slots=True, kw_only=True)
class FallbackTick(CapKeeper):
    """The fallback of a daemon with a database."""

    fleet: Cloud
    work: JobView
    storage: Storage
    grace_seconds: float
    _down_since: float | None = None
    _last_nodes: dict[NodeId, NodeState] = field(default_factory=dict)

    def keep(self, rules: Rules, last: ClusterState | None, *, now: float) -> None:
        """Only keep the caps and renew leases: another daemon may lead, but no order says otherwise."""
        self.troubles.clear()
        state = self._state(last, now)
        self._renew(state, self._keep_caps(state, rules))

    def act(self, rules: Rules, last: ClusterState | None, *, now: float, is_down: bool) -> None:
        """Release nodes that would exceed a cap, or all when going down; stop cancelled and hung jobs."""
        self.troubles.clear()
        state = self._state(last, now)
        released = self._keep_caps(state, rules)
        self._down_since = self._down_since if is_down else None
        going = self._going_down(state, now) if is_down else []
        self._end([name for name in going if name not in released], DOWN)
        for name, why in hung_jobs(state)[0].items():
            end = EndGeneration(
                id=f"hangs-{name}", job=name, generation=state.jobs[name].generation, reason=why
            )
            self._try(partial(self.work.end, end), None, f"job {name}, which hangs")
        for record in list(self.storage.queue.active.values()):
            if record.is_cancelled and record.slots:
                order = StopJob(
                    id=f"cancel-{record.id}", job=record.id, generation=record.generation, reason="cancelled"
                )
                self._try(partial(self.work.stop, order), None, "a cancelled job")
        self._renew(state, {*released, *going})

    def _going_down(self, state: ClusterState, now: float) -> list[NodeId]:
        """Stop all jobs; return the nodes without jobs, and all nodes once the grace period is over."""
        self._down_since = now if self._down_since is None else self._down_since
        for name, job in state.jobs.items():
            if job.slots and not job.is_stopping:
                self._stop(name, job, f"down-{name}", DOWN)
        is_late = now - self._down_since > self.grace_seconds
        live = [node for node in state.nodes.values() if node.is_listed]
        return [node.id for node in live if is_late or not any(node.gpus)]

    def _end(self, names: Sequence[NodeId], reason: str) -> None:
        """Release nodes in one call; if it fails, one by one."""
        if not names or self._terminate(self.fleet, names, reason, "nodes to give back"):
            return
        CapKeeper._end(self, names, reason)

    def _state(self, last: ClusterState | None, now: float) -> ClusterState:
        """Return the cluster state from the ports, and from memory for ports that do not answer."""
        store, queue = self.storage.store, self.storage.queue
        known = {name: record.node for name, record in queue.instances.items()}
        listed = self._try(lambda: {node.id: node for node in self.cloud.nodes()}, None, "the cloud's list")
        if listed is not None:
            self._last_nodes = {name: node for name, node in listed.items() if node.ended_at is None}
        nodes = dict(self._last_nodes) if listed is not None else {**known, **self._last_nodes}
        ended = [node for node in (listed or {}).values() if node.ended_at is not None]
        nothing: list[OpenLaunch] = []
        for launch in self._try(lambda: list(store.unsettled()), nothing, "open launches"):
            for name in launch.unseen:
                if name not in nodes:
                    nodes[name] = requested_node(name, launch.action, at=launch.at)
        jobs = self._try(self.work.jobs, {} if last is None else last.all_jobs, "the jobs")
        held = queue.holders()
        uncharged = [node for node in ended if not self._is_charged(node)]
        return ClusterState(
            now=now,
            tick=0 if last is None else last.tick,
            nodes={name: _with_jobs(node, held.get(name, {}), jobs) for name, node in nodes.items()},
            jobs=jobs,
            offers=() if last is None else last.offers,
            teams=self._try(self.work.teams, {} if last is None else last.teams, "the purses of teams"),
            settled_micro_dollars=store.settled_micro_dollars(),
            settled_today_micro_dollars=store.settled_since(day_of(now).begins_at)
            + sum(bill_within(node, day_of(now), until=node.ended_at or now) for node in uncharged),
            settled_month_micro_dollars=store.settled_since(month_of(now).begins_at)
            + sum(bill_within(node, month_of(now), until=node.ended_at or now) for node in uncharged),
            standing_charged_until=store.standing_charged_until(),
        )

    def _is_charged(self, node: NodeState) -> bool:
        """Record the final bill of a node that ended; return whether that succeeded."""

        def charge() -> bool:
            self.storage.store.record_charge(charge_for(node))
            return True

        return self._try(charge, False, "a final bill")


_NOTHING = Plan()


def _with_jobs(node: NodeState, held: Mapping[int, JobId], jobs: Mapping[JobId, JobState]) -> NodeState:
    """Return a node with its jobs; unknown jobs are left out."""
    if node.phase == "stopped":
        return node
    gpus = (held.get(index) for index in range(node.instance_type.gpus))
    return replace(node, gpus=tuple(job if job in jobs else None for job in gpus))
