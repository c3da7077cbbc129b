"""Lightning's `Trainer` under BOA: one callback, and where to resume.

    boa = BoaCallback(every=500, batch=64)
    trainer = Trainer(..., callbacks=[boa], strategy="ddp", **boa.where)
    trainer.fit(model, loader, ckpt_path=boa.checkpoint())

Lightning's own way with SIGTERM ends the loop before the ranks have agreed, so the callback takes the signal
over. Let the loader begin at `boa.step` with a `SampleStream`: Lightning cannot put another one back. A stop
ends the script with the training, without a validation: what comes after it is for a model that is done.
"""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Callback

from boa_daemon.job.fabric import where
from boa_daemon.job.run import current, finish

FILE = "lightning.ckpt"


class BoaCallback(Callback):
    """Reports, agrees on stops and saves, every so many steps; `batch` is the global batch, for the speed."""

    def __init__(self, every: int | None = None, *, batch: int = 0) -> None:
        self._every, self._batch = every, batch
        self._found = current().resume()
        self.step = 0 if self._found is None else self._found.step
        self._seen = self.step

    @property
    def where(self) -> dict[str, Any]:
        """What `Trainer` has to know of this generation: nodes, devices, and that the sampler is yours."""
        return {**where(), "use_distributed_sampler": False}

    def checkpoint(self) -> str | None:
        """Return the file to resume from, for `ckpt_path`; None to begin."""
        return None if self._found is None else str(self._found.path / FILE)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Take SIGTERM over from Lightning."""
        current().catch_signal()

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Report a step; save when that is due, and stop after it when that was asked for."""
        run = current()
        if trainer.global_step == self._seen:
            return  # Gradients are accumulated: no step was made.
        self._seen = trainer.global_step
        run.report(self._seen, float(self._batch), _loss(outputs), None)
        if run.should_checkpoint(self._every, None):
            run.save_folder(self._seen, lambda path: trainer.save_checkpoint(path / FILE), None)
        if run.stop_agreed:
            trainer.should_stop = True
            # All that is needed is saved: neither a validation nor a least length is worth the grace.
            trainer.limit_val_batches = 0
            trainer.fit_loop.min_epochs = trainer.fit_loop.epoch_loop.min_steps = None

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Say that the job is done; where it was stopped on the way, end the script.

        Not at the end of the training: one that resumes behind its last step has none.

        Raises:
            SystemExit: after a stop.
        """
        if current().stop_agreed:
            raise SystemExit(0)
        finish()


def _loss(outputs: Any) -> float | None:
    """Return the loss of this rank's part, where the step returned it."""
    loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
    return None if loss is None else float(loss)
