"""What the daemon plans for: a policy from the settings, with everything that it brings along."""

from __future__ import annotations

from pathlib import Path

import pytest

from boa_daemon.backends.local import LocalCloud
from boa_daemon.daemon.config import Settings
from boa_daemon.daemon.planner import Planner
from boa_daemon.errors import InputError
from boa_daemon.testing.daemon_in_a_folder import job_content
from policies.model import Width
from policies.registry import POLICIES, build_policy


def settings(policy: str) -> Settings:
    """Return settings under a policy, with a short hold of idle nodes."""
    return Settings.model_validate(
        {
            "budget": {"usd_per_hour": 20.0},
            "workload": {"policy": policy},
            "daemon": {"idle_hold_seconds": 45.0},
        }
    )


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_policy_keeps_its_pace_and_its_rounds_under_the_daemon(name: str) -> None:
    """As in the simulator; but no idle node is held for longer than the settings allow."""
    record = Planner(settings(name)).record([])
    built = build_policy(record.name, record.site, record.options)
    _, _, rules = record.build()
    assert (rules.pace, rules.round_seconds) == (built.pace, built.round_seconds)
    own = built.idle_hold_seconds
    assert rules.idle_hold_seconds == (45.0 if own is None else min(own, 45.0))


def test_several_machines_of_a_gpu_are_planned_as_gpu_types(tmp_path: Path) -> None:
    """The machine of the class file keeps the file's name; another one runs what fits into one node of it."""
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


def test_cores_and_memory_are_those_of_the_machine_unless_all_nodes_are_this_one() -> None:
    """64 cores are on no g5.xlarge of AWS; nodes that stand for it on this machine have what this one has."""
    content = {**job_content("j"), "cpus": 64.0, "min_gpus": None}
    with pytest.raises(InputError, match="no machine has enough"):
        Planner(Settings()).class_for(content)
    assert Planner(Settings(), cloud=LocalCloud).class_for(content).name
