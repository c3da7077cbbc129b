"""A simulated cloud that boots nodes, bills them by the second, runs out of stock, and takes nodes back.

`boa_daemon.sim.capacity_pools` holds the stock, and `boa_daemon.sim.draws` what happens to each node. This
module applies both: nodes become ready, get a notice of their end, vanish under their jobs, and are billed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isinf

from boa_daemon.clock import VirtualClock
from boa_daemon.sim.capacity_pools import CapacityPool, CapacityPools
from boa_daemon.sim.draws import Draws, NodeDraw
from boa_daemon.sim.event_queue import EventQueue
from boa_daemon.sim.node_totals import NodeTotals
from boa_daemon.sim.stopped_nodes import StoppedNodes
from boa_daemon.sim.topology import SimulatedTopology
from boa_daemon.tick.facts.actions import LaunchNodes, TerminateNode
from boa_daemon.tick.facts.node_lives import next_life
from boa_daemon.tick.facts.offers import Offer
from boa_daemon.tick.facts.ports import Accepted, Launched, Refused
from boa_daemon.tick.facts.state import NodeState
from policies.fast_dataclasses import field_replacer, replace
from policies.model import GpuSlot, InstanceType, JobId, NodeId

RETRY_SECONDS = 300.0
"""Seconds to wait before asking again after a refusal in an outage."""
NEXT_TICK_SECONDS = 30.0
"""Seconds to the tick after a refused or unanswered request, as in the daemon."""
_ACCEPTED = Accepted()
_holding = field_replacer(NodeState, "gpus", "idle_since")
_booted = field_replacer(NodeState, "phase", "idle_since")
_over = field_replacer(NodeState, "phase", "ended_at", "idle_since")


@dataclass(slots=True)
class _Rented:
    """What only the world knows about a node."""

    pool: CapacityPool
    fate: NodeDraw
    priced_to: int = 0


class SimulatedCloud:
    """Implement `Cloud`, and track which GPUs are held, because nodes do not know jobs.

    `wants_tick` is called after an event that a tick should see, `loses` with a job that lost a node.
    """

    def __init__(
        self,
        clock: VirtualClock,
        events: EventQueue,
        *,
        shelves: CapacityPools,
        draws: Draws,
        wants_tick: Callable[[], None],
        outages: Sequence[tuple[float, float]] = (),
        stopped: StoppedNodes | None = None,
        topology: SimulatedTopology | None = None,
    ) -> None:
        self.meter = NodeTotals()
        # No nodes are stopped at first, so an empty pool is given.
        self.stopped = StoppedNodes() if stopped is None else stopped
        self.loses: Callable[[JobId], None] = lambda _job: None
        self.kinds: dict[NodeId, InstanceType] = {}
        self.tiers: dict[NodeId, tuple[str, ...]] = {}
        self._topology = topology or SimulatedTopology()
        self._clock, self._events, self._shelves, self._draws = clock, events, shelves, draws
        self._wants_tick, self._outages = wants_tick, tuple(outages)
        self._live: dict[NodeId, NodeState] = {}
        self._rented: dict[NodeId, _Rented] = {}
        self._on_spot: dict[NodeId, None] = {}
        self._ended: list[NodeState] = []
        self._last_look = -1.0

    def __len__(self) -> int:
        return len(self._live) + len(self.stopped)

    def nodes(self) -> Sequence[NodeState]:
        """Return the live nodes, and those that ended since the last call."""
        for name in self._on_spot:
            self._price(name)
        listed = [*self._live.values(), *self.stopped, *self._ended]
        self._ended.clear()
        return listed

    def offers(self) -> Sequence[Offer]:
        """Return the offers; empty if the world names no zones, markets or quotas."""
        return self._shelves.offers(self._clock.now())

    def slowest(self, slots: Sequence[GpuSlot]) -> float:
        """Return the speed of a job's slowest node, which all others wait for."""
        return min([self._rented[node].fate.speed for node in {slot.node for slot in slots}])

    def launch(self, action: LaunchNodes) -> Launched | Refused:
        """Rent available nodes: billed from now, ready after their boots."""
        now, pool = self._clock.now(), self._shelves.pool_of(action)
        if pool is None:
            return self.refuse(Refused(reason=f"{action.offer_key} is not offered", kind="bad-request"))
        if self._outages and any(begin <= now < end for begin, end in self._outages):
            return self.refuse(
                Refused(reason="no capacity", kind="no-capacity", retry_after_seconds=RETRY_SECONDS)
            )
        count, short = self._shelves.grant(pool, action, now)
        part = count if action.is_gang else self._draws.granted(count)
        if part < count:
            count, short = part, Refused(reason=f"only {part} of {count} now", kind="no-capacity")
        if short is not None:
            self.refuse(short)
        if count == 0 and short is not None:
            return short
        starts = [name for name in action.starts if name in self.stopped][:count]
        nodes = [self._start(action, pool, name) for name in starts]
        nodes += [self._rent(action, pool) for _ in range(count - len(starts))]
        return Launched(nodes=tuple(nodes), short=short)

    def refuse(self, refused: Refused) -> Refused:
        """Count a refusal, and schedule another tick."""
        self.meter.refused(refused.kind)
        self.look_again()
        return refused

    def look_again(self, seconds: float = NEXT_TICK_SECONDS) -> None:
        """Schedule a tick after some seconds."""
        at = self._clock.now() + seconds
        if at != self._last_look:
            self._last_look = at
            self._events.schedule(at, lambda _: self._wants_tick(), None)

    def _start(self, action: LaunchNodes, pool: CapacityPool, name: NodeId) -> NodeId:
        """Start a stopped node: a new life, with a shorter boot."""
        self._settle(self.stopped.take(name, self._clock.now()))
        self.meter.starts += 1
        return self._rent(action, pool, life=next_life(name))

    def _settle(self, node: NodeState) -> None:
        """Bill a node that was stopped."""
        self.meter.stopped(node)
        self._ended.append(node)

    def _rent(self, action: LaunchNodes, pool: CapacityPool, *, life: NodeId = "") -> NodeId:
        """Rent one node; `life` is the node's name if it is started rather than launched."""
        now, meter = self._clock.now(), self.meter
        meter.launches += 1
        node = life or f"n{meter.launches}"
        fate = self._draws.of_node(node, action.instance_type, pool.market)
        if life:
            fate = replace(fate, boot_seconds=min(fate.boot_seconds, self.stopped.start_seconds))
        self.kinds[node] = action.instance_type
        self.tiers[node] = self._topology.above(node, pool.zone)
        self._rented[node] = _Rented(pool, fate)
        self._shelves.take(pool, node)
        self._live[node] = NodeState(
            id=node,
            instance_type=action.instance_type,
            phase="requested",
            launched_at=now,
            gpus=(None,) * action.instance_type.gpus,
            launched_by=action.id,
            zone=pool.zone,
            tiers=self.tiers[node],
            market=pool.market,
            prices=() if pool.prices is None else ((now, pool.prices.at(now)),),
        )
        if pool.prices is not None:
            self._on_spot[node] = None
            self._rented[node].priced_to = pool.prices.index_at(now)
            self._watch(pool)
        meter.most_nodes = max(meter.most_nodes, len(self._live))
        self._foretell(node, fate, now)
        return node

    def _foretell(self, node: NodeId, fate: NodeDraw, now: float) -> None:
        """Schedule the outcomes of a node."""
        self._events.schedule(now + fate.boot_seconds, self._ready if fate.boots else self._break, node)
        if not isinf(fate.breaks_seconds):
            self._events.schedule(now + fate.breaks_seconds, self._break, node)
        if not isinf(fate.taken_back_seconds):
            self._events.schedule(now + fate.taken_back_seconds, self._take_back, node)

    def terminate(self, actions: Sequence[TerminateNode]) -> Mapping[NodeId, Accepted | Refused]:
        """Give nodes back at once; refused for a node with jobs, because they would be lost."""
        outcomes = {action.node: self._terminate(action) for action in actions}
        if self._shelves.is_limited:
            # A job may be waiting for the nodes that were given back.
            self.look_again()
        return outcomes

    def _terminate(self, action: TerminateNode) -> Accepted | Refused:
        """Give one node back, or stop it."""
        if action.node in self.stopped:
            self._settle(self.stopped.take(action.node, self._clock.now()))
            return _ACCEPTED
        node = self._live.get(action.node)
        if node is None:
            return _ACCEPTED
        if node.free_gpus < node.instance_type.gpus:
            return Refused(reason=f"jobs run on {node.id}")
        self._end(node)
        if action.stops and node.market == "on-demand":
            self.stopped.add(node, self._clock.now())
        return _ACCEPTED

    def hold(self, job: JobId, slots: Sequence[GpuSlot]) -> bool:
        """Give free GPUs of ready nodes to a job; return False without any change if one is not free."""
        chosen = _by_node(slots)
        for name, indices in chosen.items():
            node = self._live.get(name)
            if node is None or node.phase != "ready":
                return False
            gpus = node.gpus
            if gpus.count(None) < len(gpus) and [index for index in indices if gpus[index] is not None]:
                return False
        self._write(chosen, job)
        return True

    def free(self, slots: Sequence[GpuSlot]) -> None:
        """Take GPUs back from a job."""
        self._write(_by_node(slots), None)

    def close(self) -> None:
        """End every node at the end of the run."""
        for node in list(self._live.values()):
            self._end(node)
        for node in list(self.stopped):
            self._settle(self.stopped.take(node.id, self._clock.now()))

    def _write(self, chosen: Mapping[NodeId, Sequence[int]], job: JobId | None) -> None:
        """Set the holder of GPUs, given by node, to a job, or to None."""
        live, now = self._live, self._clock.now() if job is None else None
        for name, indices in chosen.items():
            node = live[name]
            if len(indices) == len(node.gpus):
                live[name] = _holding(node, (job,) * len(indices), now)
                continue
            gpus = list(node.gpus)
            for index in indices:
                gpus[index] = job
            is_idle = job is None and gpus.count(None) == len(gpus)
            live[name] = _holding(node, tuple(gpus), now if is_idle else None)

    def _ready(self, name: NodeId) -> None:
        """Mark a node as booted."""
        node = self._live.get(name)
        if node is not None:
            self._live[name] = _booted(node, "ready", self._clock.now())
            self._wants_tick()

    def _break(self, name: NodeId) -> None:
        """Fail a node, during its boot or later, without warning."""
        if name in self._live:
            self.meter.node_failures += 1
            self._vanish(name)

    def _take_back(self, name: NodeId) -> None:
        """Interrupt a spot node: announce it, and take the node when the notice is over."""
        node = self._live.get(name)
        if node is None or node.ends_by is not None:
            return
        self.meter.interruptions += 1
        if not self._rented[name].fate.is_announced:
            self._vanish(name)
            return
        ends_by = self._clock.now() + self._shelves.notice_seconds
        self._live[name] = replace(node, ends_by=ends_by)
        self._events.schedule(ends_by, self._vanish, name)
        self._wants_tick()

    def _vanish(self, name: NodeId) -> None:
        """Remove a node under its jobs."""
        if name not in self._live:
            return
        for job in dict.fromkeys(job for job in self._live[name].gpus if job is not None):
            self.loses(job)
        self._end(self._live[name])
        self._wants_tick()

    def _watch(self, pool: CapacityPool) -> None:
        """Check a spot pool again when its stock changes, as long as one of its nodes is held."""
        at = pool.stock.next_change(self._clock.now())
        if not pool.is_watched and not isinf(at):
            pool.is_watched = True
            self._events.schedule(at, self._restock, pool)

    def _restock(self, pool: CapacityPool) -> None:
        """Handle a change of a spot pool's stock: take back the nodes beyond it, the youngest first."""
        pool.is_watched = False
        staying = [name for name in pool.live if self._live[name].ends_by is None]
        left = pool.stock.at(self._clock.now())
        for name in reversed(staying[int(min(left, len(staying))) :]):
            self._take_back(name)
        if pool.live:
            self._watch(pool)

    def _price(self, name: NodeId) -> None:
        """Update the prices of a spot node to now."""
        rented, now = self._rented[name], self._clock.now()
        prices = rented.pool.prices
        if prices is not None and prices.index_at(now) != rented.priced_to:
            node, rented.priced_to = self._live[name], prices.index_at(now)
            self._live[name] = replace(node, prices=prices.steps_from(node.launched_at, now))

    def _end(self, node: NodeState) -> None:
        """Stop the meter of a node."""
        now, name = self._clock.now(), node.id
        if name in self._on_spot:
            self._price(name)
            node = self._live[name]
        rented = self._rented.pop(name)
        self._shelves.put_back(rented.pool, name)
        self._on_spot.pop(name, None)
        del self._live[name], self.kinds[name], self.tiers[name]
        self._ended.append(_over(node, "terminated", now, None))
        self.meter.ended(node, at=now, boot_seconds=rented.fate.boot_seconds)


def _by_node(slots: Sequence[GpuSlot]) -> dict[NodeId, list[int]]:
    """Return the indices of the GPUs of each node."""
    found: dict[NodeId, list[int]] = {}
    for slot in slots:
        node = slot.node
        if node in found:
            found[node].append(slot.index)
        else:
            found[node] = [slot.index]
    return found
