"""Each partition of Slurm has a class whose only width is its machine."""

from __future__ import annotations

import pytest

from boa_daemon.daemon.planner.slurm_classes import (
    check_partitions,
    class_of_partition,
    is_node_class,
    slurm_classes,
)
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.errors import InputError
from boa_daemon.testing import an_instance_type

MACHINES = {"a": an_instance_type(gpu_type="a", gpus=1), "b": an_instance_type(gpu_type="b", gpus=8)}


def settings(**partitions: str) -> Settings:
    """Return settings with partitions of these machines."""
    tables = {name: {"instance_type": machine} for name, machine in partitions.items()}
    return Settings.model_validate({"slurm": {"partitions": tables}})


def test_a_node_of_a_partition_is_a_job_on_the_whole_machine() -> None:
    """Its GPU type is that of the machine, its one width all of its GPUs."""
    found = slurm_classes(settings(small="a-x1", large="b-x8"), MACHINES)
    assert list(found) == ["slurm-small", "slurm-large"]
    (phase,) = found["slurm-large"].phases
    assert {name: curve.whole_widths().tolist() for name, curve in phase.speedups.items()} == {"b": [8]}
    assert found["slurm-large"].name == class_of_partition("large")
    assert is_node_class("slurm-large")
    assert not is_node_class("large")


def test_a_machine_that_is_not_rented_is_refused_with_the_nearest_name() -> None:
    """The error names the setting."""
    said = r"\[slurm\.partitions\.large\] instance_type: 'b-x9' is not rented"
    with pytest.raises(InputError, match=said) as found:
        slurm_classes(settings(small="a-x1", large="b-x9"), MACHINES)
    assert "b-x8" in str(found.value.hint)


def test_slurm_needs_a_partition() -> None:
    """Without one the error shows how to write one."""
    check_partitions(settings(small="a-x1"))
    with pytest.raises(InputError, match="name no partition of Slurm"):
        check_partitions(settings())
