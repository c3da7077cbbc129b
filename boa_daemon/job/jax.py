"""JAX under BOA: one process with all GPUs of its node, and Orbax checkpoints for any number of GPUs.

    state = OrbaxState(tree)                       # parameters, optimizer: any tree of arrays
    for step in job.steps(total, every=500, **state.hooks):
        state.tree, loss = train_step(state.tree, batch)

An array is restored with the sharding of the tree that was passed in, so two devices can read a checkpoint of
four. This works on one node only: Orbax on several nodes needs a shared folder, which rented nodes lack.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any


def mesh(name: str = "data") -> Any:
    """Return the devices of this generation as a mesh with one axis; without GPUs, as many CPU devices.

    Call this before any other JAX function that looks for devices.

    Raises:
        RuntimeError: when the job runs on several nodes.
    """
    if int(os.environ.get("BOA_NODES", "1")) > 1:
        raise RuntimeError("boa_daemon.job.jax runs on one node: set max_gpus to the GPUs of one")
    jax: Any = import_module("jax")
    jax.config.update("jax_num_cpu_devices", int(os.environ.get("BOA_GPUS_PER_NODE", "1")))
    return jax.make_mesh((len(jax.devices()),), (name,))


class OrbaxState:
    """A tree of arrays in training, and the `hooks` with which `job.steps` saves and loads it."""

    def __init__(self, tree: Any) -> None:
        self.tree = tree

    @property
    def hooks(self) -> dict[str, Any]:
        """The arguments `load`, `save` and `folder` of `job.steps`."""
        return {"load": self._load, "save": self._save, "folder": True}

    def _load(self, path: Path) -> None:
        """Restore a checkpoint with the present sharding of the tree."""
        orbax: Any = import_module("orbax.checkpoint")
        like = import_module("jax").tree.map(orbax.utils.to_shape_dtype_struct, self.tree)
        with orbax.StandardCheckpointer() as checkpointer:
            self.tree = checkpointer.restore(path.resolve() / "tree", like)

    def _save(self, path: Path) -> None:
        """Write a checkpoint and wait until it is complete."""
        orbax: Any = import_module("orbax.checkpoint")
        with orbax.StandardCheckpointer() as checkpointer:
            checkpointer.save(path.resolve() / "tree", self.tree)
            checkpointer.wait_until_finished()
