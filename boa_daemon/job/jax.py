"""JAX under BOA: one process with all GPUs of its node, and checkpoints by Orbax that fit any number of them.

    state = OrbaxState(tree)                       # parameters, optimizer: any tree of arrays
    for step in job.steps(total, every=500, **state.hooks):
        state.tree, loss = train_step(state.tree, batch)

An array is restored as the tree that was handed in has it spread, so a checkpoint of four devices is read by
two. One node alone: the processes of several write one checkpoint together, in a folder that they share, and
a rented node has none.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any


def mesh(name: str = "data") -> Any:
    """Return the devices of this generation as a mesh of one axis; without GPUs as many parts of the CPU.

    Call it before anything else of JAX that looks for devices.

    Raises:
        RuntimeError: when the job is on several nodes.
    """
    if int(os.environ.get("BOA_NODES", "1")) > 1:
        raise RuntimeError("boa_daemon.job.jax runs on one node: set max_gpus to the GPUs of one")
    jax: Any = import_module("jax")
    jax.config.update("jax_num_cpu_devices", int(os.environ.get("BOA_GPUS_PER_NODE", "1")))
    return jax.make_mesh((len(jax.devices()),), (name,))


class OrbaxState:
    """A tree of arrays that trains, and `hooks`: what `job.steps` needs to save and load it."""

    def __init__(self, tree: Any) -> None:
        self.tree = tree

    @property
    def hooks(self) -> dict[str, Any]:
        """`load`, `save` and `folder` for `steps`."""
        return {"load": self._load, "save": self._save, "folder": True}

    def _load(self, path: Path) -> None:
        """Take a checkpoint in, spread as the tree is now."""
        orbax: Any = import_module("orbax.checkpoint")
        like = import_module("jax").tree.map(orbax.utils.to_shape_dtype_struct, self.tree)
        with orbax.StandardCheckpointer() as checkpointer:
            self.tree = checkpointer.restore(path.resolve() / "tree", like)

    def _save(self, path: Path) -> None:
        """Write a checkpoint; it is there when this returns."""
        orbax: Any = import_module("orbax.checkpoint")
        with orbax.StandardCheckpointer() as checkpointer:
            checkpointer.save(path.resolve() / "tree", self.tree)
            checkpointer.wait_until_finished()
