"""Planner: the policy that the settings name, with its options, classes and machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from boa_daemon.backends.local import LocalCloud
from boa_daemon.daemon.planner.planner import Planner
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.errors import InputError
from boa_daemon.testing.daemon_in_a_folder import job_content
from policies.model import Width
from policies.registry import POLICIES, build_policy


def settings(policy: str) -> Settings:
    """Return settings with the policy and a short idle hold."""
    return Settings.model_validate(
        {
            "budget": {"usd_per_hour": 20.0},
            "workload": {"policy": policy},
            "daemon": {"idle_hold_seconds": 45.0},
        }
    )


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_policy_keeps_its_pace_and_rounds_in_the_daemon(name: str) -> None:
    """The idle hold is the smaller of the policy's and the settings' value."""
    record = Planner(settings(name)).record([])
    built = build_policy(record.name, record.site, record.options)
    _, _, rules = record.build()
    assert (rules.pace, rules.round_seconds) == (built.pace, built.round_seconds)
    own = built.idle_hold_seconds
    assert rules.idle_hold_seconds == (45.0 if own is None else min(own, 45.0))


def test_several_machines_with_one_gpu_type_are_planned_as_separate_types(tmp_path: Path) -> None:
    """The class file's machine keeps the name `t4`; the other type has the widths that fit on one node."""
    path = tmp_path / "classes.yaml"
    path.write_text(
        "gpu_types: {t4: {instance_type: g4dn.12xlarge}}\n"
        "classes: [{name: c, phases: [{size_gpu_hours: 1, speedup: {table: {1: 1.0, 4: 3.5}}}]}]\n",
        encoding="utf-8",
    )
    planner = Planner(
        Settings.model_validate(
            {
                "cloud": {"instance_types": ["g4dn.xlarge", "g4dn.12xlarge"]},
                "workload": {"classes": str(path)},
            }
        )
    )

    assert {kind: machine.name for kind, machine in planner.machines.items()} == {
        "t4@g4dn.xlarge": "g4dn.xlarge",
        "t4": "g4dn.12xlarge",
    }
    assert planner.speed("c", 0, Width("t4", 4)) == 3.5
    assert planner.speed("c", 0, Width("t4@g4dn.xlarge", 1)) == 1.0
    assert list(planner.classes["c"].phases[0].speedups["t4@g4dn.xlarge"].whole_widths()) == [1]


def test_a_local_cloud_checks_cpus_against_this_machine() -> None:
    """64 CPUs are too many for the instance type of AWS, and are accepted for nodes on this machine."""
    content = {**job_content("j"), "cpus": 64.0, "min_gpus": None}
    with pytest.raises(InputError, match="no machine has enough"):
        Planner(Settings()).class_for(content)
    assert Planner(Settings(), cloud=LocalCloud).class_for(content).name
