"""GPUs shared by several jobs: `[cloud] gpu_places` divides each GPU of a machine into places.

In plans, in the database and on bills, place i of a node is a GPU like any other, of a GPU type such as
`t4@g4dn.12xlarge/2`. This module translates: the cloud rents the real machine, and an engine gets the GPU of
each place. Places are numbered through all GPUs first, so place i is on GPU i modulo the number of GPUs. A
node keeps its places for life, because its jobs rely on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from boa_daemon.errors import InputError, did_you_mean
from boa_daemon.inputs.catalog import Catalog
from boa_daemon.inputs.resource_needs import NeedsRow
from boa_daemon.store.records import InstanceRecord
from boa_daemon.tick.facts.actions import StartJob
from policies.kinds import machine_name_of
from policies.model import GpuSlot, InstanceType, JobClass, NodeId

MOST_PLACES = 8


def with_places(
    machines: Mapping[str, InstanceType], places: Mapping[str, int], catalog: Catalog
) -> dict[str, InstanceType]:
    """Return machines by name, with `places` per GPU for the machines that it names.

    Raises:
        InputError: when it names a machine that is not rented, or whose GPU memory is unknown.
    """
    for name, count in places.items():
        if name not in machines:
            hint = did_you_mean(name, machines) or "Name one of [cloud] instance_types"
            raise InputError(
                f"[cloud] gpu_places: {name!r} is not rented here", hint=hint, setting=("cloud", "gpu_places")
            )
        if not 2 <= count <= MOST_PLACES:
            raise InputError(
                f"[cloud] gpu_places: {name} has 2 to {MOST_PLACES} places on a GPU; got {count}",
                setting=("cloud", "gpu_places"),
            )
        entry = catalog.entries.get(name)
        if entry is None or not entry.gpu_memory_mib:
            raise InputError(
                f"[cloud] gpu_places: the catalogue does not know how much memory a GPU of {name} has",
                hint="Add gpu_memory_mib to its row of the price file",
                setting=("cloud", "gpu_places"),
            )
    return {
        name: replace(machine, gpus=machine.gpus * places[name], places_per_gpu=places[name])
        if name in places
        else machine
        for name, machine in machines.items()
    }


def check_memory(job_class: JobClass, needs: NeedsRow | None, machines: Mapping[str, InstanceType]) -> None:
    """Refuse a class that may share GPUs without stating its GPU memory.

    Raises:
        InputError: when the class is refused; the error names it.
    """
    kinds = {kind for phase in job_class.phases for kind in phase.speedups}
    shared = [kind for kind, one in machines.items() if kind in kinds and one.places_per_gpu > 1]
    if shared and (needs is None or needs.gpu_memory_gb is None):
        raise InputError(
            f"class {job_class.name!r} may share the GPUs of {machines[shared[0]].name} but does not state "
            "how much of their memory it takes",
            hint="Add needs: {gpu_memory_gb: ...} to the class",
        )


def start_on_gpus(start: StartJob, instances: Mapping[NodeId, InstanceRecord]) -> StartJob:
    """Return a start with GPU indices in place of places; the same object when no GPU is shared."""
    kinds = {
        slot.node: instances[slot.node].node.instance_type for slot in start.slots if slot.node in instances
    }
    most = max((kind.places_per_gpu for kind in kinds.values()), default=1)
    if most == 1:
        return start
    slots = (GpuSlot(slot.node, slot.index % kinds[slot.node].whole_gpus) for slot in start.slots)
    return replace(start, slots=tuple(slots), places_per_gpu=most)


def with_whole_gpus(machine: InstanceType) -> InstanceType:
    """Return a machine with whole GPUs, as the cloud knows it; name and GPU type stay."""
    if machine.places_per_gpu == 1:
        return machine
    return replace(machine, gpus=machine.whole_gpus, places_per_gpu=1)


def planned_machine(
    listed: InstanceType, *, name: str, kind: str, planned: InstanceType | None, known: InstanceType | None
) -> InstanceType:
    """Return a listed machine as the machine that it is in plans, with its places.

    `planned` is that machine, if there is one. `known` is the node's machine when it was first seen: when its
    places differ from the plan's it stays as it was, and no new job is placed on it.
    """
    places = 1 if planned is None else planned.places_per_gpu
    if (
        known is not None
        and known.places_per_gpu != places
        and known.machine_name.on_demand == machine_name_of(name).on_demand
    ):
        return known
    if places == 1 and (name, kind) == (listed.name, listed.gpu_type):
        return listed
    return replace(listed, name=name, gpu_type=kind, gpus=listed.whole_gpus * places, places_per_gpu=places)
