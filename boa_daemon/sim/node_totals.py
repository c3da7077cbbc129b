"""Totals over the nodes of a run."""

from __future__ import annotations

from dataclasses import dataclass, field

from boa_daemon.tick.facts.state import NodeState
from boa_daemon.tick.money.ledger import bill
from boa_daemon.units import dollars


@dataclass(slots=True)
class NodeTotals:
    """Totals over the nodes: GPU-seconds from launch to end, those of booting, the bill, and mishaps.

    `starts` are launches that started one of the `stops`, `stopped_node_seconds` is the time on disks alone.
    `refusals` counts launches that were not served, or only in part, by reason; unanswered ones too.
    `on_demand` has GPU type, GPUs, launch and end of each node that commitments can pay for; spot nodes are
    not included.
    """

    rented_gpu_seconds: float = 0.0
    booting_gpu_seconds: float = 0.0
    micro_dollars: int = 0
    launches: int = 0
    starts: int = 0
    stops: int = 0
    stopped_node_seconds: float = 0.0
    most_nodes: int = 0
    interruptions: int = 0
    node_failures: int = 0
    refusals: dict[str, int] = field(default_factory=dict)
    on_demand: list[tuple[str, int, float, float]] = field(default_factory=list)

    @property
    def most_usd(self) -> float:
        """The upper bound on the bills, each of which is rounded to whole micro-dollars.

        A bound on waiting for this money holds for the true bills as well.
        """
        return dollars(self.micro_dollars + self.launches + self.stops)

    def refused(self, kind: str) -> None:
        """Count a request that was not served."""
        self.refusals[kind] = self.refusals.get(kind, 0) + 1

    def stopped(self, node: NodeState) -> None:
        """Add the bill of a node that was stopped and is now started or ended."""
        ended_at = node.launched_at if node.ended_at is None else node.ended_at
        self.stops += 1
        self.stopped_node_seconds += ended_at - node.launched_at
        self.micro_dollars += bill(node, until=ended_at)

    def ended(self, node: NodeState, *, at: float, boot_seconds: float) -> None:
        """Add a node that ends now, and its bill."""
        seconds, gpus = at - node.launched_at, node.instance_type.gpus
        self.rented_gpu_seconds += seconds * gpus
        self.booting_gpu_seconds += min(seconds, boot_seconds) * gpus
        if node.market == "on-demand":
            self.on_demand.append((node.instance_type.gpu_type, gpus, node.launched_at, at))
        self.micro_dollars += bill(node, until=at)
