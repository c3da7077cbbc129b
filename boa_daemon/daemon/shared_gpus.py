"""GPUs that several jobs share: `[cloud] gpu_places` makes of such a machine one more, with places for GPUs.

In plans, in the books and on bills place i of a node is a GPU like any other, of the GPU type
`t4@g4dn.12xlarge/2`. The cloud rents the machine that it knows, and an engine is told on which GPU each place
is: here they meet. Places are numbered through all GPUs first, so place i is on GPU i modulo the GPUs.
A node keeps its places for as long as it lives: the jobs on it count on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from boa_daemon.errors import InputError, did_you_mean
from boa_daemon.inputs.catalog import Catalog
from boa_daemon.inputs.resource_needs import NeedsRow
from boa_daemon.store.records import InstanceRecord
from boa_daemon.tick.actions import StartJob
from policies.links.gpu_kinds import without_market
from policies.model import GpuSlot, InstanceType, JobClass, NodeId

MOST_PLACES = 8


def with_places(
    machines: Mapping[str, InstanceType], places: Mapping[str, int], catalog: Catalog
) -> dict[str, InstanceType]:
    """Return machines by name, those that `places` names with so many places on each GPU.

    Raises:
        InputError: when it names a machine that is not rented, or whose GPUs' memory nobody knows.
    """
    for name, count in places.items():
        if name not in machines:
            hint = did_you_mean(name, machines) or "Name one of [cloud] instance_types"
            raise InputError(f"[cloud] gpu_places: {name!r} is not rented here", hint=hint)
        if not 2 <= count <= MOST_PLACES:
            raise InputError(
                f"[cloud] gpu_places: {name} has 2 to {MOST_PLACES} places on a GPU; got {count}"
            )
        entry = catalog.entries.get(name)
        if entry is None or not entry.gpu_memory_mib:
            raise InputError(
                f"[cloud] gpu_places: the catalogue does not know how much memory a GPU of {name} has",
                hint="Add gpu_memory_mib to its row of the price file",
            )
    return {
        name: replace(machine, gpus=machine.gpus * places[name], places_per_gpu=places[name])
        if name in places
        else machine
        for name, machine in machines.items()
    }


def check_memory(job_class: JobClass, needs: NeedsRow | None, machines: Mapping[str, InstanceType]) -> None:
    """Refuse a class that may share GPUs and does not say how much of their memory it takes.

    Raises:
        InputError: naming the class.
    """
    kinds = {kind for phase in job_class.phases for kind in phase.speedups}
    shared = [kind for kind, one in machines.items() if kind in kinds and one.places_per_gpu > 1]
    if shared and (needs is None or needs.gpu_memory_gb is None):
        raise InputError(
            f"class {job_class.name!r} may share the GPUs of {machines[shared[0]].name} and does not say "
            "how much of their memory it takes",
            hint="Add needs: {gpu_memory_gb: ...} to the class",
        )


def start_on_gpus(start: StartJob, instances: Mapping[NodeId, InstanceRecord]) -> StartJob:
    """Return a start with the GPUs on which its places are; the same object where no GPU is shared."""
    kinds = {
        slot.node: instances[slot.node].node.instance_type for slot in start.slots if slot.node in instances
    }
    most = max((kind.places_per_gpu for kind in kinds.values()), default=1)
    if most == 1:
        return start
    slots = (GpuSlot(slot.node, slot.index % kinds[slot.node].whole_gpus) for slot in start.slots)
    return replace(start, slots=tuple(slots), places_per_gpu=most)


def with_whole_gpus(machine: InstanceType) -> InstanceType:
    """Return a machine as the cloud knows it: with whole GPUs; its name and GPU type are left."""
    if machine.places_per_gpu == 1:
        return machine
    return replace(machine, gpus=machine.whole_gpus, places_per_gpu=1)


def planned_machine(
    listed: InstanceType, *, name: str, kind: str, planned: InstanceType | None, known: InstanceType | None
) -> InstanceType:
    """Return what the cloud lists as the machine that it is in plans, with the places that it has.

    `planned` is that machine, where there is one; `known` is what the node was when it was seen first: with
    other places than those of the plan it stays what it was, and nobody new is placed on it.
    """
    places = 1 if planned is None else planned.places_per_gpu
    if (
        known is not None
        and known.places_per_gpu != places
        and without_market(known.name) == without_market(name)
    ):
        return known
    if places == 1 and (name, kind) == (listed.name, listed.gpu_type):
        return listed
    return replace(listed, name=name, gpu_type=kind, gpus=listed.whole_gpus * places, places_per_gpu=places)
