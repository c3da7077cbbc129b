"""LWF-kappa: least workload first, with jobs wider than kappa kept together.

Source: Wang, Shi, Wang, Chu, arXiv 2002.10105, LWF-kappa. The workload L_g of a GPU is the time that the jobs
on it still need. A job of n workers takes, of the GPUs with room for it,

    n <= kappa: the n GPUs with the smallest L_g, on any servers n >  kappa: as many as possible of the server
    with the smallest sum of L_g, then of the next; by L_g in each

    symbol   here        meaning
    n        gpus        workers of the job, one GPU each
    kappa    kappa       widest job that is spread; infinity is list scheduling
    F        fits        GPUs with enough free memory
    L_g      workload    seconds of work left on each GPU

On rented clusters a GPU holds one job, so all free GPUs have L_g = 0 and the choice is among servers:
`LeastWorkloadFirst` takes the fewest servers, then those with quiet links, then the best fit, so that whole
instances become empty (see `policies.placement.packing`). Placed jobs stay where they are; a separate stage
of the tick moves jobs.

Cost: a choice among G GPUs sorts them, O(G log G); exclusive placement is O(sizes of an instance) per server
taken, whatever the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol
from zlib import crc32

import numpy as np

from policies.answer import Placement
from policies.model import GpuSlot, JobId, Node, NodeId, Width
from policies.placement.few_jobs import MOST_LOOKS, is_plain, kept_widths, place_few, slots_for
from policies.placement.packing import ClusterPacking
from policies.speedup import Floats, Ints, Mask


class GpuChooser(Protocol):
    """Chooses the GPUs of one job on a cluster whose GPUs may be shared."""

    def choose(self, gpus: int, *, fits: Mask, workload: Floats, server_of: Ints) -> Ints | None:
        """Return the indices of `gpus` GPUs, or None if fewer fit. Arrays have one entry per GPU."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomChoice:
    """Any GPUs that fit, each set equally likely."""

    rng: np.random.Generator

    def choose(self, gpus: int, *, fits: Mask, workload: Floats, server_of: Ints) -> Ints | None:
        """Return random GPUs that fit."""
        free = np.flatnonzero(fits)
        return None if len(free) < gpus else self.rng.permutation(free)[:gpus]


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstGpus:
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
        """Return the least loaded GPUs, server by server if the job is wider than kappa."""
        free = np.flatnonzero(fits)
        if len(free) < gpus:
            return None
        if gpus <= self.kappa:
            return free[np.argsort(workload[free], kind="stable")[:gpus]]
        by_server = np.bincount(server_of, weights=workload)[server_of[free]]
        return free[np.lexsort((free, workload[free], server_of[free], by_server))[:gpus]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastWorkloadFirst:
    """Exclusive GPUs: fewest nodes, quiet links, best fit; a job that holds its width stays where it is.

    Jobs of 2 to `kappa` GPUs take the free GPUs of the fullest nodes, and may be spread over them.
    """

    kappa: float = 1

    def place(
        self,
        widths: Mapping[JobId, Width],
        *,
        nodes: Sequence[Node],
        held: Mapping[JobId, tuple[GpuSlot, ...]],
    ) -> Placement:
        """Return the slots of each job that fits on ready nodes; jobs earlier in `widths` are served first.

        GPUs are exclusive and a job may span nodes, so a job fits if enough GPUs of its type are free. The
        jobs that fit are placed widest first, so that fewer of them span nodes.
        """
        packing, new = _with_held(widths, nodes, held)
        self._add(packing, {job: widths[job] for job in new})
        placed = packing.slots
        return Placement(slots={job: placed[job] for job in widths if job in placed})

    def place_beside(
        self,
        wishes: Mapping[JobId, Width],
        *,
        nodes: Sequence[Node],
        holders: Sequence[Sequence[JobId | None]],
    ) -> dict[JobId, tuple[GpuSlot, ...]]:
        """Return what `place` gives the wishes if all other jobs have the width that they hold."""
        is_small = len(wishes) * len(nodes) <= MOST_LOOKS and is_plain(nodes)
        if is_small and not [width for width in wishes.values() if 1 < width.gpus <= self.kappa]:
            if len(wishes) == 1:
                ((job, width),) = wishes.items()
                if not [jobs for jobs in holders if job in jobs]:
                    slots = slots_for(width, nodes, holders)
                    return {} if slots is None else {job: slots}
            return place_few(wishes, nodes, holders)
        packing = ClusterPacking(nodes)
        packing.occupy(holders, wishes)
        kept = kept_widths(wishes, nodes, holders)
        for job, slots in kept.items():
            packing.hold(job, slots)
        self._add(packing, {job: width for job, width in wishes.items() if job not in kept})
        placed = packing.slots
        return {job: placed[job] for job in wishes if job in placed}

    def _add(self, packing: ClusterPacking, wishes: Mapping[JobId, Width]) -> None:
        """Place the wishes that fit; earlier ones are served first."""
        if len(wishes) == 1:
            for job, width in wishes.items():
                packing.add(job, width, kappa=self.kappa)
            return
        left = {kind: packing.free_gpus(kind) for kind in {width.gpu_type for width in wishes.values()}}
        fitting: list[JobId] = []
        for job, width in wishes.items():
            if width.gpus <= left[width.gpu_type]:
                left[width.gpu_type] -= width.gpus
                fitting.append(job)
        if len(fitting) == 1:
            packing.add(fitting[0], wishes[fitting[0]], kappa=self.kappa)
        else:
            fitting.sort(key=lambda name: -wishes[name].gpus)
            for width, jobs in groupby(fitting, key=wishes.__getitem__):
                packing.add_alike(list(jobs), width, kappa=self.kappa)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyFree:
    """Exclusive GPUs, chosen at random: a baseline for placers. A hash of job and GPU makes it repeatable."""

    def place(
        self,
        widths: Mapping[JobId, Width],
        *,
        nodes: Sequence[Node],
        held: Mapping[JobId, tuple[GpuSlot, ...]],
    ) -> Placement:
        """Return the slots of each job that fits on ready nodes; earlier jobs in `widths` come first."""
        packing, new = _with_held(widths, nodes, held)
        for job in new:
            free = packing.free_slots(widths[job].gpu_type)
            if len(free) >= widths[job].gpus:
                free.sort(key=lambda slot: crc32(f"{job} {slot.node} {slot.index}".encode()))
                packing.hold(job, free[: widths[job].gpus])
        placed = packing.slots
        return Placement(slots={job: placed[job] for job in widths if job in placed})


def _with_held(
    widths: Mapping[JobId, Width], nodes: Sequence[Node], held: Mapping[JobId, tuple[GpuSlot, ...]]
) -> tuple[ClusterPacking, list[JobId]]:
    """Return the packing of ready nodes with the jobs that already hold their width, and the other jobs."""
    packing = ClusterPacking([node for node in nodes if node.is_ready])
    new: list[JobId] = []
    for job, width in widths.items():
        slots = held.get(job)
        if slots is None or not packing.keep(job, slots, width):
            new.append(job)
    return packing, new


def senders(
    slots: Mapping[JobId, Sequence[GpuSlot]], above: Mapping[NodeId, Sequence[str]] | None = None
) -> dict[str, tuple[JobId, ...]]:
    """Return, for each link, the jobs that send through it because they span nodes, in the order given.

    A link has the name of its node, or of the network part whose uplink it is. `above` lists the network
    parts above each node, the widest first.
    """
    jobs_of: dict[str, list[JobId]] = {}
    for job, held in slots.items():
        nodes = dict.fromkeys(slot.node for slot in held)
        if len(nodes) > 1:
            for link in (*nodes, *_uplinks([() if above is None else above.get(node, ()) for node in nodes])):
                jobs_of.setdefault(link, []).append(job)
    return {link: tuple(jobs) for link, jobs in jobs_of.items()}


def _uplinks(above: Sequence[Sequence[str]]) -> list[str]:
    """Return the network parts whose uplinks a job uses, from the parts above each of its nodes."""
    tiers = (dict.fromkeys(tier) for tier in zip(*above, strict=False))
    return [name for names in tiers if len(names) > 1 for name in names]
