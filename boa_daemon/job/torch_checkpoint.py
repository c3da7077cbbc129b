"""Checkpoints of PyTorch objects.  Torch is imported when a checkpoint is first written or read."""

from __future__ import annotations

import random
from collections.abc import Callable, MutableMapping
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

from boa_daemon.job.random_state import random_state, resume_random
from boa_daemon.job.run import current

FORMAT = 2
"""Version of the saved document; version 1 was the list of states alone."""


def torch_state(*parts: Any) -> dict[str, Callable[..., Any]]:
    """Return `load`, `save`, `before_save` and `check` for `job.steps`, for the objects of a training.

    A part is an object with `state_dict` and `load_state_dict` (model, optimizer, scheduler, scaler, stateful
    sampler or loader), a `torch.Generator`, a `numpy.random.Generator`, a `random.Random` or a dict, which is
    updated in place. Pass the model, not its DDP wrapper, and the parts always in the same order. A state may
    hold any object that can be pickled. The global random generators of each rank are saved and restored too.

    Raises:
        TypeError: when a part is none of these.
    """
    for part in parts:
        _accessors(part)
    states: list[bytes] = []

    def before_save() -> None:
        """Collect the random states of all ranks; every rank calls this."""
        states[:] = current().gathered(random_state())

    def save(file: BinaryIO) -> None:
        torch: Any = import_module("torch")
        document = {
            "boa_format": FORMAT,
            "parts": [_accessors(part)[0]() for part in parts],
            "random": list(states) or [random_state()],
        }
        torch.save(document, file)
        states.clear()  # Not before: a save that has failed may be tried again.

    def read(path: Path, *, mmap: bool = False) -> dict[str, Any]:
        torch: Any = import_module("torch")
        # The job wrote this file itself, and its digest is checked: it may hold any object.
        document = torch.load(path, map_location="cpu", weights_only=False, mmap=mmap)
        found: dict[str, Any] = document if isinstance(document, dict) else {"parts": document, "random": []}
        if len(found["parts"]) != len(parts):
            raise ValueError(
                f"the checkpoint {path.name} holds the states of {len(found['parts'])} objects, and "
                f"torch_state was given {len(parts)}: give it the same ones in the same order"
            )
        return found

    def load(path: Path) -> None:
        found = read(path)
        for part, state in zip(parts, found["parts"]):
            _accessors(part)[1](state)
        run = current()
        run.note(
            resume_random(
                dict(enumerate(found["random"])),
                step=run.resumed_at_step,
                rank=run.number,
                width=run.width,
                saved_width=len(found["random"]),
            )
        )

    def check(path: Path) -> None:
        read(path, mmap=True)

    return {"load": load, "save": save, "before_save": before_save, "check": check}


def _accessors(part: Any) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """Return the functions that get and set the state of an object.

    Raises:
        TypeError: when it has none that are known.
    """
    if hasattr(part, "state_dict") and hasattr(part, "load_state_dict"):
        return part.state_dict, part.load_state_dict
    if hasattr(part, "get_state") and hasattr(part, "set_state"):  # torch.Generator, numpy's RandomState
        return part.get_state, part.set_state
    if hasattr(part, "bit_generator"):

        def set_numpy(state: Any) -> None:
            part.bit_generator.state = state

        return (lambda: part.bit_generator.state), set_numpy
    if isinstance(part, random.Random):
        return part.getstate, part.setstate
    if isinstance(part, MutableMapping):
        return (lambda: dict(part)), part.update
    raise TypeError(
        f"torch_state: {type(part).__name__} has no state_dict and load_state_dict; put plain values "
        "into a dict"
    )


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
