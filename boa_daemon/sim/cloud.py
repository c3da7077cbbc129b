"""A cloud that boots nodes in a fixed time, bills them by the second, and may be out of stock for a while."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum

from boa_daemon.actions import LaunchNodes, TerminateNode
from boa_daemon.clock import VirtualClock
from boa_daemon.ledger import micro_dollars_for
from boa_daemon.offers import Offer
from boa_daemon.ports import Accepted, Launched, Refused
from boa_daemon.sim.events import EventQueue
from boa_daemon.state import NodeState
from policies.model import GpuSlot, InstanceType, JobId, NodeId

RETRY_SECONDS = 300.0
"""After a refusal, asking again makes sense this much later."""


@dataclass(slots=True)
class Meter:
    """What the nodes took in all: GPU-seconds from launch to end, of which booting, and the bill."""

    rented_gpu_seconds: float = 0.0
    booting_gpu_seconds: float = 0.0
    micro_dollars: int = 0
    launches: int = 0
    most_nodes: int = 0


class SimulatedCloud:
    """Implements `Cloud`; also says which GPUs are held, because nodes do not know jobs."""

    def __init__(
        self,
        clock: VirtualClock,
        events: EventQueue,
        *,
        boot_seconds: float,
        on_ready: Callable[[], None],
        outages: Sequence[tuple[float, float]] = (),
    ) -> None:
        self.meter = Meter()
        self._clock, self._events, self._boot_seconds = clock, events, boot_seconds
        self._on_ready, self._outages = on_ready, tuple(outages)
        self._live: dict[NodeId, NodeState] = {}
        self.kinds: dict[NodeId, InstanceType] = {}
        self._ended: list[NodeState] = []

    def nodes(self) -> Sequence[NodeState]:
        """Return the live nodes, and those that ended since the last call."""
        listed = [*self._live.values(), *self._ended]
        self._ended.clear()
        return listed

    def offers(self) -> Sequence[Offer]:
        """Return nothing: there is one zone, and types have their own prices."""
        return ()

    def launch(self, action: LaunchNodes) -> Launched | Refused:
        """Rent nodes: ready after the boot time, billed from now. In an outage there are none."""
        now = self._clock.now()
        if any(begin <= now < end for begin, end in self._outages):
            return Refused(reason="no capacity", kind="no-capacity", retry_after_seconds=RETRY_SECONDS)
        return Launched(nodes=tuple(self._rent(action) for _ in range(action.count)))

    def _rent(self, action: LaunchNodes) -> NodeId:
        """Rent one node."""
        now = self._clock.now()
        self.meter.launches += 1
        node = f"n{self.meter.launches}"
        self.kinds[node] = action.instance_type
        self._live[node] = NodeState(
            id=node,
            instance_type=action.instance_type,
            phase="requested",
            launched_at=now,
            gpus=(None,) * action.instance_type.gpus,
            launched_by=action.id,
        )
        self.meter.most_nodes = max(self.meter.most_nodes, len(self._live))
        self._events.schedule(now + self._boot_seconds, self._ready, node)
        return node

    def terminate(self, actions: Sequence[TerminateNode]) -> Mapping[NodeId, Accepted | Refused]:
        """Give nodes back at once; jobs on one would be lost, so that is refused."""
        return {action.node: self._terminate(action.node) for action in actions}

    def _terminate(self, name: NodeId) -> Accepted | Refused:
        """Give one node back."""
        node = self._live.get(name)
        if node is None:
            return Accepted()
        if node.free_gpus < node.instance_type.gpus:
            return Refused(reason=f"jobs run on {node.id}")
        self._end(node)
        return Accepted()

    def hold(self, job: JobId, slots: Sequence[GpuSlot]) -> bool:
        """Give free GPUs of ready nodes to a job; False, and nothing changes, if any is not."""
        for slot in slots:
            node = self._live.get(slot.node)
            if node is None or node.phase != "ready" or node.gpus[slot.index] is not None:
                return False
        self._write(slots, job)
        return True

    def free(self, slots: Sequence[GpuSlot]) -> None:
        """Take GPUs back from a job."""
        self._write(slots, None)

    def close(self) -> None:
        """End everything: the run is over."""
        for node in list(self._live.values()):
            self._end(node)

    def _write(self, slots: Sequence[GpuSlot], job: JobId | None) -> None:
        """Write a name, or None, on GPUs."""
        indices: dict[NodeId, list[int]] = {}
        for slot in slots:
            indices.setdefault(slot.node, []).append(slot.index)
        for name, chosen in indices.items():
            node = self._live[name]
            gpus = list(node.gpus)
            for index in chosen:
                gpus[index] = job
            is_idle = gpus.count(None) == len(gpus)
            self._live[name] = replace(
                node, gpus=tuple(gpus), idle_since=self._clock.now() if is_idle else None
            )

    def _ready(self, name: NodeId) -> None:
        """A node has booted."""
        node = self._live.get(name)
        if node is not None:
            self._live[name] = replace(node, phase="ready", idle_since=self._clock.now())
            self._on_ready()

    def _end(self, node: NodeState) -> None:
        """Stop the meter of a node."""
        now = self._clock.now()
        del self._live[node.id], self.kinds[node.id]
        self._ended.append(replace(node, phase="terminated", ended_at=now, idle_since=None))
        seconds, gpus = now - node.launched_at, node.instance_type.gpus
        self.meter.rented_gpu_seconds = fsum((self.meter.rented_gpu_seconds, seconds * gpus))
        self.meter.booting_gpu_seconds += min(seconds, self._boot_seconds) * gpus
        self.meter.micro_dollars += micro_dollars_for(node.instance_type, seconds)
