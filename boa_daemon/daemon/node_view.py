"""The nodes as the tick sees them: what the cloud lists, with the jobs that the books put on them.

The cloud knows no jobs and the books know no machines; here they meet. A node that the cloud lists as ready
is ready once the engine has prepared it, and goes back where that does not come to be: at once where the
engine refuses it, because its GPUs are not fit for work, and once a look beside a job has found that.

One that is missing from a listing is unknown, not gone: it is kept as it was last seen, and billed, for
`missing_seconds`. A job on a node that has ended is taken off it and waits again. One that the cloud takes
back, as the engine heard, ends by then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from boa_daemon.daemon.planned_markets import answer_as_planned, offers_as_planned, planned_name, rented_order
from boa_daemon.daemon.shared_gpus import planned_machine
from boa_daemon.daemon.site_commitments import SiteCommitments
from boa_daemon.learning.spot_history import SpotHistory
from boa_daemon.store.queue import JobQueue
from boa_daemon.store.records import InstanceRecord, JobRecord
from boa_daemon.tick.actions import LaunchNodes, TerminateNode
from boa_daemon.tick.ledger import bill
from boa_daemon.tick.offers import Offer
from boa_daemon.tick.ports import (
    Accepted,
    Clock,
    Cloud,
    InterruptionSource,
    Launched,
    NodeFaultDetector,
    Refused,
    Runner,
    Unknown,
)
from boa_daemon.tick.state import NodeState
from boa_daemon.units import MICRO_DOLLARS_PER_DOLLAR, SECONDS_PER_HOUR
from policies.links.gpu_kinds import is_spot, without_market
from policies.model import InstanceType, NodeId

MISSING_SECONDS = 300.0
UNPREPARED_SECONDS = 1800.0
"""A node that the engine has not prepared so long after its launch is of no use, and costs all the same."""
REMEMBERED_SECONDS = 86_400.0
"""So long it is known that a node ended, to say so should it come back."""
UNUSABLE_SECONDS = 30.0
"""A node that the cloud says runs is expected to be usable by then; after that its reason is told."""
_LOG = logging.getLogger("boa.daemon")


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusableNode:
    """A node that runs and that the engine cannot use: since when, and why."""

    since: float
    reason: str


class Fleet:
    """Implements `Cloud` around another one; `look` brings the books up to the engine before each listing.

    `may_act` raises where another daemon acts for the cluster: it is asked before each order to the cloud.
    `machines` are those that are planned with: a node is of the GPU type that its machine has there.
    """

    def __init__(
        self,
        cloud: Cloud,
        runner: Runner,
        queue: JobQueue,
        clock: Clock,
        *,
        look: Callable[[], None] = lambda: None,
        alert: Callable[[str, str], None] = lambda _key, _sentence: None,
        may_act: Callable[[], None] = lambda: None,
        machines: Callable[[], Collection[InstanceType]] = tuple,
        awaited: Callable[[], Collection[NodeId]] = tuple,
        missing_seconds: float = MISSING_SECONDS,
        spot: SpotHistory | None = None,
        paid: Callable[[], SiteCommitments] = SiteCommitments,
    ) -> None:
        self._look, self._alert, self.may_act = look, alert, may_act
        self._over: dict[NodeId, float] = {}
        self._cloud, self._runner, self._queue, self._clock = cloud, runner, queue, clock
        self._missing_seconds = missing_seconds
        self._warned: set[NodeId] = set()
        self._unusable: dict[NodeId, UnusableNode] = {}
        self._full: set[str] = set()
        self._logged: dict[NodeId, str] = {}
        self._told: dict[NodeId, NodeState] = {}
        self._machines, self._spot = machines, spot or SpotHistory()
        self._awaited, self._paid = awaited, paid
        self._as_planned: dict[InstanceType, InstanceType] = {}

    def nodes(self) -> Sequence[NodeState]:
        """Return every node with its jobs; write down what is new about them."""
        now = self._clock.now()
        listed = {node.id: self._planned_with(node) for node in self._cloud.nodes()}
        listed |= {name: self._planned_with(node) for name, node in self._missing(listed, now).items()}
        if self._paid().levels:
            written = {name: record.node for name, record in self._queue.instances.items()}
            listed = self._paid().priced(listed.values(), written, now)
        self._look()
        prepared = self._runner.prepare([node for node in listed.values() if node.phase == "ready"])
        self._note_unusable(prepared, now)
        ended = [self._ended(node, now) for node in listed.values() if node.ended_at is not None]
        self._note_returns(listed.values(), now)
        # After the ended ones: a job that was on one of them lets its other nodes go as well.
        held = self._queue.holders()
        changed: list[InstanceRecord] = []
        awaited = self._awaited()
        nodes = [
            self._noted(
                node,
                prepared.get(node.id, Accepted()),
                held.get(node.id, {}),
                now,
                changed,
                is_awaited=node.id in awaited,
            )
            for node in self._with_warnings(listed.values())
            if node.ended_at is None
        ]
        # Nobody who submits waits for the look at thousands of nodes, only for what is new about them.
        if changed:
            with self._queue.database.write():
                for record in changed:
                    self._queue.save_instance(record)
        # The same object as last time where nothing is new: whoever writes nodes down need not do it again.
        nodes = [before if before == node else node for node, before in self._with_last(nodes)]
        self._told = {node.id: node for node in nodes}
        return ended + nodes

    def _planned_with(self, node: NodeState) -> NodeState:
        """Return a node as the type that its machine and market are in the plan."""
        listed = node.instance_type
        name = planned_name(listed.name, node.market, self._names())
        planned = next((one for one in self._machines() if one.name == name), None)
        kind = without_market(listed.gpu_type) if planned is None else planned.gpu_type
        seen = self._queue.instances.get(node.id)
        before = None if seen is None else seen.node.instance_type
        found = planned_machine(listed, name=name, kind=kind, planned=planned, known=before)
        if found == listed:
            return node
        # The same object each time: whoever compares nodes does so by their types, too.
        return replace(node, instance_type=self._as_planned.setdefault(found, found))

    def _names(self) -> list[str]:
        """Return the names of the machines in the plan."""
        return [machine.name for machine in self._machines()]

    def _note_returns(self, nodes: Iterable[NodeState], now: float) -> None:
        """Say of nodes that were taken for ended that the cloud lists them again: its word wins."""
        for node in nodes:
            if node.ended_at is not None:
                self._over[node.id] = now
            elif self._over.pop(node.id, None) is not None:
                said = f"node {node.id} was taken for ended and is listed again: it is billed on"
                self._alert(f"returned:{node.id}:{int(now)}", said)
        for name in [name for name, at in self._over.items() if now - at > REMEMBERED_SECONDS]:
            del self._over[name]

    def _with_last(self, nodes: Sequence[NodeState]) -> Iterator[tuple[NodeState, NodeState]]:
        """Yield nodes, each beside what was told of it last; beside itself where that is nothing."""
        for node in nodes:
            yield node, self._told.get(node.id, node)

    def unusable(self) -> Mapping[NodeId, str]:
        """Return the nodes that have run for a while and cannot be used, and why."""
        now = self._clock.now()
        return {
            name: f"{name} has run for {now - each.since:.0f} s and cannot be used yet: {each.reason}"
            for name, each in list(self._unusable.items())
            if now - each.since >= UNUSABLE_SECONDS
        }

    def _note_unusable(self, prepared: Mapping[NodeId, Accepted | Refused | Unknown], now: float) -> None:
        """Remember why nodes cannot be used, and log each reason once, when it lasts."""
        reasons = {name: each.reason for name, each in prepared.items() if not isinstance(each, Accepted)}
        self._unusable = {
            name: UnusableNode(
                since=self._unusable[name].since if name in self._unusable else now, reason=said
            )
            for name, said in reasons.items()
        }
        for name, sentence in self.unusable().items():
            if self._logged.get(name) != reasons[name]:
                self._logged[name] = reasons[name]
                _LOG.warning("%s", sentence, extra={"node": name})
        self._logged = {name: said for name, said in self._logged.items() if name in reasons}

    def has_new_warnings(self) -> bool:
        """Return whether the engine has newly heard of a node that the cloud takes back."""
        new = _warnings(self._runner).keys() - self._warned
        self._warned |= new
        return bool(new)

    def _with_warnings(self, nodes: Iterable[NodeState]) -> Iterator[NodeState]:
        """Yield nodes with the instant at which the cloud takes them back; one that is known stays known."""
        warned, now = _warnings(self._runner), self._clock.now()
        unfit = self._runner.unfit() if isinstance(self._runner, NodeFaultDetector) else {}
        for node in nodes:
            known = self._queue.instances.get(node.id)
            before = None if known is None else known.node.ends_by
            told = [at for at in (node.ends_by, warned.get(node.id), before) if at is not None]
            if node.id in unfit and before is None and node.ended_at is None:
                self._say_unfit(node, unfit[node.id])
                told.append(now)
            yield replace(node, ends_by=min(told)) if told else node

    def _say_unfit(self, node: NodeState, why: str) -> None:
        """Say that a node goes back because of its hardware, and where it was."""
        where = f" in {node.zone}" if node.zone else ""
        said = f"node {node.id} ({node.instance_type.name}{where}) is unfit and goes back: {why}"
        _LOG.warning("%s", said, extra={"node": node.id})
        self._alert(f"unfit:{node.id}", said)

    def _missing(self, listed: Mapping[NodeId, NodeState], now: float) -> dict[NodeId, NodeState]:
        """Return known nodes that the listing lacks: as they were, or ended when that is too long ago."""
        found = {}
        for name, record in self._queue.instances.items():
            if name in listed:
                continue
            if now - record.last_seen_at <= self._missing_seconds:
                found[name] = record.node
            else:
                found[name] = replace(record.node, phase="terminated", ended_at=now)
        return found

    def _noted(
        self,
        node: NodeState,
        prepared: Accepted | Refused | Unknown,
        held: Mapping[int, str],
        now: float,
        changed: list[InstanceRecord],
        *,
        is_awaited: bool = False,
    ) -> NodeState:
        """Return a node with its jobs; what is new about it joins `changed`."""
        is_ready = node.phase == "ready" and isinstance(prepared, Accepted)
        if node.phase == "ready" and not is_ready and not held:
            node = self._unprepared(node, prepared, now)
        is_stopped = node.phase == "stopped"
        gpus = () if is_stopped else tuple(held.get(index) for index in range(node.instance_type.gpus))
        known = self._queue.instances.get(node.id)
        before = known or InstanceRecord(node=node)
        ready_at = before.ready_at
        if ready_at is None and node.phase == "ready":
            ready_at = now
        idle = None
        if node.phase == "ready" and not held and not is_awaited:
            idle = before.idle_since or now
        record = InstanceRecord(
            node=replace(node, gpus=(), idle_since=None),
            ready_at=ready_at,
            idle_since=idle,
            was_used=before.was_used or bool(held),
            last_seen_at=now,
        )
        if known is None or replace(record, last_seen_at=known.last_seen_at) != known:
            changed.append(record)
        else:
            self._queue.instances[node.id] = record
        return replace(node, gpus=gpus, idle_since=idle)

    def _unprepared(self, node: NodeState, prepared: Accepted | Refused | Unknown, now: float) -> NodeState:
        """Return a node that the engine cannot use: as one that still boots, or as one to give back."""
        if now - node.launched_at <= UNPREPARED_SECONDS and not isinstance(prepared, Refused):
            return replace(node, phase="requested")
        if node.ends_by is None:
            why = "" if isinstance(prepared, Accepted) else f": {prepared.reason}"
            _LOG.warning(
                "%s goes back: no job could run on it %.0f minutes after its launch%s",
                node.id, (now - node.launched_at) / 60.0, why,
            )  # fmt: skip
        return replace(node, ends_by=now if node.ends_by is None else node.ends_by)

    def _ended(self, node: NodeState, now: float) -> NodeState:
        """Take the jobs off a node that is gone, and write its end down."""
        for name in self._queue.jobs_on(node.id):
            job = self._queue.active[name]
            self._runner.kill(job.id, job.generation)
            self._queue.release(
                replace(job, cause=f"node {node.id} ended"),
                at=now,
                end="node-ended",
                status="cancelled" if job.is_cancelled else "queued",
                micro_dollars=cost_of(job, self._queue.instances, until=now),
            )
        known = self._queue.instances.get(node.id)
        if known is not None:
            ended = replace(node, gpus=(), idle_since=None)
            self._queue.save_instance(replace(known, node=ended, idle_since=None))
        return node

    def offers(self) -> Sequence[Offer]:
        """Return what the cloud offers."""
        offers = self._cloud.offers()
        full = {offer.key for offer in offers if offer.nodes_left == 0}
        for key in sorted(full - self._full):
            _LOG.info("no more of %s can be rented: the quota or the stock leaves none", key)
        self._full = full
        return offers_as_planned(offers, self._names())

    def launch(self, action: LaunchNodes) -> Launched | Refused | Unknown:
        """Ask the cloud for nodes."""
        self.may_act()
        if is_spot(action.instance_type.name) and action.offer is None:
            return Refused(reason=f"{action.instance_type.name} is not offered", kind="no-price")
        answer = answer_as_planned(self._cloud.launch(rented_order(action)), self._names())
        if isinstance(answer, Launched):
            self._spot.note_launch(action.offer, asked=action.count, given=len(answer.nodes))
        elif isinstance(answer, Refused) and answer.kind == "no-capacity":
            self._spot.note_launch(action.offer, asked=action.count, given=0)
        return answer

    def terminate(self, actions: Sequence[TerminateNode]) -> Mapping[NodeId, Accepted | Refused | Unknown]:
        """Give nodes back; jobs that are still on one are killed first, so that none runs on unseen."""
        self.may_act()
        for action in actions:
            for name in self._queue.jobs_on(action.node):
                self._runner.kill(name, self._queue.active[name].generation)
        self._spot.note_ended([action.node for action in actions])
        return self._cloud.terminate(actions)


def _warnings(runner: Runner) -> Mapping[NodeId, float]:
    """Return which nodes are taken back and when, where the engine hears of that."""
    return runner.interruptions() if isinstance(runner, InterruptionSource) else {}


def cost_of(job: JobRecord, instances: Mapping[NodeId, InstanceRecord], *, until: float) -> int:
    """Return what the GPUs of a running job cost since its start: their share of each node, micro-dollars."""
    if job.started_at is None:
        return 0
    total = 0.0
    for slot in job.slots:
        record = instances.get(slot.node)
        if record is None:
            continue
        node = record.node
        if node.prices:
            spent = bill(node, until=until) - bill(node, until=job.started_at)
        else:
            seconds = max(until - job.started_at, 0.0)
            spent = round(seconds * node.usd_per_hour * MICRO_DOLLARS_PER_DOLLAR / SECONDS_PER_HOUR)
        total += spent / node.instance_type.gpus
    return round(total)
