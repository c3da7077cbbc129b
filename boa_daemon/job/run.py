"""One run of a training script: what its environment says, its stop signal, its reports.

A report overwrites one short record in place: no new file, no growth, and room on a full disk.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO

from boa_daemon.job.checkpoint import Checkpoint, newest_checkpoint, write_checkpoint

RECORD_BYTES = 512
"""A report is padded to this length, so that it always takes the same place."""


STOP_FILE = "BOA_STOP_FILE"
"""Names a file that asks for a stop by being there, for processes that no signal reaches."""


class Run:
    """What this process knows of the generation that it is part of."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.folder = Path(environment.get("BOA_CHECKPOINT_DIR", "checkpoints"))
        self.generation = int(environment.get("BOA_GENERATION", "0"))
        self.is_first = environment.get("RANK", "0") == "0" and environment.get("BOA_NODE_RANK", "0") == "0"
        self.stop_asked = False
        self.stop_agreed = False
        self.step: int | None = None
        self.progress = environment.get("BOA_PROGRESS_FILE", "")
        self._stop_file = environment.get(STOP_FILE, "")
        self._record: int | None = None
        self._pending: Any = None
        self._samples = 0.0
        self._began = time.monotonic()
        self._saved_at_step = 0

    def catch_signal(self) -> None:
        """Ask for a stop at SIGTERM, instead of dying; only the main thread of Python may."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._on_signal)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.stop_asked = True

    def resume(self) -> Checkpoint | None:
        """Return the newest whole checkpoint."""
        found, wrong = newest_checkpoint(self.folder)
        if wrong:
            print(f"boa: {wrong}", file=sys.stderr)  # noqa: T201  the script's own log is where this belongs
        self._saved_at_step = found.step if found else 0
        self._began = time.monotonic()
        return found

    def report(self, step: int, samples: float, loss: float | None, gradient_noise: float | None) -> None:
        """Write the record: `samples` add up, from the first report of this generation on."""
        if self.step is None:
            # The first step compiles, warms caches and meets the others: it says nothing about the speed.
            self._began = time.monotonic()
        else:
            self._samples += samples
        self.step = step
        if self.progress and self.is_first:
            record: dict[str, float | int | str | None] = {
                "generation": self.generation,
                "step": step,
                "samples": self._samples,
                "seconds": time.monotonic() - self._began,
                "loss": loss,
                "at": time.time(),
            }
            if gradient_noise is not None:
                record["gradient_noise"] = gradient_noise
            self._write(record)

    def _write(self, record: Mapping[str, float | int | str | None]) -> None:
        """Overwrite the record in place; a report that cannot be written is not worth a training run."""
        try:
            if self._record is None:
                self._record = os.open(self.progress, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            os.pwrite(self._record, json.dumps(record).ljust(RECORD_BYTES - 1).encode() + b"\n", 0)
        except OSError:
            self._record = None

    def should_checkpoint(self, every: int | None, agree: Callable[[bool], bool] | None) -> bool:
        """Return whether to save now: a stop was asked for on some rank, or `every` steps went by."""
        self.stop_agreed = self.stop_agreed or self._agreed(agree)
        is_due = every is not None and self.step is not None and self.step - self._saved_at_step >= every
        return self.stop_agreed or is_due

    def _agreed(self, agree: Callable[[bool], bool] | None) -> bool:
        """Return what all ranks agree on."""
        self.stop_asked = self.stop_asked or bool(self._stop_file and os.path.exists(self._stop_file))
        if agree is not None:
            return bool(agree(self.stop_asked))
        distributed = sys.modules.get("torch.distributed")
        if distributed is None or not distributed.is_available() or not distributed.is_initialized():
            return self.stop_asked
        return self._agreed_by_torch(distributed)

    def _agreed_by_torch(self, distributed: Any) -> bool:
        """Return whether any rank was asked to stop one step ago; ask about now while the next step runs.

        All ranks wait for the same sum, so they all see the same answer at the same step.
        """
        import torch  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415  only where it is in use

        if self._pending is None:
            group = distributed.new_group(backend="gloo") if distributed.get_backend() != "gloo" else None
            self._pending = (group, None, None)
        group, work, flag = self._pending
        answer = False
        if work is not None:
            work.wait()
            answer = bool(flag.item())
        if answer:
            self._pending = (group, None, None)
            return True
        flag = torch.tensor([float(self.stop_asked)])
        self._pending = (group, distributed.all_reduce(flag, group=group, async_op=True), flag)
        return False

    def settle(self) -> None:
        """Wait for the question that is still on its way."""
        if self._pending is not None and self._pending[1] is not None:
            self._pending[1].wait()
            self._pending = None

    def save(self, step: int, write: Callable[[BinaryIO], Any]) -> Checkpoint | None:
        """Write a checkpoint from the first rank."""
        self._saved_at_step = step
        if not self.is_first:
            return None
        return write_checkpoint(self.folder, generation=self.generation, step=step, write=write)


_run: Run | None = None


def current() -> Run:
    """Return this process's run, made from the environment when first asked for."""
    global _run  # noqa: PLW0603  a process is one rank of one run
    if _run is None:
        _run = Run(os.environ)
        _run.catch_signal()
    return _run


def checkpoint_dir() -> Path:
    """Return the folder of the job's checkpoints, made if it is not there."""
    folder = current().folder
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def resume() -> Checkpoint | None:
    """Return the newest whole checkpoint (its `step` and `path`), or None: begin at step 0."""
    return current().resume()


def report(
    step: int, samples: float = 0.0, loss: float | None = None, gradient_noise: float | None = None
) -> None:
    """Say that a step is done.

    `step` counts over the whole job. `samples` is how many samples all ranks worked through in this step.
    `gradient_noise` is the gradient noise scale in samples, where the script measures it.
    """
    current().report(step, samples, loss, gradient_noise)


def should_checkpoint(every: int | None = None, agree: Callable[[bool], bool] | None = None) -> bool:
    """Return whether to save now; every rank must ask after every step, and all get the same answer.

    `every` asks for a checkpoint after so many steps as well. `agree` maps this rank's wish to everyone's;
    without it, ranks that use `torch.distributed` agree through it.
    """
    return current().should_checkpoint(every, agree)


def should_stop() -> bool:
    """Return whether the checkpoint that was just due is the last of this generation: save, then exit."""
    return current().stop_agreed


def save(step: int, write: Callable[[BinaryIO], Any]) -> Checkpoint | None:
    """Write a checkpoint whole and its manifest; ranks other than the first write nothing and get None.

    Raises:
        StaleGeneration: when a newer generation of the job was started: end now.
        CheckpointFailed: when it cannot be written; the checkpoint before is untouched.
    """
    return current().save(step, write)


def finish() -> None:
    """Say that the job is done: a job that reports steps and exits without this has not finished."""
    run = current()
    run.settle()
    if run.is_first and run.progress:
        Path(f"{run.progress}.done").write_text("done\n")


def steps(
    total: int,
    *,
    load: Callable[[Path], Any],
    save: Callable[[BinaryIO], Any],
    every: int | None = None,
    agree: Callable[[bool], bool] | None = None,
) -> Iterator[int]:
    """Yield the steps that are left, from the newest checkpoint on, and do around them what a job has to.

    `load` takes a checkpoint in, `save` writes one: after `every` steps, and when a stop is asked for, which
    ends the loop. After the last step the job is said to be done. A step that the loop has not reported is
    reported, without samples. `agree` is as for `should_checkpoint`.

    Raises:
        StaleGeneration: when a newer generation of the job was started: end now.
        CheckpointFailed: when a checkpoint cannot be written; the one before is untouched.
    """
    run = current()
    found = run.resume()
    if found is not None:
        load(found.path)
    for step in range(found.step if found else 0, total):
        yield step
        if run.step != step + 1:
            run.report(step + 1, 0.0, None, None)
        if run.should_checkpoint(every, agree):
            run.save(step + 1, save)
            if run.stop_agreed:
                return
    finish()
