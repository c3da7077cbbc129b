"""Checkpoints of PyTorch objects.  Torch is imported when a checkpoint is first written or read."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO


def torch_state(*parts: Any) -> dict[str, Callable[[Any], Any]]:
    """Return `load` and `save` for `job.steps`, for objects with `state_dict` and `load_state_dict`.

    Pass the model (not its DDP wrapper), the optimizer, the scheduler and so on, always in the same order.
    """

    def load(path: Path) -> None:
        import torch  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415  only where it is in use

        for part, state in zip(parts, torch.load(path, map_location="cpu"), strict=True):
            part.load_state_dict(state)

    def save(file: BinaryIO) -> None:
        import torch  # noqa: PLC0415  only where it is in use

        torch.save([part.state_dict() for part in parts], file)

    return {"load": load, "save": save}


def sharded_state(model: Any, optimizer: Any, *, asynchronous: bool = False) -> dict[str, Any]:
    """Return `load`, `save` and `folder` for `job.steps`, for a model under FSDP2, tensor parallelism or DDP.

    Each rank saves its shards with `torch.distributed.checkpoint`, which reshards them for another width when
    it loads them. With `asynchronous`, training goes on while the shards are written; a stop waits for them.
    """

    def both() -> dict[str, Any]:
        states: Any = import_module("torch.distributed.checkpoint.state_dict")
        model_state, optimizer_state = states.get_state_dict(model, optimizer)
        return {"model": model_state, "optimizer": optimizer_state}

    def load(path: Path) -> None:
        dcp: Any = import_module("torch.distributed.checkpoint")
        states: Any = import_module("torch.distributed.checkpoint.state_dict")
        state = both()
        dcp.load(state, checkpoint_id=path)
        states.set_state_dict(
            model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
        )

    def save(path: Path) -> Any:
        dcp: Any = import_module("torch.distributed.checkpoint")

        if asynchronous:
            return dcp.async_save(both(), checkpoint_id=path)
        dcp.save(both(), checkpoint_id=path)
        return None

    return {"load": load, "save": save, "folder": True}
