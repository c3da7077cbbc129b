"""The GPUs of a few jobs on a few nodes: the choice of `policies.placement.packing` without its index.

An index of the free GPUs pays for many jobs on many nodes. Most ticks place one job or two on the few nodes
with room, so each job is placed by one look at the nodes. The order of preference is that of the packing:

    one node has room       nodes in use, then the fullest, then those whose link is busy, then the first
    several nodes needed    the freest until one fits the rest, then the fullest that fits; quiet links first

    symbol   here         meaning
    n        gpus         GPUs wanted
    f_v      room         free GPUs of node v

It covers exclusive GPUs on nodes of unknown place in the network. Cost: O(nodes log nodes + GPUs) per job.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias

from policies.model import GpuSlot, JobId, Node, Width
from policies.placement.packing import slots_of_node

_Holders: TypeAlias = Sequence[Sequence[JobId | None]]
_Room: TypeAlias = tuple[int, bool, bool, int]
"""Free GPUs of a node, whether its link is busy, whether all its GPUs are free, and its index."""


MOST_LOOKS = 64
"""Jobs times nodes up to which looking at every node is faster than building the index."""


def is_plain(nodes: Sequence[Node]) -> bool:
    """Return whether the nodes have exclusive GPUs and unknown places in the network."""
    return not [node for node in nodes if node.tiers or node.instance_type.places_per_gpu > 1]


def place_few(
    wishes: Mapping[JobId, Width], nodes: Sequence[Node], holders: _Holders
) -> dict[JobId, tuple[GpuSlot, ...]]:
    """Return the slots of the wishes that fit on plain nodes; all other jobs keep their GPUs.

    A wishing job that holds its width keeps it; the GPUs of all others are free. Earlier wishes are served
    first, and of those that fit the widest is placed first.
    """
    found = kept_widths(wishes, nodes, holders)
    rows = [[None if job in wishes and job not in found else job for job in jobs] for jobs in holders]
    rows += [[None] * node.instance_type.gpus for node in nodes[len(holders) :]]
    left: dict[str, int] = {}
    for node, row in zip(nodes, rows, strict=True):
        kind = node.instance_type.gpu_type
        left[kind] = left.get(kind, 0) + row.count(None)
    fitting: list[JobId] = []
    for job, width in wishes.items():
        if job not in found and width.gpus <= left.get(width.gpu_type, 0):
            left[width.gpu_type] -= width.gpus
            fitting.append(job)
    fitting.sort(key=lambda job: -wishes[job].gpus)
    places = {node.id: row for node, row in zip(nodes, rows, strict=True)}
    for job in fitting:
        slots = slots_for(wishes[job], nodes, rows)
        if slots is not None:
            found[job] = slots
            for slot in slots:
                places[slot.node][slot.index] = job
    return {job: found[job] for job in wishes if job in found}


def kept_widths(
    wishes: Mapping[JobId, Width], nodes: Sequence[Node], holders: _Holders
) -> dict[JobId, tuple[GpuSlot, ...]]:
    """Return the slots of the wishing jobs that hold their width already."""
    held: dict[JobId, list[GpuSlot]] = {}
    kinds: dict[JobId, set[str]] = {}
    for node, jobs in zip(nodes, holders, strict=False):
        if wishes.keys().isdisjoint(jobs):
            continue
        for slot, job in zip(slots_of_node(node.id, len(jobs)), jobs, strict=True):
            if job is not None and job in wishes:
                held.setdefault(job, []).append(slot)
                kinds.setdefault(job, set()).add(node.instance_type.gpu_type)
    return {
        job: tuple(slots)
        for job, slots in held.items()
        if len(slots) == wishes[job].gpus and kinds[job] == {wishes[job].gpu_type}
    }


def slots_for(width: Width, nodes: Sequence[Node], holders: _Holders) -> tuple[GpuSlot, ...] | None:
    """Return the slots that `ClusterPacking.add` gives one job on plain nodes; None if it does not fit.

    `holders` are the jobs on the GPUs of the first nodes; on the others all GPUs are free.
    """
    kind, gpus, busy, occupied = width.gpu_type, width.gpus, _senders(holders), len(holders)
    rooms: list[_Room] = []
    for at, node in enumerate(nodes):
        machine = node.instance_type
        room = holders[at].count(None) if at < occupied else machine.gpus
        if room and machine.gpu_type == kind:
            rooms.append((room, at in busy, room == machine.gpus, at))
    fitting = [(is_empty, room, not is_busy, at) for room, is_busy, is_empty, at in rooms if room >= gpus]
    chosen = [min(fitting)[3]] if fitting else _fewest(gpus, rooms)
    slots: list[GpuSlot] = []
    for at in chosen:
        known = slots_of_node(nodes[at].id, nodes[at].instance_type.gpus)
        if at < occupied and any(holders[at]):
            known = tuple([slot for slot, job in zip(known, holders[at], strict=True) if job is None])
        slots += known[: gpus - len(slots)]
    return tuple(slots) if chosen else None


def _senders(holders: _Holders) -> Collection[int]:
    """Return the nodes whose links are busy: those of jobs on several nodes."""
    home: dict[JobId, int] = {}
    busy: set[int] = set()
    for at, jobs in enumerate(holders):
        if jobs.count(None) == len(jobs):
            continue
        for job in jobs:
            if job is not None and home.setdefault(job, at) != at:
                busy |= {home[job], at}
    return busy


def _fewest(gpus: int, rooms: list[_Room]) -> list[int]:
    """Return the fewest nodes with enough room; those with quiet links if that takes no more nodes."""
    if sum(room for room, _, _, _ in rooms) < gpus:
        return []
    nodes = _greedy(gpus, rooms)
    quiet = [room for room in rooms if not room[1]]
    if len(quiet) < len(rooms) and not {at for _, _, _, at in quiet}.issuperset(nodes):
        quietest = _greedy(gpus, quiet)
        if 0 < len(quietest) <= len(nodes):
            return quietest
    return nodes


def _greedy(gpus: int, rooms: list[_Room]) -> list[int]:
    """Return the freest nodes until one node fits the rest, and that node; empty if none does."""
    left, chosen = gpus, list[int]()
    freest = sorted(rooms, key=lambda room: (-room[0], *room[1:]))
    for number, (most, _, _, node) in enumerate(freest):
        if most >= left:
            fitting = [
                (is_busy, is_empty, room, at)
                for room, is_busy, is_empty, at in freest[number:]
                if room >= left
            ]
            return [*chosen, min(fitting)[3]]
        chosen.append(node)
        left -= most
    return []
