"""run_once(): the shell around decide().  Observe, decide, record the intent, act, record the outcome.

The daemon and the simulator run the same program; only the ports differ. A tick starts from what it observes,
so the next tick makes up for a missed one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from boa_daemon.errors import BoaError
from boa_daemon.tick.decide.decision import Decision, decide
from boa_daemon.tick.decide.gc_pause import without_gc
from boa_daemon.tick.facts.actions import (
    Action,
    EndGeneration,
    GiveUpJob,
    LaunchNodes,
    StartJob,
    StopJob,
    TerminateNode,
)
from boa_daemon.tick.facts.draft import SOON_SECONDS
from boa_daemon.tick.facts.limits import day_of, month_of
from boa_daemon.tick.facts.offers import closes_wide_orders
from boa_daemon.tick.facts.pending_ends import PendingEnds
from boa_daemon.tick.facts.ports import (
    Clock,
    Cloud,
    Engine,
    JobEnder,
    JobSource,
    Launched,
    LaunchFailureSource,
    LinkGate,
    Outcome,
    ReadinessChecker,
    Refused,
    Store,
    Telemetry,
    Unknown,
)
from boa_daemon.tick.facts.state import Claim, ClusterState, JobState, NodeState, Rules
from boa_daemon.tick.money.ledger import charge_for, opening_of
from policies.fast_dataclasses import replace
from policies.links.gpu_kinds import siblings
from policies.model import Job, JobId, NodeId, Width
from policies.protocols import Allocator, Placer

_Nodes: TypeAlias = dict[NodeId, NodeState]
_Jobs: TypeAlias = Mapping[JobId, JobState]


class ActsFailed(BoaError):
    """A tick did all it could, but some acts raised unexpected errors. Their outcomes are unknown."""

    def __init__(self, failures: Sequence[str], decision: Decision) -> None:
        more = "" if len(failures) == 1 else f" (and {len(failures) - 1} more)"
        super().__init__(f"an act failed: {failures[0]}{more}")
        self.decision = decision


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Everything outside the controller."""

    clock: Clock
    cloud: Cloud
    jobs: JobSource
    engine: Engine
    store: Store
    telemetry: Telemetry | None = None
    links: LinkGate | None = None
    ends: PendingEnds = field(default_factory=PendingEnds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """A policy, the site's rules, and the ports to act through.

    `is_job_by_job`: no job changes the width that the allocator gives another. `is_round_by_round`: the
    allocator leaves every job what it holds until its next round is due. An accepted launch that the cloud's
    list does not show within `unseen_seconds` is given up: listings lag, but not that long. Jobs whose class
    is not in `classes` are not planned; None: the policy knows all classes.
    """

    allocator: Allocator
    placer: Placer
    rules: Rules
    ports: Ports
    is_job_by_job: bool = False
    is_round_by_round: bool = False
    unseen_seconds: float = 300.0
    classes: frozenset[str] | None = None

    @without_gc
    def run_once(self) -> Decision:
        """Do one tick and return its decision."""
        decision = self._decide(self.observe())
        state = decision.state
        self.ports.store.record_decision(state, decision.actions, decision.plan)
        if decision.plan.memory is not None:
            self.ports.store.record_memory(decision.plan.memory, at=state.now)
        orders = [action for action in decision.actions if not isinstance(action, LaunchNodes)]
        failures = self._carry_out(orders, at=state.now)
        # A launch is recorded only when it is sent: its intent counts as nodes that may exist.
        for action in decision.actions[len(orders) :]:
            failures += self._carry_out([action], at=state.now)
        failures += self._order_links(decision)
        decision = self._ended_again(self._looked_at_again(decision))
        if failures:
            raise ActsFailed(failures, decision)
        return decision

    def _decide(self, state: ClusterState) -> Decision:
        """Decide; if the next starts of moving jobs are not ready, decide again with that fact."""
        decision = decide(state, allocator=self.allocator, placer=self.placer, rules=self.rules)
        starts = [action for action in decision.actions if isinstance(action, StartJob)]
        moves = [start for start in starts if state.jobs[start.job].slots]
        engine = self.ports.engine
        if not moves or not isinstance(engine, ReadinessChecker):
            return decision
        not_ready = frozenset(start.job for start in moves if not engine.is_ready_for(start))
        if not not_ready:
            return decision
        state = replace(state, not_ready=not_ready)
        return decide(state, allocator=self.allocator, placer=self.placer, rules=self.rules)

    def _looked_at_again(self, decision: Decision) -> Decision:
        """Return the decision, with another tick at once if a refused launch may become a different one."""
        state = decision.state
        if not decision.plan.launches:
            return decision
        cooldowns = self.ports.store.cooldowns(state.now)
        if cooldowns == state.cooldowns:
            return decision
        if not (siblings(self.rules.instance_types) or closes_wide_orders(cooldowns)):
            return decision
        return replace(decision, plan=decision.plan.looked_at_by(state.now + SOON_SECONDS))

    def _ended_again(self, decision: Decision) -> Decision:
        """Return the decision, with another tick soon if the cloud did not end a node that was told to."""
        state, now = decision.state, self.ports.clock.now()
        again = self.ports.ends.again_at(state.nodes, since=state.now, now=now)
        return decision if again is None else replace(decision, plan=decision.plan.looked_at_by(again))

    def _order_links(self, decision: Decision) -> list[str]:
        """Tell the gate the decision; return what failed."""
        if self.ports.links is None:
            return []
        try:
            self.ports.links.follow(decision.state, decision.plan)
        except Exception as error:
            return [f"links could not be ordered: {type(error).__name__}: {error}"]
        return []

    def observe(self) -> ClusterState:
        """Return everything known now; the bills of ended nodes become final on the way."""
        ports, store, now = self.ports, self.ports.store, self.ports.clock.now()
        listed = ports.cloud.nodes()
        nodes: _Nodes = {node.id: node for node in listed if node.ended_at is None}
        if len(nodes) < len(listed):
            for node in listed:
                if node.ended_at is not None:
                    store.record_charge(charge_for(node))
        store.reopen_charges(nodes)
        if isinstance(ports.cloud, LaunchFailureSource):
            for _, refused in ports.cloud.failed_launches():
                store.close_offers(refused, at=now)
        self._add_unseen(nodes, listed, now)
        tick = store.next_tick()
        jobs, unplanned = self._by_class(ports.jobs.jobs())
        state = ClusterState(
            now=now,
            tick=tick,
            nodes=nodes,
            jobs=jobs,
            unplanned=unplanned,
            offers=tuple(ports.cloud.offers()),
            cooldowns=store.cooldowns(now),
            settled_micro_dollars=store.settled_micro_dollars(),
            books_opened_at=store.books_opened_at(now),
            memory=store.memory(),
            users=ports.jobs.users(),
            teams=ports.jobs.teams(),
            claims=_claims_of(ports.jobs),
            gate=None if ports.links is None else ports.links.look(),
        )
        return self._with_books_in_time(self._with_history(state))

    def _by_class(self, jobs: _Jobs) -> tuple[_Jobs, _Jobs]:
        """Return the jobs that the policy can plan, and the others, both in order of arrival.

        A job with a new width limit makes a class of its own. A job submitted between the building of a
        policy and the reading of the jobs is left to the next tick, which its submission has requested
        already.
        """
        known = self.classes
        if known is None or known.issuperset([state.job.class_name for state in jobs.values()]):
            return jobs, {}
        planned = {name: state for name, state in jobs.items() if state.job.class_name in known}
        return planned, {name: state for name, state in jobs.items() if name not in planned}

    def _with_history(self, state: ClusterState) -> ClusterState:
        """Return the state with what limits need: the day's and the month's bills, and recent acts."""
        store, steady = self.ports.store, self.rules.steady
        if steady is not None:
            state = replace(state, acts=tuple(store.acts_since(state.now - steady.memory_seconds)))
        if self.rules.caps is None:
            return state
        return replace(
            state,
            settled_today_micro_dollars=store.settled_since(day_of(state.now).begins_at),
            settled_month_micro_dollars=store.settled_since(month_of(state.now).begins_at),
            standing_charged_until=store.standing_charged_until(),
        )

    def _with_books_in_time(self, state: ClusterState) -> ClusterState:
        """Return the state with the budget starting later if money was unspent for longer than a window."""
        if self.rules.pace is None:
            return state
        opening = opening_of(state, self.rules.pace, self.rules.fixed)
        if opening is None or opening == state.books_opened_at:
            return state
        self.ports.store.reopen_books(opening)
        return replace(state, books_opened_at=opening)

    def needs_tick(self, job: Job, *, is_still: bool = False) -> bool:
        """Return whether a job in a new phase needs a tick: unless it surely keeps its width.

        `is_still`: the last tick did nothing, and only ends of phases happened since. Between two rounds a
        further tick would do nothing either.
        """
        now, every = self.ports.clock.now(), self.rules.round_seconds
        if is_still and self.is_round_by_round and every is not None:
            memory = self.ports.store.memory()
            return memory is None or now - memory[1] > every - SOON_SECONDS
        if not self.is_job_by_job:
            return True
        width = self._width_alone(job, now)
        if width == job.width or job.phase == 0:
            return width != job.width
        # The job holds another width than planned; the phase is not why if it did not change the plan.
        return width != self._width_alone(replace(job, phase=job.phase - 1), now)

    def next_phase_to_look_at(self, job: Job) -> int:
        """Return the next phase of a job whose start may need a tick, if the job keeps what it holds.

        `needs_tick` is False for the phases before it; the number of phases if there is none. If the
        allocator does not know a job's widths in advance, it is the very next phase.
        """
        if not self.is_job_by_job or self.rules.round_seconds is not None:
            return job.phase + 1
        by_phase: Callable[[Job], Sequence[Width]] | None = getattr(self.allocator, "by_phase", None)
        if by_phase is None:
            keeps_until: Callable[[Job], int] | None = getattr(self.allocator, "keeps_until", None)
            return job.phase + 1 if keeps_until is None else keeps_until(job)
        widths = by_phase(job)
        held, before = job.width, widths[job.phase]
        for phase in range(job.phase + 1, len(widths)):
            width = widths[phase]
            # Identity is tested first, because most neighbouring phases share their width.
            if width is not held and width is not before and width not in (held, before):
                return phase
            before = width
        return len(widths)

    def _width_alone(self, job: Job, now: float) -> Width | None:
        """Return the width that the allocator gives a job asked about by itself."""
        alone: Callable[[Job], Width] | None = getattr(self.allocator, "alone", None)
        if alone is not None:
            return alone(job)
        return self.allocator.allocate((job,), now=now).widths.get(job.id)

    def _add_unseen(self, nodes: _Nodes, listed: Sequence[NodeState], now: float) -> None:
        """Count launched nodes that no listing shows yet as requested, so that none is rented twice."""
        unsettled = self.ports.store.unsettled()
        if not unsettled:
            return
        by_launch: dict[str, list[NodeId]] = {launch.action.id: [] for launch in unsettled}
        for node in listed:
            if node.launched_by in by_launch:
                by_launch[node.launched_by].append(node.id)
        for open_launch in unsettled:
            launch, action = open_launch, open_launch.action
            found = by_launch[action.id]
            if not launch.seen.issuperset(found):
                self.ports.store.record_seen(action.id, found)
                launch = replace(launch, seen=launch.seen.union(found))
            unseen = launch.unseen
            if unseen and now - launch.at > self.unseen_seconds and not self._is_hidden(action):
                self.ports.store.give_up(
                    action.id, f"not in the cloud's list after {now - launch.at:.0f} s", at=now
                )
                continue
            for name in unseen:
                nodes[name] = requested_node(name, action, at=launch.at)

    def _is_hidden(self, action: LaunchNodes) -> bool:
        """Return whether the cloud cannot list now what a launch may have made."""
        hides: Callable[[LaunchNodes], bool] | None = getattr(self.ports.cloud, "hides", None)
        return hides is not None and hides(action)

    def _carry_out(self, actions: Sequence[Action], *, at: float) -> list[str]:
        """Record the intents, act, record the outcomes; return what the ports raised.

        If one act raises, the others are still done; the outcome of that act is unknown, as after a crash.
        """
        if not actions:
            return []
        self.ports.store.record_intents(actions, at=at)
        outcomes: list[tuple[Action, Outcome]] = []
        failures: list[str] = []
        for together in _requests(actions):
            try:
                done = self._act(together)
            except Exception as error:
                said = f"{type(error).__name__}: {error}"
                failures += [f"{action.id}: {said}" for action in together]
                done = [Unknown(reason=said)] * len(together)
            outcomes += zip(together, done, strict=True)
        ends = [(action.node, outcome) for action, outcome in outcomes if isinstance(action, TerminateNode)]
        if ends:
            self.ports.ends.note(ends, at=self.ports.clock.now())
        self.ports.store.record_outcomes(outcomes, at=at)
        if self.ports.telemetry is not None:
            for action, outcome in outcomes:
                self.ports.telemetry.say(f"{action.id}: {_said(action, outcome)}", action=action.id)
        return failures

    def _act(self, actions: Sequence[Action]) -> Sequence[Outcome]:
        """Send actions to their port: terminations together, everything else one at a time."""
        first = actions[0]
        if isinstance(first, StartJob):
            return [self.ports.engine.start(first)]
        if isinstance(first, StopJob):
            return [self.ports.engine.stop(first)]
        if isinstance(first, LaunchNodes):
            return [self.ports.cloud.launch(first)]
        if isinstance(first, EndGeneration | GiveUpJob):
            engine = self.ports.engine
            # Only such an engine has jobs with these facts.
            assert isinstance(engine, JobEnder)
            return [engine.end(first) if isinstance(first, EndGeneration) else engine.give_up(first)]
        orders = [action for action in actions if isinstance(action, TerminateNode)]
        outcomes, silent = self.ports.cloud.terminate(orders), Unknown(reason="no answer for this node")
        return [outcomes.get(order.node, silent) for order in orders]


def _requests(actions: Sequence[Action]) -> Iterator[list[Action]]:
    """Yield the actions that go into one request: consecutive terminations together."""
    ends: list[Action] = []
    for action in actions:
        if isinstance(action, TerminateNode):
            ends.append(action)
            continue
        if ends:
            yield ends
            ends = []
        yield [action]
    if ends:
        yield ends


def _claims_of(jobs: JobSource) -> Mapping[JobId, Claim]:
    """Return the claims of jobs between stop and start; a source whose jobs stop at once has none."""
    claims: Callable[[], Mapping[JobId, Claim]] | None = getattr(jobs, "claims", None)
    return {} if claims is None else claims()


def requested_node(name: NodeId, launch: LaunchNodes, *, at: float) -> NodeState:
    """Return a node that was requested and is not listed yet."""
    offer = launch.offer
    price = None if offer is None else offer.compute_usd_per_hour
    return NodeState(
        id=name,
        instance_type=launch.instance_type,
        phase="requested",
        launched_at=at,
        gpus=(None,) * launch.instance_type.gpus,
        launched_by=launch.id,
        zone="" if offer is None else offer.zone,
        market="on-demand" if offer is None else offer.market,
        is_listed=False,
        prices=() if price is None else ((at, price),),
        extras=() if offer is None else offer.extras,
    )


def _said(action: Action, outcome: Outcome) -> str:
    if isinstance(outcome, Refused):
        return f"refused: {outcome.reason}"
    if isinstance(outcome, Unknown):
        return f"no answer: {outcome.reason}"
    if isinstance(action, LaunchNodes) and isinstance(outcome, Launched) and outcome.short is not None:
        return f"{len(outcome.nodes)} of {action.count}: {outcome.short.reason}"
    return action.reason
