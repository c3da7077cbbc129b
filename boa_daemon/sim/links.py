"""The links and shared GPUs of the simulated nodes: how much jobs that share them slow each other down.

A job whose class says what an iteration sends (`network`) pays for its link when it spans nodes, and more
when other jobs send through the same link (`policies.links.link_share`): jobs that the plan ranks higher send
first, or all messages share the link if there is no order. A job whose nodes are in several racks, for
example, also uses the uplinks of these racks (`boa_daemon.sim.topology`). Other classes neither pay nor
disturb. On a machine whose GPUs have several places a job's pace depends on the jobs beside it
(`policies.links.gpu_share`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from boa_daemon.sim.topology import SimulatedTopology
from policies.links.contention import Link
from policies.links.gpu_share import gpu_slowdowns, shared_iteration_seconds
from policies.links.link_share import network_share, slowdowns
from policies.model import AllReduce, GpuSlot, InstanceType, JobId, NodeId

ROUNDS = 12
"""Rounds of the fixed-point iteration for shared GPUs and links: each moves half of the way."""
_Gpu = tuple[NodeId, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sender:
    """A job that spans nodes: its links, and its seconds of sending per second of computing when alone there.

    `links` gives for each link the part of a message's time that the link takes: 1 for the slowest. `paid` is
    the share that the job's speed-up already includes: that of its nodes' cards, or 0 for a scattered job,
    which would have fitted on one node. `planned` is the seconds of an iteration per second of computing that
    its speed-up assumes, if its `gpus` may be shared with other jobs.
    """

    links: Mapping[str, float]
    share: float
    paid: float
    planned: float
    gpus: tuple[_Gpu, ...] = ()


class SharedLinks:
    """Which job sends through which links, and the pace of each job."""

    def __init__(self, *, in_order: bool = True, topology: SimulatedTopology | None = None) -> None:
        self._in_order, self._topology = in_order, topology or SimulatedTopology()
        self._senders: dict[JobId, _Sender] = {}
        self._order: Mapping[NodeId, tuple[JobId, ...]] = {}
        self._crowding = 0.0
        self._on_shared_gpus = 0

    def join(
        self,
        job: JobId,
        need: AllReduce | None,
        slots: Sequence[GpuSlot],
        kinds: Mapping[NodeId, InstanceType],
        tiers: Mapping[NodeId, tuple[str, ...]] = MappingProxyType({}),
    ) -> bool:
        """Add a starting job to its links; return whether any pace may change.

        `tiers` are the parts of the network above each node.
        """
        nodes = tuple(dict.fromkeys([slot.node for slot in slots]))
        places = max([kinds[node].places_per_gpu for node in nodes])
        if (need is None or len(nodes) < 2) and places == 1:
            return False
        gpus = tuple((slot.node, slot.index % kinds[slot.node].whole_gpus) for slot in slots)
        self._on_shared_gpus += places > 1
        if need is None or len(nodes) < 2:
            alone = float(places)
            self._senders[job] = _Sender(links={}, share=0.0, paid=0.0, planned=alone, gpus=gpus)
            return True
        card = min(kinds[node].link_gigabits_per_second for node in nodes)
        uplinks = self._topology.uplinks([tiers.get(node, ()) for node in nodes])
        slowest = min((card, *uplinks.values()))
        link = Link.of_gigabits(card)
        self._crowding = link.contention_seconds_per_byte / link.seconds_per_byte
        is_scattered = len(slots) <= min(kinds[node].whole_gpus for node in nodes)
        speeds = {**dict.fromkeys(nodes, card), **uplinks}
        paid = 0.0 if is_scattered else network_share(link, need)
        self._senders[job] = _Sender(
            links={name: slowest / gigabits for name, gigabits in speeds.items()},
            share=network_share(Link.of_gigabits(slowest), need),
            paid=paid,
            planned=shared_iteration_seconds(places, (1.0, paid)),
            gpus=gpus if places > 1 else (),
        )
        return True

    def leave(self, job: JobId) -> bool:
        """Remove a stopping job from its links; return whether any pace may change."""
        gone = self._senders.pop(job, None)
        self._on_shared_gpus -= gone is not None and bool(gone.gpus)
        return gone is not None

    def follow(self, order: Mapping[NodeId, tuple[JobId, ...]]) -> bool:
        """Let jobs send in this order from now on; return whether any pace may change."""
        is_new = self._in_order and bool(self._senders) and order != self._order
        self._order = order
        return is_new

    def paces(self) -> dict[JobId, float]:
        """Return the fraction of its speed that each job keeps: 1 if it has what its speed-up assumes.

        On GPUs with several places it exceeds 1 for a job that has a GPU to itself.
        """
        if self._on_shared_gpus:
            return self._paces_on_shared_gpus()
        factors = self._slowdowns({job: sender.share for job, sender in self._senders.items()})
        return {
            job: 1.0 / (factors[job] * ((1.0 + sender.share) / (1.0 + sender.paid)))
            for job, sender in self._senders.items()
        }

    def _slowdowns(self, shares: Mapping[JobId, float]) -> dict[JobId, float]:
        """Return how much slower jobs are because of others' messages, by the share of each."""
        first = {job: place for jobs in self._order.values() for place, job in enumerate(jobs)}
        sending = (job for job, sender in self._senders.items() if sender.links)
        ranked = sorted(sending, key=lambda job: first.get(job, len(first)))
        return slowdowns(
            {job: self._senders[job].links for job in ranked},
            shares,
            crowding=self._crowding,
            in_order=self._in_order,
        )

    def _paces_on_shared_gpus(self) -> dict[JobId, float]:
        """Return the paces on shared GPUs: a job slowed on a GPU sends less often, and the reverse."""
        senders = self._senders
        gpus_of = {job: sender.gpus for job, sender in senders.items()}
        stretch, sending = dict.fromkeys(senders, 1.0), {job: one.share for job, one in senders.items()}
        for left in range(ROUNDS, 0, -1):
            shares = {job: one.share / stretch[job] for job, one in senders.items()}
            for job, factor in self._slowdowns(shares).items():
                sending[job] = stretch[job] * (factor * (1.0 + shares[job]) - 1.0)
            for job, found in gpu_slowdowns(gpus_of, sending).items():
                stretch[job] = found if left == 1 else 0.5 * (stretch[job] + found)
        return {job: sender.planned / (stretch[job] + sending[job]) for job, sender in senders.items()}
