"""The stopped nodes of the simulated cloud: each costs only its disk, and uses no stock and no quota.

So a start needs stock as a launch does: capacity is not guaranteed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from boa_daemon.tick.facts.node_lives import next_life
from boa_daemon.tick.facts.state import DISK_USD_PER_HOUR, NodeState
from policies.fast_dataclasses import replace
from policies.model import NodeId

START_SECONDS = 40.0
"""The default time of a start of a stopped node: a guess, because it was never measured on an account."""


@dataclass(slots=True)
class StoppedNodes:
    """The stopped nodes by name; `start_seconds` is the time from a start to ready."""

    start_seconds: float = START_SECONDS
    disk_usd_per_hour: float = DISK_USD_PER_HOUR
    _nodes: dict[NodeId, NodeState] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, name: NodeId) -> bool:
        return name in self._nodes

    def __iter__(self) -> Iterator[NodeState]:
        return iter(self._nodes.values())

    def add(self, node: NodeState, now: float) -> None:
        """Add a node whose run has just ended."""
        name = next_life(node.id)
        self._nodes[name] = replace(
            node,
            id=name,
            phase="stopped",
            launched_at=now,
            launched_by="",
            idle_since=None,
            gpus=(),
            prices=((now, 0.0),),
            extras=(("disk", self.disk_usd_per_hour),),
        )

    def take(self, name: NodeId, now: float) -> NodeState:
        """Remove and return a stopped node, with its bill final."""
        return replace(self._nodes.pop(name), phase="terminated", ended_at=now)
