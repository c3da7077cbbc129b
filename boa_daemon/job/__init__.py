"""Functions for a training script that BOA stops, resizes and resumes without losing a step.

    from boa_daemon import job

    for step in job.steps(total, load=load_state, save=save_state, every=100):
        ...                                           # `steps` resumes, saves, stops and finishes
        job.report(step + 1, samples=batch, loss=loss)

or, by hand:

    found = job.resume()                              # the newest complete checkpoint, or None
    for step in range(found.step if found else 0, steps):
        ...
        job.report(step + 1, samples=batch, loss=loss)
        if job.should_checkpoint(every=100):          # the same answer on all ranks
            job.save(step + 1, lambda file: torch.save(state, file))
            if job.should_stop():
                raise SystemExit(0)
    job.finish()

Every function also works outside BOA: checkpoints go to `./checkpoints`, reports are dropped, and SIGTERM
asks for a stop. Ranks have to agree when to save. With `torch.distributed` they do so by themselves; a script
with another communication library passes `agree`. A script without a communication library starts its ranks
with `ranks()`; a Ray Train script uses `ray_workers()`. This package imports only the standard library, and
PyTorch, JAX or Ray where the script uses them.
"""

from __future__ import annotations

from boa_daemon.job.checkpoint import Checkpoint, CheckpointFailed, StaleGeneration
from boa_daemon.job.early_start import wait_for_turn
from boa_daemon.job.failures import record_exceptions
from boa_daemon.job.parent_variables import restore_variables
from boa_daemon.job.process_group import PeerLost, Ranks, ranks
from boa_daemon.job.ray_train import ray_workers
from boa_daemon.job.run import (
    checkpoint_dir,
    finish,
    report,
    resume,
    save,
    save_folder,
    should_checkpoint,
    should_stop,
    steps,
)
from boa_daemon.job.torch_checkpoint import sharded_state, torch_state

__all__ = [
    "Checkpoint",
    "CheckpointFailed",
    "PeerLost",
    "Ranks",
    "StaleGeneration",
    "checkpoint_dir",
    "finish",
    "ranks",
    "ray_workers",
    "report",
    "resume",
    "save",
    "save_folder",
    "sharded_state",
    "should_checkpoint",
    "should_stop",
    "steps",
    "torch_state",
]

restore_variables()
record_exceptions()
wait_for_turn()
