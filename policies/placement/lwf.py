"""LWF-kappa: least workload first, with jobs wider than kappa kept together.

Source: Wang, Shi, Wang, Chu, arXiv 2002.10105, LWF-kappa. The workload L_g of a GPU is the time that the jobs
on it still need. A job of n workers takes, of the GPUs with room for it,

    n <= kappa: the n with the smallest L_g, wherever they are
    n >  kappa: all it can from the server with the smallest sum of L_g, then from the next; by L_g in each

    symbol   here        meaning
    n        gpus        workers of the job, one GPU each
    kappa    kappa       widest job that is spread; infinity is list scheduling
    F        fits        GPUs with enough free memory
    L_g      workload    seconds of work left on each GPU

On rented clusters a GPU holds one job, so free GPUs all have L_g = 0 and the choice is among servers:
`LeastWorkloadFirst` takes the fewest servers, then those whose links are quiet, then the best fit, so that
whole instances fall empty (see `policies.placement.packing`). Jobs stay where they are unless a move pays for
itself.

Cost: a choice among G GPUs sorts them, O(G log G); exclusive placement is O(sizes of an instance) per server
taken, whatever the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from policies.answer import Placement
from policies.model import GpuSlot, JobId, Node, NodeId, Width
from policies.placement.packing import Packing

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


class GpuChooser(Protocol):
    """Chooses the GPUs of one job on a cluster whose GPUs may be shared."""

    def choose(self, gpus: int, *, fits: Mask, workload: Floats, server_of: Ints) -> Ints | None:
        """Return the indices of `gpus` GPUs, or None where fewer fit. Arrays have one entry per GPU."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomChoice:
    """Any GPUs that fit, each set equally likely."""

    rng: np.random.Generator

    def choose(self, gpus: int, *, fits: Mask, workload: Floats, server_of: Ints) -> Ints | None:
        """Return random GPUs."""
        free = np.flatnonzero(fits)
        return None if len(free) < gpus else self.rng.permutation(free)[:gpus]


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstFit:
    """The first GPUs that fit, in index order."""

    def choose(self, gpus: int, *, fits: Mask, workload: Floats, server_of: Ints) -> Ints | None:
        """Return the first GPUs that fit."""
        free = np.flatnonzero(fits)
        return None if len(free) < gpus else free[:gpus]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastWorkload:
    """LWF-kappa on shared GPUs; with infinite kappa, list scheduling. Ties: server order, then GPU order."""

    kappa: float = 1

    def choose(self, gpus: int, *, fits: Mask, workload: Floats, server_of: Ints) -> Ints | None:
        """Return the least loaded GPUs, server by server where the job is wider than kappa."""
        free = np.flatnonzero(fits)
        if len(free) < gpus:
            return None
        if gpus <= self.kappa:
            return free[np.argsort(workload[free], kind="stable")[:gpus]]
        by_server = np.bincount(server_of, weights=workload)[server_of[free]]
        return free[np.lexsort((free, workload[free], server_of[free], by_server))[:gpus]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What its placement costs a job.

    `remaining_seconds` is the time left on one node; `network_share` is seconds of sending per second of
    computing when it spans nodes and has their links to itself.
    """

    remaining_seconds: float
    network_share: float = 0.0

    def seconds(self, crowd: int) -> float:
        """Return the time left where `crowd` jobs send on the most crowded link; 0 means one node."""
        return self.remaining_seconds * (1.0 + self.network_share * crowd)


_NO_TRAFFIC: Mapping[JobId, Traffic] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastWorkloadFirst:
    """Exclusive GPUs: fewest nodes, quiet links, best fit; running jobs stay unless a move pays.

    A move costs `move_seconds` of the job's GPUs. It is made only if it saves at least `least_return` times
    that: in the job's own time, or in GPUs of a node that falls empty sooner, counted for as long as both
    that node and the one that takes its jobs would be held, up to `horizon_seconds`. Jobs without `Traffic`
    stay.
    """

    kappa: float = 1
    move_seconds: float = 120.0
    least_return: float = 2.0
    horizon_seconds: float = 3600.0

    def place(
        self,
        widths: Mapping[JobId, Width],
        *,
        nodes: Sequence[Node],
        held: Mapping[JobId, tuple[GpuSlot, ...]],
        traffic: Mapping[JobId, Traffic] = _NO_TRAFFIC,
    ) -> Placement:
        """Return the slots of each job that fits on ready nodes; earlier in `widths` means first served.

        GPUs are exclusive and a job may span nodes, so a job fits if enough GPUs of its type are free. Those
        that fit are placed widest first, which leaves fewer of them in pieces.
        """
        packing = Packing([node for node in nodes if node.is_ready])
        new: list[JobId] = []
        for job, width in widths.items():
            slots = held.get(job)
            if slots is not None and packing.can_hold(slots, width):
                packing.hold(job, slots)
            else:
                new.append(job)
        kept = packing.slots
        left = {width.gpu_type: packing.free_gpus(width.gpu_type) for width in widths.values()}
        fitting: list[JobId] = []
        for job in new:
            width = widths[job]
            if width.gpus <= left[width.gpu_type]:
                left[width.gpu_type] -= width.gpus
                fitting.append(job)
        for job in sorted(fitting, key=lambda name: -widths[name].gpus):
            packing.add(job, widths[job], kappa=self.kappa)
        movable = {job: traffic[job] for job in kept if job in traffic}
        if movable:
            self._bring_together(packing, widths, movable)
            self._empty_nodes(packing, widths, movable)
        placed = packing.slots
        return Placement(slots={job: placed[job] for job in widths if job in placed})

    def _bring_together(
        self, packing: Packing, widths: Mapping[JobId, Width], movable: Mapping[JobId, Traffic]
    ) -> None:
        """Move jobs that span nodes to where they finish enough sooner."""
        for job, traffic in movable.items():
            crowd = packing.crowd_of(job)
            if traffic.seconds(crowd) - traffic.seconds(0) < self.least_return * self.move_seconds:
                continue
            before = packing.remove(job)
            packing.add(job, widths[job], kappa=self.kappa)
            saved = traffic.seconds(crowd) - traffic.seconds(packing.crowd_of(job))
            if saved < self.least_return * self.move_seconds:
                packing.remove(job)
                packing.hold(job, before)

    def _empty_nodes(
        self, packing: Packing, widths: Mapping[JobId, Width], movable: Mapping[JobId, Traffic]
    ) -> None:
        """Move the jobs of nearly empty nodes into the gaps of others, so that the node can be released."""
        for node_id, gpus in packing.least_used():
            jobs = sorted(packing.jobs_on(node_id), key=lambda name: (-widths[name].gpus, name))
            if not jobs or not all(job in movable and packing.crowd_of(job) == 0 for job in jobs):
                continue
            cost = self.move_seconds * sum(widths[job].gpus for job in jobs)
            held_seconds = min(self.horizon_seconds, max(movable[job].remaining_seconds for job in jobs))
            if gpus * held_seconds < self.least_return * cost:
                continue
            before = {job: packing.remove(job) for job in jobs}
            if _fill_gaps(packing, jobs, widths, movable, at_least=self.least_return * cost / gpus):
                continue
            for job, slots in before.items():
                packing.hold(job, slots)


def _fill_gaps(
    packing: Packing,
    jobs: Sequence[JobId],
    widths: Mapping[JobId, Width],
    movable: Mapping[JobId, Traffic],
    *,
    at_least: float,
) -> bool:
    """Place each job in a gap of a node that will be held `at_least` that many seconds anyway, or none."""
    moved: list[JobId] = []
    for job in jobs:
        if not packing.add_to_gap(job, widths[job]):
            break
        moved.append(job)
        neighbours = packing.jobs_on(packing.slots_of(job)[0].node) - set(jobs)
        lasting = (movable[name].remaining_seconds if name in movable else at_least for name in neighbours)
        if max(lasting, default=0.0) < at_least:
            break
    else:
        return True
    for job in moved:
        packing.remove(job)
    return False


def senders(slots: Mapping[JobId, Sequence[GpuSlot]]) -> dict[NodeId, tuple[JobId, ...]]:
    """Return, for each node, the jobs that send through its link (they span nodes), in the order given."""
    jobs_of: dict[NodeId, list[JobId]] = {}
    for job, held in slots.items():
        nodes = dict.fromkeys(slot.node for slot in held)
        if len(nodes) > 1:
            for node in nodes:
                jobs_of.setdefault(node, []).append(job)
    return {node: tuple(jobs) for node, jobs in jobs_of.items()}
