"""Machines of clouds whose lists do not say what they have."""

from __future__ import annotations

import pytest

from boa_daemon.inputs.cloud_machines import machines_of


@pytest.mark.parametrize("cloud", ["azure", "gcp"])
def test_a_machine_is_found_by_its_name_in_lower_case(cloud: str) -> None:
    """Each has GPUs, cores and memory, as whole numbers, and its name as the cloud writes it."""
    found = machines_of(cloud)
    assert found
    for name, machine in found.items():
        assert name == str(machine["instance_type"]).lower()
        assert all(
            isinstance(machine[key], int) and machine[key] > 0
            for key in ("gpus", "gpu_memory_mib", "vcpus", "memory_mib")
        )
    assert machines_of("azure").get("standard_nc4as_t4_v3", {}).get("gpu_model") == "NVIDIA T4"


def test_clouds_do_not_share_their_machines() -> None:
    """A cloud that nobody knows has none."""
    assert not machines_of("azure").keys() & machines_of("gcp").keys()
    assert machines_of("nimbus") == {}
