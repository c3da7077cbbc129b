"""run_once(): the shell around decide().  Observe, decide, record the intent, act, record the outcome.

It is the same program for the daemon and for the simulator; only the ports differ. A tick works from what is
there, so a missed one heals itself on the next.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from boa_daemon.actions import Action, LaunchNode, StartJob, StopJob
from boa_daemon.ledger import charge_for, opening_of
from boa_daemon.ports import Clock, Cloud, Engine, JobSource, Outcome, Refused, Store, Telemetry
from boa_daemon.state import ClusterState, NodeState, Rules
from boa_daemon.tick import Decision, decide
from policies.model import Job, NodeId
from policies.protocols import Allocator, Placer

_Nodes: TypeAlias = dict[NodeId, NodeState]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Everything outside."""

    clock: Clock
    cloud: Cloud
    jobs: JobSource
    engine: Engine
    store: Store
    telemetry: Telemetry | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """A policy, the site's rules, and the ports to act through.

    `is_job_by_job` says that the allocator gives each job a width that no other job changes. A launch that
    was accepted but does not show up in the cloud's list within `unseen_seconds` is given up: listings lag,
    but not for that long.
    """

    allocator: Allocator
    placer: Placer
    rules: Rules
    ports: Ports
    is_job_by_job: bool = False
    unseen_seconds: float = 300.0

    def run_once(self) -> Decision:
        """Do one tick and return what was decided."""
        state = self.observe()
        decision = decide(state, allocator=self.allocator, placer=self.placer, rules=self.rules)
        self.ports.store.record_decision(state, decision.actions)
        if decision.plan.lean is not None:
            self.ports.store.record_lean(decision.plan.lean, at=state.now)
        for action in decision.actions:
            self._carry_out(action, at=state.now)
        if self.rules.orders_links:
            self.ports.engine.order_links(decision.plan.link_order)
        return decision

    def observe(self) -> ClusterState:
        """Return everything known now; bills of nodes that have ended become final on the way."""
        ports, now = self.ports, self.ports.clock.now()
        nodes: _Nodes = {}
        for node in ports.cloud.nodes():
            if node.ended_at is None:
                nodes[node.id] = node
            else:
                ports.store.record_charge(charge_for(node))
        self._add_unseen(nodes, now)
        state = ClusterState(
            now=now,
            tick=ports.store.next_tick(),
            nodes=nodes,
            jobs=ports.jobs.jobs(),
            refused_until=ports.store.refused_until(now),
            settled_micro_dollars=ports.store.settled_micro_dollars(),
            books_opened_at=ports.store.books_opened_at(now),
            lean=ports.store.lean(),
        )
        return self._with_books_in_time(state)

    def _with_books_in_time(self, state: ClusterState) -> ClusterState:
        """Return the state with the books opened later where money was not spent for longer than a window."""
        if self.rules.pace is None:
            return state
        opening = opening_of(state, self.rules.pace)
        if opening is None or opening == state.books_opened_at:
            return state
        self.ports.store.reopen_books(opening)
        return replace(state, books_opened_at=opening)

    def needs_tick(self, job: Job) -> bool:
        """Return whether a job in a new phase is worth a tick: unless it surely keeps its width."""
        if not self.is_job_by_job:
            return True
        widths = self.allocator.allocate((job,), now=self.ports.clock.now()).widths
        return widths.get(job.id) != job.width

    def _add_unseen(self, nodes: _Nodes, now: float) -> None:
        """Count launches whose node is not listed yet as requested nodes, so that nothing is rented twice."""
        unsettled = self.ports.store.unsettled()
        if not unsettled:
            return
        listed = {node.launched_by for node in nodes.values()}
        for launch, at in unsettled:
            if launch.id in listed:
                self.ports.store.record_seen(launch.id)
            elif now - at > self.unseen_seconds:
                gone = Refused(reason=f"not in the cloud's list after {now - at:.0f} s")
                self.ports.store.record_outcome(launch, gone, at=now)
            else:
                nodes[launch.id] = NodeState(
                    id=launch.id,
                    instance_type=launch.instance_type,
                    phase="requested",
                    launched_at=at,
                    gpus=(None,) * launch.instance_type.gpus,
                    launched_by=launch.id,
                )

    def _carry_out(self, action: Action, *, at: float) -> None:
        """Write the intent down, act, write the outcome down."""
        self.ports.store.record_intent(action, at=at)
        outcome = self._act(action)
        self.ports.store.record_outcome(action, outcome, at=at)
        if self.ports.telemetry is not None:
            said = f"refused: {outcome.reason}" if isinstance(outcome, Refused) else action.reason
            self.ports.telemetry.say(f"{action.id}: {said}", action=action.id)

    def _act(self, action: Action) -> Outcome:
        """Send one action to the port that does it."""
        if isinstance(action, StartJob):
            return self.ports.engine.start(action)
        if isinstance(action, StopJob):
            return self.ports.engine.stop(action)
        if isinstance(action, LaunchNode):
            return self.ports.cloud.launch(action)
        return self.ports.cloud.terminate(action)
