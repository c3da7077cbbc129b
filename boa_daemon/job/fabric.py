"""Lightning Fabric under BOA: checkpoints of everything that a `Fabric` has set up.

    fabric = Fabric(strategy="ddp", **where())
    fabric.launch()
    for step in job.steps(total, every=500, **fabric_state(fabric, model=model, optimizer=optimizer)):
        ...

Start the data loader at the step of `job.resume()` with a `SampleStream`. Do not let Fabric set that loader
up: the stream already gives each rank its own part.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

from boa_daemon.job.read_back import trust
from boa_daemon.job.run import current

FILE = "fabric.ckpt"


def where() -> dict[str, Any]:
    """Return the arguments of `Fabric` or `Trainer` for this generation: its nodes, and the devices per node.

    Lightning requires the same number of devices on all nodes; if it differs, its check is switched off.
    """
    nodes = int(os.environ.get("BOA_NODES", "1"))
    devices = int(os.environ.get("BOA_GPUS_PER_NODE", os.environ.get("LOCAL_WORLD_SIZE", "1")))
    found: dict[str, Any] = {"num_nodes": nodes, "devices": devices}
    if nodes * devices != int(os.environ.get("WORLD_SIZE", nodes * devices)):
        environments: Any = import_module("lightning.fabric.plugins.environments")
        uneven = {"validate_settings": lambda _self, num_devices, num_nodes: None}
        found["plugins"] = [type("UnevenNodes", (environments.TorchElasticEnvironment,), uneven)()]
    return found


def fabric_state(fabric: Any, **state: Any) -> dict[str, Any]:
    """Return `load`, `save` and `folder` for `job.steps`, for models, optimizers and values by name."""

    def load(path: Path) -> None:
        trust(path)
        fabric.load(path / FILE, state)

    current().loads_with_trust = True

    def save(path: Path) -> None:
        fabric.save(path / FILE, state)

    return {"load": load, "save": save, "folder": True}
