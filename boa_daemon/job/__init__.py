"""What a training script needs to be resized without losing a step.  Standard library only.

    from boa_daemon import job

    for step in job.steps(total, load=take_in, save=write_out, every=100):
        ...                                           # resumed, saved, stopped and finished as it should be
        job.report(step + 1, samples=batch, loss=loss)

or, by hand:

    found = job.resume()                              # the newest whole checkpoint, or None
    for step in range(found.step if found else 0, steps):
        ...
        job.report(step + 1, samples=batch, loss=loss)
        if job.should_checkpoint(every=100):          # the same answer on all ranks
            job.save(step + 1, lambda file: torch.save(state, file))
            if job.should_stop():
                raise SystemExit(0)
    job.finish()

Outside BOA every function works: checkpoints go to `./checkpoints`, reports go nowhere, and SIGTERM asks for
a stop just the same. Under torchrun the ranks agree through `torch.distributed`; a script that talks to its
ranks in another way hands that in as `agree`. One that has no way of its own starts them with `ranks()`,
and one for Ray Train with `ray_workers()`.
"""

from __future__ import annotations

from boa_daemon.job.checkpoint import Checkpoint, CheckpointFailed, StaleGeneration
from boa_daemon.job.early_start import wait_for_turn
from boa_daemon.job.failures import record_exceptions
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

record_exceptions()
wait_for_turn()
