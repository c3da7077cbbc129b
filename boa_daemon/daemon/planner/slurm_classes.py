"""The classes of jobs that are nodes of Slurm: one width, the machine's, for each partition."""

from __future__ import annotations

from collections.abc import Mapping

from boa_daemon.daemon.settings.config import Settings
from boa_daemon.errors import InputError, did_you_mean
from policies.model import InstanceType, JobClass, Phase
from policies.speedup import Table

CLASS_PREFIX = "slurm-"
NODE_VARIABLE = "BOA_SLURM_NODE"
"""Variable with that name, for the command of the job."""


def class_of_partition(partition: str) -> str:
    """Return the class of the nodes of a partition."""
    return f"{CLASS_PREFIX}{partition}"


def check_partitions(settings: Settings) -> None:
    """Check that the settings name a partition of Slurm.

    Raises:
        InputError: when they name none.
    """
    if not settings.slurm.partitions:
        raise InputError(
            "the settings name no partition of Slurm",
            hint='For example [slurm.partitions.cloud] with instance_type = "g5.xlarge"',
            setting=("slurm", "partitions"),
        )


def is_node_class(name: str) -> bool:
    """Return whether jobs of a class are nodes of Slurm, whose sizes and rates say nothing about training."""
    return name.startswith(CLASS_PREFIX)


def slurm_classes(settings: Settings, machines: Mapping[str, InstanceType]) -> dict[str, JobClass]:
    """Return a class for each partition of the settings.

    Raises:
        InputError: when a partition names a machine that is not rented.
    """
    found = {}
    for partition, said in settings.slurm.partitions.items():
        kind = next((kind for kind, one in machines.items() if one.name == said.instance_type), None)
        if kind is None:
            raise InputError(
                f"[slurm.partitions.{partition}] instance_type: {said.instance_type!r} is not rented",
                hint=did_you_mean(said.instance_type, [one.name for one in machines.values()])
                or "Name it in [cloud] instance_types",
                setting=("slurm", "partitions", partition, "instance_type"),
            )
        width = machines[kind].gpus
        phase = Phase(size_gpu_hours=1.0, speedups={kind: Table(gpus=(width,), speeds=(float(width),))})
        name = class_of_partition(partition)
        found[name] = JobClass(name=name, phases=(phase,))
    return found
