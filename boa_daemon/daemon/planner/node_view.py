"""The nodes as the tick sees them: the cloud's list, with the jobs that the queue places on them.

A node that the cloud lists as ready counts as ready once the engine has prepared it. A node that does not get
prepared is released: at once when the engine refuses it because its GPUs are unfit, or when a check beside a
job finds that.

A node missing from a listing is unknown, not gone: for `missing_seconds` it is kept as last seen, and billed.
The jobs on an ended node are removed from it and wait again. A node that the cloud interrupts, as the engine
heard, has that instant as `ends_by`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter

from boa_daemon.daemon.money.job_cost import cost_of
from boa_daemon.daemon.planner.planned_markets import (
    answer_as_planned,
    offers_as_planned,
    planned_name,
    rented_order,
)
from boa_daemon.daemon.planner.shared_gpus import planned_machine
from boa_daemon.learning.spot_history import SpotHistory
from boa_daemon.store.queue import JobQueue
from boa_daemon.store.records import InstanceRecord
from boa_daemon.tick.facts.actions import LaunchNodes, TerminateNode
from boa_daemon.tick.facts.limits import DAY_SECONDS
from boa_daemon.tick.facts.offers import Offer
from boa_daemon.tick.facts.ports import (
    Accepted,
    Clock,
    Cloud,
    InterruptionSource,
    Launched,
    LaunchFailureSource,
    NodeFaultDetector,
    Refused,
    Runner,
    Unknown,
)
from boa_daemon.tick.facts.state import NodeState
from boa_daemon.tick.money.commitments import SiteCommitments
from boa_daemon.units import SECONDS_PER_HOUR
from policies.fast_dataclasses import replace
from policies.model import InstanceType, NodeId

MISSING_SECONDS = 300.0
UNPREPARED_SECONDS = 1800.0
"""Time after launch at which a node that the engine has not prepared is released."""
REMEMBERED_SECONDS = 86_400.0
"""How long an ended node is remembered, to alert if the cloud lists it again."""
UNUSABLE_SECONDS = 30.0
"""Time that a running node may take to become usable before the reason is reported."""
_LOG = logging.getLogger("boa.daemon")
_LASTING = attrgetter(*(one.name for one in fields(InstanceRecord) if one.name != "last_seen_at"))
"""What a record says of a node beside when it was seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusableNode:
    """A running node that the engine cannot use: since when, and why."""

    since: float
    reason: str


class Fleet:
    """Implements `Cloud` around another one; `look` updates the queue from the engine before each listing.

    `may_act` is called before each order to the cloud and raises when another daemon leads. `machines` are
    the machines of the plan, which give nodes their GPU types.
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
        self._failed: dict[str, tuple[float, str]] = {}
        self._logged: dict[NodeId, str] = {}
        self._told: dict[NodeId, NodeState] = {}
        self._machines, self._spot = machines, spot or SpotHistory()
        self._awaited, self._paid = awaited, paid
        self._as_planned: dict[InstanceType, InstanceType] = {}

    def nodes(self) -> Sequence[NodeState]:
        """Return every node with its jobs; store changes."""
        now = self._clock.now()
        listed = self._by_name(self._cloud.nodes())
        missing = self._by_name(self._missing(listed, now).values())
        if self._paid().levels:
            written = {name: record.node for name, record in self._queue.instances.items()}
            # What is written is priced already: what it costs without commitments is the price of its type.
            missing = {name: replace(node, prices=()) for name, node in missing.items()}
            listed = self._paid().priced([*listed.values(), *missing.values()], written, now)
        listed |= {name: node for name, node in missing.items() if name not in listed}
        self._look()
        prepared = self._runner.prepare([node for node in listed.values() if node.phase == "ready"])
        self._note_unusable(prepared, now)
        ended = [self._ended(node, now) for node in listed.values() if node.ended_at is not None]
        self._note_returns(listed.values(), now)
        # Read this after the ended nodes: their jobs release their other nodes as well.
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
        # The transaction covers changes only, so submissions do not wait for a look at thousands of nodes.
        if changed:
            with self._queue.database.write():
                for record in changed:
                    self._queue.save_instance(record)
        # Unchanged nodes keep their object, so that writers can skip them.
        nodes = [before if before == node else node for node, before in self._with_last(nodes)]
        self._told = {node.id: node for node in nodes}
        return ended + nodes

    def _by_name(self, nodes: Iterable[NodeState]) -> dict[NodeId, NodeState]:
        """Return nodes by name, with the machine types that the plan uses."""
        machines = {machine.name: machine for machine in self._machines()}
        return {node.id: self._planned_with(node, machines) for node in nodes}

    def _planned_with(self, node: NodeState, machines: Mapping[str, InstanceType]) -> NodeState:
        """Return a node with the machine type that the plan uses for its machine and market."""
        listed = node.instance_type
        name = planned_name(listed.name, node.market, machines)
        planned = machines.get(name)
        kind = str(listed.kind.on_demand) if planned is None else planned.gpu_type
        seen = self._queue.instances.get(node.id)
        before = None if seen is None else seen.node.instance_type
        found = planned_machine(listed, name=name, kind=kind, planned=planned, known=before)
        if found == listed:
            return node
        # Return the same object each time, because comparisons of nodes compare their types too.
        return replace(node, instance_type=self._as_planned.setdefault(found, found))

    def planned(self, nodes: Iterable[NodeState]) -> Mapping[NodeId, NodeState]:
        """Return live nodes by name, with the machine types that the plan uses."""
        return self._by_name(node for node in nodes if node.ended_at is None)

    def _names(self) -> list[str]:
        return [machine.name for machine in self._machines()]

    def _note_returns(self, nodes: Iterable[NodeState], now: float) -> None:
        """Alert when the cloud lists a node again that was believed ended; the cloud is right."""
        for node in nodes:
            if node.ended_at is not None:
                self._over[node.id] = now
            elif self._over.pop(node.id, None) is not None:
                said = f"node {node.id} was taken for ended and is listed again: its billing continues"
                self._alert(f"returned:{node.id}:{int(now)}", said)
        for name in [name for name, at in self._over.items() if now - at > REMEMBERED_SECONDS]:
            del self._over[name]

    def _with_last(self, nodes: Sequence[NodeState]) -> Iterator[tuple[NodeState, NodeState]]:
        """Yield each node with its previous state, or with itself when it is new."""
        for node in nodes:
            yield node, self._told.get(node.id, node)

    def unusable(self) -> Mapping[NodeId, str]:
        """Return the nodes that have been unusable for `UNUSABLE_SECONDS`, and why."""
        now = self._clock.now()
        return {
            name: f"{name} has run for {now - each.since:.0f} s and cannot be used yet: {each.reason}"
            for name, each in list(self._unusable.items())
            if now - each.since >= UNUSABLE_SECONDS
        }

    def _note_unusable(self, prepared: Mapping[NodeId, Accepted | Refused | Unknown], now: float) -> None:
        """Record why nodes are unusable; log each lasting reason once."""
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
        """Return whether the engine has heard of a new interruption of a node."""
        new = _warnings(self._runner).keys() - self._warned
        self._warned |= new
        return bool(new)

    def _with_warnings(self, nodes: Iterable[NodeState]) -> Iterator[NodeState]:
        """Yield nodes with the earliest known instant of their interruption; unfit nodes end now."""
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
        """Alert that a node is released because of its hardware, and name its zone."""
        where = f" in {node.zone}" if node.zone else ""
        said = f"node {node.id} ({node.instance_type.name}{where}) is unfit and goes back: {why}"
        _LOG.warning("%s", said, extra={"node": node.id})
        self._alert(f"unfit:{node.id}", said)

    def _missing(self, listed: Mapping[NodeId, NodeState], now: float) -> dict[NodeId, NodeState]:
        """Return known nodes missing from the listing: as last seen, or ended when missing for too long."""
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
        """Return a node with its jobs; append its record to `changed` if it changed."""
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
            node=_as_written(node, None if known is None else known.node),
            ready_at=ready_at,
            idle_since=idle,
            was_used=before.was_used or bool(held),
            last_seen_at=now,
        )
        if known is None or _has_changed(known, record):
            changed.append(record)
        else:
            self._queue.instances[node.id] = record
        return replace(node, gpus=gpus, idle_since=idle)

    def _unprepared(self, node: NodeState, prepared: Accepted | Refused | Unknown, now: float) -> NodeState:
        """Return an unprepared node: as still booting, or to be released when refused or too late."""
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
        """Remove the jobs from an ended node, and store its end."""
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

    def hides(self, action: LaunchNodes) -> bool:
        """Return whether a launch may have made nodes that the cloud cannot list now."""
        hides: Callable[[LaunchNodes], bool] | None = getattr(self._cloud, "hides", None)
        return hides is not None and hides(action)

    def offers(self) -> Sequence[Offer]:
        """Return the cloud's offers; log each that newly has no nodes left."""
        offers = self._cloud.offers()
        full = {offer.key for offer in offers if offer.nodes_left == 0}
        for key in sorted(full - self._full):
            _LOG.info("no more of %s can be rented: the quota or the stock leaves none", key)
        self._full = full
        return offers_as_planned(offers, self._names())

    def launch(self, action: LaunchNodes) -> Launched | Refused | Unknown:
        """Launch nodes, and note the market's answer for the spot history."""
        self.may_act()
        if action.instance_type.machine_name.is_spot and action.offer is None:
            return Refused(reason=f"{action.instance_type.name} is not offered", kind="no-price")
        answer = answer_as_planned(self._cloud.launch(rented_order(action)), self._names())
        if isinstance(answer, Launched):
            self._spot.note_launch(action.offer, asked=action.count, given=len(answer.nodes))
        elif isinstance(answer, Refused) and answer.kind == "no-capacity":
            self._spot.note_launch(action.offer, asked=action.count, given=0)
        return answer

    def failed_launches(self) -> Sequence[tuple[str, Refused]]:
        """Return launches that failed after the cloud accepted them, named as in plans; alert once a day."""
        if not isinstance(self._cloud, LaunchFailureSource):
            return []
        found, now = [], self._clock.now()
        for offer, refused in self._cloud.failed_launches():
            self._failed[offer] = (now, refused.reason)
            said = f"a launched node of {offer} failed at its start: {refused.reason}"
            self._alert(f"never-ran:{offer}:{int(now // DAY_SECONDS)}", said)
            answer = answer_as_planned(refused, self._names())
            assert isinstance(answer, Refused)
            found.append((offer, answer))
        return found

    def failures(self) -> Mapping[str, tuple[float, str]]:
        """Return by offer when and why its last launched node failed to run, for an hour."""
        now = self._clock.now()
        return {key: each for key, each in list(self._failed.items()) if now - each[0] <= SECONDS_PER_HOUR}

    def terminate(self, actions: Sequence[TerminateNode]) -> Mapping[NodeId, Accepted | Refused | Unknown]:
        """Release nodes; kill the jobs still on them first, so that none runs on unseen."""
        self.may_act()
        for action in actions:
            for name in self._queue.jobs_on(action.node):
                self._runner.kill(name, self._queue.active[name].generation)
        self._spot.note_ended([action.node for action in actions])
        return self._cloud.terminate(actions)


def _as_written(node: NodeState, known: NodeState | None) -> NodeState:
    """Return a node as its record holds it, without jobs: the same object as before if nothing changed."""
    is_bare = not node.gpus and node.idle_since is None
    bare = node if is_bare else replace(node, gpus=(), idle_since=None)
    return known if known == bare else bare


def _has_changed(known: InstanceRecord, record: InstanceRecord) -> bool:
    """Return whether a record differs in more than when its node was seen."""
    return _LASTING(record) != _LASTING(known)


def _warnings(runner: Runner) -> Mapping[NodeId, float]:
    """Return the announced interruptions by node, if the engine hears of them."""
    return runner.interruptions() if isinstance(runner, InterruptionSource) else {}
