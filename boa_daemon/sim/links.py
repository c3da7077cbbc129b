"""The links of the simulated nodes: how much slower jobs are that span nodes or meet others there.

A job whose class says what an iteration sends (`network`) pays for its link when it spans nodes, and more
when others send through the same one (`policies.links.link_share`): jobs that the plan ranks higher go first,
or all messages share where there is no order. One whose nodes are in several racks, say, takes the uplinks of
these as well (`boa_daemon.sim.topology`). Other classes neither pay nor disturb.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from boa_daemon.sim.topology import Topology
from policies.links.contention import Link
from policies.links.link_share import network_share, slowdowns
from policies.model import AllReduce, GpuSlot, InstanceType, JobId, NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sender:
    """A job that spans nodes: its links, and seconds of sending per second of computing when alone there.

    `links` says of each what part of the time of its message that one takes: 1 for the slowest. `paid` is the
    share that its speed-up counts already: that of its nodes' cards, or none for a job that is scattered,
    which would have fitted on one node.
    """

    links: Mapping[str, float]
    share: float
    paid: float


class SharedLinks:
    """Who sends where, and at what pace each job works."""

    def __init__(self, *, in_order: bool = True, topology: Topology | None = None) -> None:
        self._in_order, self._topology = in_order, topology or Topology()
        self._senders: dict[JobId, _Sender] = {}
        self._order: Mapping[NodeId, tuple[JobId, ...]] = {}
        self._crowding = 0.0

    def join(
        self,
        job: JobId,
        need: AllReduce | None,
        slots: Sequence[GpuSlot],
        kinds: Mapping[NodeId, InstanceType],
        tiers: Mapping[NodeId, tuple[str, ...]] = MappingProxyType({}),
    ) -> bool:
        """Let a job that starts use its links; return whether anybody's pace may change.

        `tiers` are the parts of the network above each node.
        """
        nodes = tuple(dict.fromkeys(slot.node for slot in slots))
        if need is None or len(nodes) < 2:
            return False
        card = min(kinds[node].link_gigabits_per_second for node in nodes)
        uplinks = self._topology.uplinks([tiers.get(node, ()) for node in nodes])
        slowest = min((card, *uplinks.values()))
        link = Link.of_gigabits(card)
        self._crowding = link.contention_seconds_per_byte / link.seconds_per_byte
        is_scattered = len(slots) <= min(kinds[node].gpus for node in nodes)
        speeds = {**dict.fromkeys(nodes, card), **uplinks}
        self._senders[job] = _Sender(
            links={name: slowest / gigabits for name, gigabits in speeds.items()},
            share=network_share(Link.of_gigabits(slowest), need),
            paid=0.0 if is_scattered else network_share(link, need),
        )
        return True

    def leave(self, job: JobId) -> bool:
        """Let a job that stops go from its links; return whether anybody's pace may change."""
        return self._senders.pop(job, None) is not None

    def follow(self, order: Mapping[NodeId, tuple[JobId, ...]]) -> bool:
        """Let jobs send in this order from now on; return whether anybody's pace may change."""
        is_new = self._in_order and bool(self._senders) and order != self._order
        self._order = order
        return is_new

    def paces(self) -> dict[JobId, float]:
        """Return the part of its speed that each sending job keeps, 1 where it has its links to itself."""
        first = {job: place for jobs in self._order.values() for place, job in enumerate(jobs)}
        ranked = sorted(self._senders, key=lambda job: first.get(job, len(first)))
        factors = slowdowns(
            {job: self._senders[job].links for job in ranked},
            {job: sender.share for job, sender in self._senders.items()},
            crowding=self._crowding,
            in_order=self._in_order,
        )
        return {
            job: 1.0 / (factors[job] * ((1.0 + sender.share) / (1.0 + sender.paid)))
            for job, sender in self._senders.items()
        }
