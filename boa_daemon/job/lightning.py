"""Lightning's `Trainer` under BOA: a callback, and the checkpoint to resume from.

    boa = BoaCallback(every=500, batch=64)
    trainer = Trainer(..., callbacks=[boa], strategy="ddp", **boa.where)
    trainer.fit(model, loader, ckpt_path=boa.checkpoint())

Lightning's SIGTERM handler ends the loop before the ranks have agreed, so the callback replaces that handler.
Start the data loader at `boa.step` with a `SampleStream`: Lightning cannot restore the position of another
sampler. After a stop, the script exits at the end of `fit`, without validation, so that code for a finished
model does not run.
"""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Callback

from boa_daemon.job.fabric import where
from boa_daemon.job.read_back import trust
from boa_daemon.job.run import current, finish

FILE = "lightning.ckpt"


class BoaCallback(Callback):
    """Reports steps, agrees on stops, and saves each `every` steps; `batch` is the global batch size."""

    def __init__(self, every: int | None = None, *, batch: int = 0) -> None:
        self._every, self._batch = every, batch
        self._found = current().resume()
        current().loads_with_trust = True
        self.step = 0 if self._found is None else self._found.step
        self._seen = self.step

    @property
    def where(self) -> dict[str, Any]:
        """Arguments of `Trainer` for this generation: nodes, devices, and no sampler of Lightning's own."""
        return {**where(), "use_distributed_sampler": False}

    def checkpoint(self) -> str | None:
        """Return the file for `ckpt_path`; None to start from the beginning."""
        if self._found is None:
            return None
        trust(self._found.path)
        return str(self._found.path / FILE)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Replace Lightning's SIGTERM handler, and go on with the random numbers of the checkpoint."""
        current().catch_signal()
        if self._found is not None:
            current().resume_random(self._found)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Report a step; save if that is due, and stop afterwards if a stop was requested."""
        run = current()
        if trainer.global_step == self._seen:
            return  # Gradients were only accumulated: there was no optimizer step.
        self._seen = trainer.global_step
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        run.report(self._seen, self._batch, loss, None)
        if run.should_checkpoint(self._every, None):
            run.save_folder(self._seen, lambda path: trainer.save_checkpoint(path / FILE), None)
        if run.stop_agreed:
            trainer.should_stop = True
            # The checkpoint is saved: do not spend the grace period on validation or minimum lengths.
            trainer.limit_val_batches = 0
            trainer.fit_loop.min_epochs = trainer.fit_loop.epoch_loop.min_steps = None

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Report that the job is done; if it was stopped, exit.

        This is not done in `on_train_end`, which is not called if the job resumes after its last step.

        Raises:
            SystemExit: after a stop.
        """
        if current().stop_agreed:
            raise SystemExit(0)
        finish()
