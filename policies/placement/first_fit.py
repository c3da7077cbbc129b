"""First fit: each job takes the first node with room; a job wider than that takes as few nodes as it can.

A simple alternative to `lwf`. Nodes are in the caller's order (for example oldest first), so old nodes stay
full and young ones become empty. Cost: O(jobs x nodes).

    symbol   here          meaning
    k        width.gpus    GPUs that a job needs
    f        free[node]    indices of the free GPUs

A job that fits on one node gets the first such node; nodes on which it already has GPUs come first. A job
that does not takes the nodes with most room first. A job may be spread over nodes, so it fits exactly if
enough GPUs of its type are free, and no job starves because of fragmentation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from policies.answer import Placement
from policies.model import GpuSlot, JobId, Node, NodeId, Width

_Free = dict[NodeId, list[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstFit:
    """Put each job on the first node with room, else on as few nodes as possible."""

    def place(
        self,
        widths: Mapping[JobId, Width],
        *,
        nodes: Sequence[Node],
        held: Mapping[JobId, tuple[GpuSlot, ...]],
    ) -> Placement:
        """Return the slots of each job that fits on ready nodes, in the order of `widths`."""
        ready = {node.id: node for node in nodes if node.is_ready}
        free: _Free = {node.id: list(range(node.instance_type.gpus)) for node in ready.values()}
        slots: dict[JobId, tuple[GpuSlot, ...]] = {}
        for job, width in widths.items():
            own = held.get(job, ())
            if own and _matches(own, width, ready):
                _take(free, own)
                slots[job] = own
        for job, width in widths.items():
            if job not in slots:
                found = _first_fit(width, ready, free, prefer={slot.node for slot in held.get(job, ())})
                if found is not None:
                    _take(free, found)
                    slots[job] = found
        return Placement(slots={job: slots[job] for job in widths if job in slots})


def _matches(own: tuple[GpuSlot, ...], width: Width, ready: Mapping[NodeId, Node]) -> bool:
    """Return whether the held slots have the width's number and type of GPUs, all on ready nodes."""
    return len(own) == width.gpus and all(
        slot.node in ready and ready[slot.node].instance_type.gpu_type == width.gpu_type for slot in own
    )


def _take(free: _Free, slots: tuple[GpuSlot, ...]) -> None:
    for slot in slots:
        free[slot.node].remove(slot.index)


def _first_fit(
    width: Width, ready: Mapping[NodeId, Node], free: _Free, *, prefer: set[NodeId]
) -> tuple[GpuSlot, ...] | None:
    """Return slots for a width: one node if any has room, else the fewest nodes; None if it does not fit."""
    room = {
        node.id: node.instance_type.one_per_gpu(free[node.id])
        for node in ready.values()
        if node.instance_type.gpu_type == width.gpu_type and free[node.id]
    }
    rooms = list(room)
    rooms.sort(key=lambda node: node not in prefer)
    for node in rooms:
        if len(room[node]) >= width.gpus:
            return tuple(GpuSlot(node, index) for index in room[node][: width.gpus])
    if sum(len(room[node]) for node in rooms) < width.gpus:
        return None
    slots: list[GpuSlot] = []
    for node in sorted(rooms, key=lambda node: -len(room[node])):
        slots.extend(GpuSlot(node, index) for index in room[node][: width.gpus - len(slots)])
    return tuple(slots)
