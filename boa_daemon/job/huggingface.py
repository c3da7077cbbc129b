"""Hugging Face's `Trainer` under BOA: a callback, and the checkpoint to resume from.

    boa = BoaCallback(every=500)
    trainer = Trainer(..., callbacks=[boa])
    trainer.train(resume_from_checkpoint=boa.checkpoint())

The ranks agree on a step, the trainer saves as usual, and the saved files become a checkpoint of BOA by hard
links. With `save_strategy` "no", the trainer's own folder is removed then. Keep the global batch constant
with `split_batch`: `per_device_train_batch_size, gradient_accumulation_steps = split_batch(64)`. After a
stop, the script exits at the end of `train`, so that code for a finished model does not run.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from boa_daemon.job.checkpoint import Checkpoint
from boa_daemon.job.read_back import trust
from boa_daemon.job.run import current, finish


class BoaCallback(TrainerCallback):
    """Reports steps, agrees on stops, and turns the trainer's saves into checkpoints, each `every` steps."""

    def __init__(self, every: int | None = None) -> None:
        self._every = every
        self._loss: float | None = None
        self._found: Checkpoint | None = None

    def checkpoint(self) -> str | None:
        """Return the folder for `resume_from_checkpoint`; None to start from the beginning."""
        self._found = current().resume()
        current().loads_with_trust = True
        if self._found is None:
            return None
        trust(self._found.path)
        return str(self._found.path)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Go on with the random numbers of the checkpoint; the trainer restores none at another width."""
        if self._found is not None:
            current().resume_random(self._found)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Report the step; save if that is due, and stop afterwards if a stop was requested."""
        run = current()
        samples = args.per_device_train_batch_size * args.gradient_accumulation_steps * args.world_size
        run.report(state.global_step, float(samples), self._loss, None)
        if run.should_checkpoint(self._every, None):
            control.should_save = True
            control.should_training_stop = control.should_training_stop or run.stop_agreed
            # An earlier run may have saved this step at another width: remove its files.
            if args.local_process_index == 0:
                shutil.rmtree(_source(args, state), ignore_errors=True)
            run.barrier()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Remember the newest loss, for the next report."""
        self._loss = (logs or {}).get("loss", self._loss)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Turn the folder that the trainer has written into a checkpoint."""
        source = _source(args, state)
        current().save_folder(state.global_step, lambda path: _link(source, path, args), None)
        if args.save_strategy == "no" and args.local_process_index == 0:
            shutil.rmtree(source, ignore_errors=True)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Report that the job is done; if it was stopped before that, exit.

        Raises:
            SystemExit: after a stop.
        """
        if current().stop_agreed and state.global_step < state.max_steps:
            raise SystemExit(0)
        finish()


def _source(args: Any, state: Any) -> Path:
    """Return the folder into which the trainer writes the checkpoint of this step."""
    return Path(args.output_dir) / f"checkpoint-{state.global_step}"


def _link(source: Path, path: Path, args: Any) -> None:
    """Link the files of this node into a checkpoint, once per node, after all ranks have written theirs."""
    current().barrier()
    if args.local_process_index == 0:
        for file in source.rglob("*"):
            if file.is_file():
                target = path / file.relative_to(source)
                target.parent.mkdir(parents=True, exist_ok=True)
                # Nodes that share both folders link the same files at the same time.
                part = target.with_name(f".{target.name}.{args.process_index}")
                part.unlink(missing_ok=True)
                try:
                    os.link(file, part)
                except OSError:
                    shutil.copy2(file, part)
                os.replace(part, target)
                # `os.replace` keeps the source if both names were links to one file.
                part.unlink(missing_ok=True)
