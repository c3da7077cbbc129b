"""Lightning Fabric under BOA: what `job.steps` needs to save and load what a `Fabric` has set up.

    fabric = Fabric(strategy="ddp", **where())
    fabric.launch()
    for step in job.steps(total, every=500, **fabric_state(fabric, model=model, optimizer=optimizer)):
        ...

Let the loader begin at `job.resume()`'s step with a `SampleStream`, and do not have Fabric set it up: the
stream gives each rank its own part already.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

FILE = "fabric.ckpt"


def where() -> dict[str, Any]:
    """Return what `Fabric` or `Trainer` has to know of this generation: its nodes, and its devices on each.

    Lightning takes all nodes for equal; where they are not, its check of that is left out.
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
    """Return `load`, `save` and `folder` for `steps`, of models, optimizers and values by their names."""

    def load(path: Path) -> None:
        fabric.load(path / FILE, state)

    def save(path: Path) -> None:
        fabric.save(path / FILE, state)

    return {"load": load, "save": save, "folder": True}
