"""Cores, memory and disk that a class or a job needs besides GPUs, and the machines that have too little.

A class states the needs of each of its GPUs, since its jobs share nodes. A job's `cpus` and `memory_gb` are
what it may use on a node, so the node must have that much. Machines that the catalogue lacks count as large
enough. The GPUs of a node share its disk: the machine's own disks if the engine puts jobs on them and the
catalogue knows their size, else the root volume of `[cloud] volume_gib`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from pydantic import Field

from boa_daemon.inputs.catalog import Catalog
from boa_daemon.inputs.schema import Positive, Strict
from boa_daemon.units import GPU_MEMORY_FOR_JOBS_FRACTION
from policies.model import InstanceType, JobClass

if TYPE_CHECKING:
    from boa_daemon.job.run_options import RunOptions

_MIB_PER_GB = 1e9 / 2**20
GB_PER_GIB = 2**30 / 1e9
NO_DISKS: Mapping[str, float | None] = MappingProxyType({})


class NeedsRow(Strict):
    """Needs of each GPU of a job, in a problem file."""

    cpus_per_gpu: Positive | None = Field(default=None, description="vCPUs for each GPU")
    memory_gb_per_gpu: Positive | None = Field(default=None, description="10^9 bytes of memory for each GPU")
    disk_gb_per_gpu: Positive | None = Field(default=None, description="10^9 bytes of disk for each GPU")
    gpu_memory_gb: Positive | None = Field(
        default=None, description="10^9 bytes of a GPU's own memory, its part of it where jobs share GPUs"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcludedMachine:
    """A machine that is too small for a class or a job; `why` says what it lacks."""

    who: str
    instance_type: str
    why: str

    @property
    def sentence(self) -> str:
        """The exclusion as a sentence."""
        return f"{self.who} is not planned on {self.instance_type}: {self.why}"


def disk_gb_of(machine: str, catalog: Catalog, *, root_gb: float | None, own_disks: bool) -> float | None:
    """Return the disk that jobs on a machine share, in 10^9 bytes; None if it is not known.

    With `own_disks` jobs use the machine's own disks, or the root volume if it has none.
    """
    entry = catalog.entries.get(machine) if own_disks and root_gb is not None else None
    return root_gb if entry is None else float(entry.instance_store_gb) or root_gb


def lack_per_gpu(
    needs: NeedsRow, machine: InstanceType, catalog: Catalog, *, disk_gb: float | None = None
) -> str:
    """Return what a machine lacks for a class; empty if it has enough, or if that is not known.

    `disk_gb` is the disk of a node in 10^9 bytes.
    """
    disk = needs.disk_gb_per_gpu
    if disk is not None and disk_gb is not None and disk_gb < disk * machine.gpus:
        return f"{disk_gb / machine.gpus:.4g} GB of disk for each GPU, and {disk:g} are needed"
    entry = catalog.entries.get(str(machine.machine_name.listed))
    if entry is None:
        return ""
    own = entry.gpu_memory_mib / _MIB_PER_GB
    if machine.places_per_gpu > 1:
        own *= GPU_MEMORY_FOR_JOBS_FRACTION / machine.places_per_gpu
    if needs.gpu_memory_gb is not None and own and own < needs.gpu_memory_gb:
        each = "GPU" if machine.places_per_gpu == 1 else f"of {machine.places_per_gpu} places on a GPU"
        return f"{own:.4g} GB of GPU memory for each {each}, and {needs.gpu_memory_gb:g} are needed"
    cpus, memory = needs.cpus_per_gpu, needs.memory_gb_per_gpu
    if cpus is not None and entry.vcpus and entry.vcpus < cpus * machine.gpus:
        return f"{entry.vcpus / machine.gpus:g} vCPUs for each GPU, and {cpus:g} are needed"
    gb = entry.memory_mib / _MIB_PER_GB
    if memory is not None and gb and gb < memory * machine.gpus:
        return f"{gb / machine.gpus:.4g} GB for each GPU, and {memory:g} are needed"
    return ""


def lack_on_node(limits: RunOptions, machine: InstanceType, catalog: Catalog) -> str:
    """Return what a node lacks of a job's `cpus` and `memory_gb`; empty if it has enough."""
    entry = catalog.entries.get(str(machine.machine_name.listed))
    if entry is None:
        return ""
    if entry.vcpus and entry.vcpus < limits.cpus:
        return f"it has {entry.vcpus} vCPUs, and cpus is {limits.cpus:g}"
    gb = entry.memory_mib / _MIB_PER_GB
    if gb and gb < limits.memory_gb:
        return f"it has {gb:.4g} GB, and memory_gb is {limits.memory_gb:g}"
    return ""


def excluded_for(
    name: str,
    needs: NeedsRow | None,
    machines: Mapping[str, InstanceType],
    catalog: Catalog,
    *,
    disk_gb: Mapping[str, float | None] = NO_DISKS,
) -> dict[str, ExcludedMachine]:
    """Return the machines that have too little for a class, keyed by GPU type, as is `disk_gb`."""
    if needs is None:
        return {}
    lacks = {
        kind: lack_per_gpu(needs, machine, catalog, disk_gb=disk_gb.get(kind))
        for kind, machine in machines.items()
    }
    return {
        kind: ExcludedMachine(who=f"class {name}", instance_type=machines[kind].name, why=why)
        for kind, why in lacks.items()
        if why
    }


def without_gpu_types(job_class: JobClass, kinds: Iterable[str]) -> JobClass | None:
    """Return a class without some GPU types; None if a phase has none left."""
    gone = frozenset(kinds)
    kept = [
        {kind: curve for kind, curve in phase.speedups.items() if kind not in gone}
        for phase in job_class.phases
    ]
    if not all(kept):
        return None
    phases = (replace(one, speedups=curves) for one, curves in zip(job_class.phases, kept, strict=True))
    return replace(job_class, phases=tuple(phases))
