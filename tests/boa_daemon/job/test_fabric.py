"""`job/fabric.py`: where a `Fabric` runs, and what `job.steps` calls to save and load it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from boa_daemon.job import fabric


def test_a_state_is_one_file_in_a_folder_and_is_trusted_before_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All values are in it by name."""
    said: list[tuple[Any, ...]] = []
    run = SimpleNamespace(loads_with_trust=False)
    monkeypatch.setattr(fabric, "current", lambda: run)
    monkeypatch.setattr(fabric, "trust", lambda path: said.append(("trust", path)))
    stand_in = SimpleNamespace(
        load=lambda path, state: said.append(("load", path, state)),
        save=lambda path, state: said.append(("save", path, state)),
    )
    hooks = fabric.fabric_state(stand_in, model="m", step=3)
    assert (hooks["folder"], run.loads_with_trust) == (True, True)
    hooks["save"](Path("/a"))
    hooks["load"](Path("/b"))
    state = {"model": "m", "step": 3}
    file = fabric.FILE
    assert said == [
        ("save", Path("/a") / file, state),
        ("trust", Path("/b")),
        ("load", Path("/b") / file, state),
    ]


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({}, {"num_nodes": 1, "devices": 1}),
        ({"BOA_NODES": "2", "BOA_GPUS_PER_NODE": "4", "WORLD_SIZE": "8"}, {"num_nodes": 2, "devices": 4}),
        ({"LOCAL_WORLD_SIZE": "3", "WORLD_SIZE": "3"}, {"num_nodes": 1, "devices": 3}),
        ({"BOA_GPUS_PER_NODE": "2", "LOCAL_WORLD_SIZE": "3"}, {"num_nodes": 1, "devices": 2}),
    ],
)
def test_nodes_and_devices_are_those_of_the_generation(
    environment: dict[str, str], wanted: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outside BOA, those that torchrun says."""
    for name in ("BOA_NODES", "BOA_GPUS_PER_NODE", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert fabric.where() == wanted


def test_nodes_of_different_sizes_switch_lightnings_check_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would refuse three GPUs on two nodes; everything else is torchrun's environment."""

    class TorchElasticEnvironment:
        def validate_settings(self, num_devices: int, num_nodes: int) -> None:
            raise ValueError("different numbers")

    module = SimpleNamespace(TorchElasticEnvironment=TorchElasticEnvironment)
    monkeypatch.setitem(sys.modules, "lightning.fabric.plugins.environments", module)  # type: ignore[arg-type]
    monkeypatch.setattr(fabric, "import_module", lambda name: sys.modules[name])
    for name, value in {"BOA_NODES": "2", "BOA_GPUS_PER_NODE": "2", "WORLD_SIZE": "3"}.items():
        monkeypatch.setenv(name, value)
    found = fabric.where()
    (plugin,) = found["plugins"]
    assert isinstance(plugin, TorchElasticEnvironment)
    assert plugin.validate_settings(2, 2) is None
