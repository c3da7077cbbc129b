"""One run of a training script: its environment, its stop signal, its reports and its checkpoints.

Each report overwrites one short record in place, so reports also work on a full disk.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO

from boa_daemon.job.checkpoint import (
    NODE_MARK,
    Checkpoint,
    CheckpointFailed,
    begin_folder,
    commit_folder,
    described,
    files_of,
    newest_checkpoint,
    remove_older_checkpoints,
    try_checkpoint,
    write_checkpoint,
)
from boa_daemon.job.gpu_memory import keep_to_share
from boa_daemon.job.gpu_use import gpu_use
from boa_daemon.job.log_line import log_line
from boa_daemon.job.quick_exit import exit_quickly
from boa_daemon.job.random_state import read_random, resume_random, write_random
from boa_daemon.job.read_back import CannotBeLoaded, read_back, read_back_folder
from boa_daemon.job.regular_files import KeptOpen
from boa_daemon.job.stops import REGISTER, STOP_FILE, Lease, Registration, let_shell_be_suspended

MOST_STEPS = 2**63 - 1
RECORD_BYTES = 512
"""Every report is padded to this length, so that it overwrites the one before completely."""

LAST_PAUSES_SECONDS = (1.0, 2.0, 4.0)
"""The pauses before a save that a stop waits for is tried again."""
USE_SECONDS = 5.0
"""How often the driver is asked how much the GPUs work."""
RAY_WORKER = "BOA_RAY_WORKER"
"""Variable that is set in Ray's workers: processes that outlive the job, and that no keeper can signal."""


Gather = Callable[[bytes], list[bytes]]
"""An all-gather: takes the bytes of this rank, and returns those of all ranks in the order of ranks."""


@dataclass(frozen=True)
class _Saving:
    """A checkpoint folder that is being written; `answer` is the writer's return value, perhaps a future."""

    step: int
    path: Path
    answer: Any
    gather: Gather | None
    began: float

    @property
    def is_written(self) -> bool:
        return all(future.done() for future in _futures(self.answer))


class Run:
    """This process's view of its generation: one rank of one run."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.folder = Path(environment.get("BOA_CHECKPOINT_DIR", "checkpoints"))
        self.generation = int(environment.get("BOA_GENERATION", "0"))
        self.rank: int | None = None
        """This process's rank if `ranks()` assigned one."""
        self._environment = environment
        self.stop_asked = False
        self.stop_agreed = False
        self.step: int | None = None
        self.progress = environment.get("BOA_PROGRESS_FILE", "")
        self._stop_file = environment.get(STOP_FILE, "")
        self._record = KeptOpen(self.progress, os.O_WRONLY)
        self.keep = max(int(environment.get("BOA_KEEP_CHECKPOINTS", "2")), 1)
        self._pending: Any = None
        self._group: Any = None
        self._saving: _Saving | None = None
        self._all_have_written = False
        self._save_seconds: float | None = None
        self._checkpoint_bytes: int | None = None
        self._samples = 0.0
        self._began = time.monotonic()
        self._saved_at_step = 0
        self.resumed_at_step = 0
        self._has_read_back = False
        self.loads_with_trust = False
        """Whether the framework that loads was told to trust this job's own files (`read_back.trust`)."""
        self._noted: set[str] = set()
        self._reported_at: float | None = None
        self._use: tuple[float, float | None] | None = None
        self._gap_seconds = 0.0
        self._is_entered = False
        self._trains = self._is_idle = self._has_saved = False
        self._handler_before: Any = None
        self._registration = Registration({} if RAY_WORKER in environment else environment)
        self._lease = Lease(environment)

    @property
    def is_first(self) -> bool:
        """Whether this process reports and saves for the generation; exactly one process does.

        This is rank 0 of the launcher. torchrun may place rank 0 on any node, so the node number counts only
        where no launcher assigned ranks; there is one process per node then.
        """
        return self.number == 0

    @property
    def number(self) -> int:
        """The rank of this process: from `ranks()`, torch, the launcher, or the number of its node."""
        return self.rank if self.rank is not None else _given_rank(self._environment)

    @property
    def width(self) -> int:
        """The number of ranks of this generation, as far as torch or the launcher tells; else 1."""
        if (distributed := _torch_group()) is not None:
            return int(distributed.get_world_size())
        for name in ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"):
            if self._environment.get(name, ""):
                return int(self._environment[name])
        return int(self._environment.get("BOA_GPUS") or 1) if self.rank is not None else 1

    def note(self, sentence: str) -> None:
        """Write a sentence into the job's log, once per generation."""
        if self.is_first and sentence and sentence not in self._noted:
            self._noted.add(sentence)
            log_line(sentence)

    def enter(self) -> None:
        """Count this process among those that save before the others of its command are stopped.

        The order matters: registered processes must not be ended by SIGTERM (see `stops`).
        """
        self._is_entered = True
        self.catch_signal()
        self._registration.enter()

    def leave_to_parent(self) -> None:
        """In a forked process: be an ordinary process, until it uses this run itself."""
        self._is_entered = self._trains = self._is_idle = self._has_saved = False
        if signal.getsignal(signal.SIGTERM) == self._on_signal:
            signal.signal(signal.SIGTERM, self._handler_before or signal.SIG_DFL)

    def catch_signal(self) -> None:
        """Treat SIGTERM as a request to stop; only possible in the main thread, ignored elsewhere."""
        if threading.current_thread() is threading.main_thread():
            before = signal.signal(signal.SIGTERM, self._on_signal)
            self._handler_before = self._handler_before if before == self._on_signal else before

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        """Note that a stop was asked for; without anything to save, be an ordinary process from now on.

        A rank is never one: another may have reported the step that both are in. What a launcher has said of
        ranks does not count, because a rank's own helpers inherit it. What has saved is one once the keeper
        waits for it no more.
        """
        self.stop_asked = True
        trains = self._trains or self.rank is not None or _torch_group() is not None
        is_ours = signal.getsignal(signal.SIGTERM) == self._on_signal
        if not is_ours:
            return
        if self._has_saved and self._registration.is_let_go():
            signal.signal(signal.SIGTERM, self._handler_before or signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
        elif not trains and os.path.exists(self._stop_file):
            self._is_idle = True
            self._registration.idles()
            signal.signal(signal.SIGTERM, self._handler_before or signal.SIG_DFL)

    def train(self) -> None:
        """Count this process as one that has something to save."""
        self._trains = True
        if self._is_idle:
            self._is_idle = False
            self.enter()
        if self._has_saved:
            self._has_saved = False
            self._registration.looks()

    def note_saved(self) -> None:
        """Note that nothing of this process is left to be saved, until it trains again."""
        self._has_saved = True
        self._registration.has_saved()

    def resume(self) -> Checkpoint | None:
        """Return the newest complete checkpoint, or None."""
        found, wrong = newest_checkpoint(self.folder)
        self.note(wrong)
        self._saved_at_step = self.resumed_at_step = found.step if found else 0
        self._began = time.monotonic()
        keep_to_share(self._environment)
        return found

    def report(self, step: Any, samples: Any, loss: Any, gradient_noise: Any) -> None:
        """Write the report; `samples` are summed from the second report of this generation on.

        Each argument may be anything that is one number, such as a tensor or a numpy number. What is none is
        left out, and the log says so once: a report never ends training.
        """
        try:
            counted = int(step.item() if hasattr(step, "item") else step)
            if not 0 <= counted <= MOST_STEPS:
                raise ValueError(f"0 to {MOST_STEPS}")
        except Exception as error:
            self.note(f"a report is left out: step {_shortly(step)} is no whole number ({error})")
            return
        self._report(
            counted,
            self._number("samples", samples) or 0.0,
            self._number("loss", loss),
            self._number("gradient_noise", gradient_noise),
        )

    def _number(self, name: str, value: Any) -> float | None:
        """Return a value of a report as a number; None, and a line in the log, if it is no number."""
        if value is None or type(value) is float:
            return value
        try:
            return float(value.item() if hasattr(value, "item") else value)
        except Exception as error:
            self.note(f"reports leave out {name}: {_shortly(value)} is not one number ({_shortly(error)})")
            return None

    def _report(self, step: int, samples: float, loss: float | None, gradient_noise: float | None) -> None:
        self.train()
        if self.step is None:
            # The first step compiles, warms caches and connects ranks: it does not show the speed.
            self._began = time.monotonic()
            keep_to_share(self._environment)
        else:
            self._samples += samples
        now = time.monotonic()
        if self._reported_at is not None:
            self._gap_seconds = max(self._gap_seconds, now - self._reported_at)
        self._reported_at = now
        self.step = step
        if self.progress and self.is_first:
            record: dict[str, float | int | str | None] = {
                "generation": self.generation,
                "step": step,
                "samples": self._samples,
                "seconds": time.monotonic() - self._began,
                "loss": loss,
                "at": time.time(),
                "node": int(self._environment.get("BOA_NODE_RANK", "0")),
            }
            if self._save_seconds is not None:
                record["save_seconds"] = self._save_seconds
            if self._checkpoint_bytes is not None:
                record["checkpoint_bytes"] = self._checkpoint_bytes
            record["gap_seconds"] = self._gap_seconds
            if gradient_noise is not None:
                record["gradient_noise"] = gradient_noise
            if (use := self._gpu_use(now)) is not None:
                record["gpu_use"] = use
            self._write(record)

    def _gpu_use(self, now: float) -> float | None:
        """Return how much the GPUs work, asked for every `USE_SECONDS`; steps may take a millisecond."""
        if self._use is None or now - self._use[0] >= USE_SECONDS:
            self._use = (now, gpu_use(self._environment))
        return self._use[1]

    def _write(self, record: Mapping[str, float | int | str | None]) -> None:
        """Overwrite the record in place; ignore failures, because a lost report must not stop training."""
        with suppress(OSError, ValueError):
            line = json.dumps(record).ljust(RECORD_BYTES - 1).encode() + b"\n"
            os.pwrite(self._record.descriptor(), line, 0)

    def should_checkpoint(self, every: int | None, agree: Callable[[bool], bool] | None) -> bool:
        """Return whether to save now: some rank was asked to stop, or `every` steps have passed."""
        self.train()
        self._registration.looks()
        if not self.stop_agreed and self._agreed(agree):
            self._stop()
        if self._saving is not None and (self.stop_agreed or self._all_have_written):
            self.finish_save()
        is_due = every is not None and self.step is not None and self.step - self._saved_at_step >= every
        return self.stop_agreed or is_due

    def is_over_already(self) -> bool:
        """Return whether a stop was asked for before the first step; asks for a stop of nobody else.

        Only of a process without other ranks: these have to agree, and they do so after a step.
        """
        if self.width == 1 and self._is_asked():
            if os.path.exists(self._stop_file):
                self._registration.looks()
                let_shell_be_suspended(self._environment.get(REGISTER, ""))
            self._stop()
            self.note_saved()
        return self.stop_agreed

    def _stop(self) -> None:
        self.stop_agreed = True
        if self.progress and RAY_WORKER not in self._environment:
            exit_quickly(self._leave)

    def _leave(self) -> None:
        """End in order: what waits for this process's end must not go on as if it were done."""
        if self._is_entered and os.path.exists(self._stop_file):
            self._registration.leaves()

    def _is_asked(self) -> bool:
        """Return whether this process was asked to stop, by a signal or by the request file."""
        self.stop_asked = self.stop_asked or bool(self._stop_file and os.path.exists(self._stop_file))
        return self.stop_asked

    def _agreed(self, agree: Callable[[bool], bool] | None) -> bool:
        """Return whether any rank was asked to stop; remember whether all ranks have written their parts."""
        if not self._is_asked() and self._lease.is_over():
            self.stop_asked = True
            self.note("nobody has kept this job for ten minutes: it saves and ends")
        is_writing = self._saving is not None and not self._saving.is_written
        if agree is not None:
            self._all_have_written = self._saving is not None and not agree(is_writing)
            return bool(agree(self.stop_asked))
        if (distributed := _torch_group()) is None:
            self._all_have_written = not is_writing
            return self.stop_asked
        return self._agreed_by_torch(distributed, is_writing=is_writing)

    def _gloo(self, distributed: Any) -> Any:
        """Return the group over which ranks agree, which needs no GPU. All ranks call this together."""
        if self._group is None and distributed.get_backend() != "gloo":
            self._group = distributed.new_group(backend="gloo")
        return self._group

    def _agreed_by_torch(self, distributed: Any, *, is_writing: bool) -> bool:
        """Return whether any rank had been asked to stop one step ago; start the same question about now.

        The all-reduce overlaps with the next step. All ranks get the same sum, so all of them see the same
        answer at the same step.
        """
        import torch  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415  only where it is in use

        group = self._gloo(distributed)
        self._all_have_written = False
        if self._pending is not None:
            work, flags, was_saving = self._pending
            self._pending = None
            work.wait()
            self._all_have_written = was_saving and self._saving is not None and not flags[1].item()
            if flags[0].item():
                return True
        flags = torch.tensor([float(self.stop_asked), float(is_writing)])
        work = distributed.all_reduce(flags, group=group, async_op=True)
        self._pending = (work, flags, self._saving is not None)
        return False

    def settle(self) -> None:
        """Wait for a pending agreement and a pending save."""
        if self._pending is not None:
            self._pending[0].wait()
            self._pending = None
        if self._saving is not None:
            self.finish_save()

    def save(
        self,
        step: int,
        write: Callable[[BinaryIO], Any],
        check: Callable[[Path], Any] | None = None,
    ) -> Checkpoint | None:
        """Write a checkpoint on the first rank; other ranks return None.

        The first one of a generation is loaded again before it counts, by `check` where that is given.
        """
        self.train()
        self._saved_at_step = step
        if not self.is_first:
            self._note_last_save()
            return None
        began = time.monotonic()
        for pause in (*LAST_PAUSES_SECONDS, None):
            try:
                found = write_checkpoint(
                    self.folder,
                    generation=self.generation,
                    step=step,
                    write=write,
                    keep=self.keep,
                    check=None if self._has_read_back else check or self._read_back,
                )
                break
            except CheckpointFailed as error:
                if pause is None or not self._may_save_now(error, pause):
                    raise
        self._has_read_back = True
        self._save_seconds = time.monotonic() - began
        with suppress(OSError):
            self._checkpoint_bytes = found.path.stat().st_size
        self._note_last_save()
        return found

    def _note_last_save(self) -> None:
        if self.stop_agreed:
            self.note_saved()

    def _may_save_now(self, error: CheckpointFailed, pause: float) -> bool:
        """Return whether another try to save may succeed; on a full disk, older checkpoints make room.

        A stop has no later save that would make good for this one, so it tries again after a pause.
        """
        cause = error.__cause__
        if not isinstance(cause, OSError):
            return False
        is_full = cause.errno in (errno.ENOSPC, errno.EDQUOT)
        if is_full and remove_older_checkpoints(self.folder, self.generation):
            self.note(f"{error}: the checkpoints before the newest one are removed to make room")
        elif self.stop_agreed:
            self.note(f"{error}; it is tried again, because a stop waits for it")
            time.sleep(pause)
        else:
            return False
        return True

    def try_save(self, write: Callable[[BinaryIO], Any], check: Callable[[Path], Any]) -> None:
        """Save and load on the first rank without leaving a checkpoint, so that a fault is known at once."""
        if not self.is_first:
            return
        began = time.monotonic()
        try:
            try_checkpoint(self.folder, generation=self.generation, write=write, check=check)
        except OSError as error:
            self.note(
                f"no checkpoint could be written: {error.strerror or error}; it is tried again when due"
            )
            return
        self._save_seconds = time.monotonic() - began

    def _read_back(self, file: Path) -> None:
        self.note(read_back(file))

    def gathered(self, part: bytes) -> list[bytes]:
        """Return the bytes of all ranks, in the order of ranks; every rank calls this together."""
        return self._gathered(part, None)

    def save_folder(
        self, step: int, write: Callable[[Path], Any], gather: Gather | None
    ) -> Checkpoint | None:
        """Write this rank's part of a folder; a later call waits for the future that `write` may return."""
        self.train()
        if self._saving is not None:
            self.finish_save()
        self._saved_at_step = step
        began = time.monotonic()
        path = begin_folder(self.folder, generation=self.generation, step=step)
        (path / f"{NODE_MARK}{self._node}").touch()
        write_random(path, rank=self.number, width=self.width)
        self._saving = _Saving(step, path, write(path), gather, began)
        if self.stop_agreed or not _futures(self._saving.answer):
            found = self.finish_save()
            self._note_last_save()
            return found
        return None

    def resume_random(self, found: Checkpoint) -> None:
        """Set the random generators of this rank from the folder of a checkpoint."""
        states, saved_width = read_random(found.path)
        self.note(
            resume_random(
                states, step=found.step, rank=self.number, width=self.width, saved_width=saved_width
            )
        )

    def barrier(self) -> None:
        """Wait until all ranks have called this."""
        self._gathered(b"", None)

    @property
    def _node(self) -> int:
        return int(self._environment.get("BOA_NODE_RANK") or self._environment.get("GROUP_RANK") or 0)

    def finish_save(self) -> Checkpoint | None:
        """Wait for all parts of a folder, then write the same manifest once on each file system.

        The ranks that share a folder split the work of reading its files.
        """
        saving, self._saving = self._saving, None
        assert saving is not None
        self._all_have_written = False
        for future in _futures(saving.answer):
            future.result()
        nodes = [int(node) for node in self._gathered(str(self._node).encode(), saving.gather)]
        seen = {int(mark.name.removeprefix(NODE_MARK)) for mark in saving.path.glob(f"{NODE_MARK}*")}
        mine = self.number
        peers = [rank for rank, node in enumerate(nodes) if node in seen] or [mine]
        place = peers.index(mine) if mine in peers else 0
        part = described(saving.path, files_of(saving.path)[place :: len(peers)])
        files: dict[str, tuple[int, str]] = {}
        for answer in self._gathered(json.dumps(part).encode(), saving.gather):
            for name, (size, digest) in json.loads(answer).items():
                if files.setdefault(name, (size, digest)) != (size, digest):
                    raise CheckpointFailed(
                        f"no checkpoint of step {saving.step}: nodes wrote different files named {name!r}"
                    )
        if place == 0:
            if not self._has_read_back:
                self._has_read_back = True
                try:
                    warning = read_back_folder(saving.path)
                    self.note("" if self.loads_with_trust else warning)
                except CannotBeLoaded as error:
                    raise CheckpointFailed(
                        f"the checkpoint of step {saving.step} was written and cannot be loaded: {error}"
                    ) from error
            found = commit_folder(
                self.folder, generation=self.generation, step=saving.step, files=files, keep=self.keep
            )
            self._save_seconds = time.monotonic() - saving.began
            self._checkpoint_bytes = sum(size for size, _ in files.values())
            return found
        return None

    def _gathered(self, part: bytes, gather: Gather | None) -> list[bytes]:
        """Return the bytes of all ranks, in the order of ranks."""
        if gather is not None:
            return gather(part)
        if (distributed := _torch_group()) is None:
            return [part]
        parts: list[Any] = [None] * distributed.get_world_size()
        distributed.all_gather_object(parts, part, group=self._gloo(distributed))
        return parts


def _torch_group() -> Any:
    """Return `torch.distributed` if this process is a rank of it, else None."""
    found = sys.modules.get("torch.distributed")
    return found if found is not None and found.is_available() and found.is_initialized() else None


def _given_rank(environment: Mapping[str, str]) -> int:
    """Return this process's rank: from torch, from the launcher, or the number of its node."""
    if (distributed := _torch_group()) is not None:
        return int(distributed.get_rank())
    for name in ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "BOA_NODE_RANK"):
        if environment.get(name, ""):
            return int(environment[name])
    return 0


def _futures(answer: Any) -> list[Any]:
    """Return the futures in a writer's return value: itself, or those of an asynchronous save of torch."""
    found = [answer, getattr(answer, "upload_completion", None), getattr(answer, "staging_completion", None)]
    return [one for one in found if hasattr(one, "result") and hasattr(one, "done")]


def _shortly(value: Any) -> str:
    """Return at most 80 characters of a value or an error, on one line."""
    return " ".join((str(value) if isinstance(value, Exception) else repr(value)).split())[:80]


_run: Run | None = None


def current() -> Run:
    """Return this process's run; the first call makes it from the environment."""
    global _run  # noqa: PLW0603  a process is one rank of one run
    if _run is None:
        _run = Run(os.environ)
    if not _run._is_entered:
        _run.enter()
    return _run


_masks: list[set[Any]] = []
"""The signals that were blocked before a fork that is under way in this thread's process."""


def _before_fork() -> None:
    if _run is not None:
        _masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM}))


def _after_fork() -> None:
    if _masks:
        signal.pthread_sigmask(signal.SIG_SETMASK, _masks.pop())


def _after_fork_in_child() -> None:
    if _run is not None:
        _run.leave_to_parent()
    _after_fork()


# A forked worker dies of SIGTERM like any other, because its parent may end it that way, also at once: until
# the handler of this process is gone, the signal waits.
os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)


def checkpoint_dir() -> Path:
    """Return the folder of the job's checkpoints; create it if needed."""
    folder = current().folder
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def resume() -> Checkpoint | None:
    """Return the newest complete checkpoint (with `step` and `path`), or None: then begin at step 0."""
    return current().resume()


def report(step: Any, samples: Any = 0.0, loss: Any = None, gradient_noise: Any = None) -> None:
    """Report that a step is done; numbers may be Python's, numpy's or tensors of one element.

    `step` counts over the whole job, across restarts. `samples` is the number of samples that all ranks
    together processed in this step. `gradient_noise` is the gradient noise scale in samples, if the script
    measures it.
    """
    current().report(step, samples, loss, gradient_noise)


def should_checkpoint(every: int | None = None, agree: Callable[[bool], bool] | None = None) -> bool:
    """Return whether to save now; every rank must call this after every step, and all get the same answer.

    A save is due when any rank was asked to stop, and after each `every` steps. `agree` is an any-reduce: it
    takes this rank's flag and returns whether any rank's flag is set. Without `agree`, ranks agree through
    `torch.distributed` if the script has initialized it.
    """
    return current().should_checkpoint(every, agree)


def should_stop() -> bool:
    """Return whether to exit after saving, because this generation was asked to stop.

    Ask after `should_checkpoint` has returned true.
    """
    return current().stop_agreed


def save(step: int, write: Callable[[BinaryIO], Any]) -> Checkpoint | None:
    """Write a checkpoint atomically; `write` gets the open file. Only rank 0 writes, the others get None.

    Raises:
        StaleGeneration: when a newer generation of the job was started: exit now.
        CheckpointFailed: when it cannot be written; the previous checkpoint is untouched.
    """
    return current().save(step, write)


def save_folder(step: int, write: Callable[[Path], Any], gather: Gather | None = None) -> Checkpoint | None:
    """Write a checkpoint that is a folder with files from all ranks; every rank must call this.

    `write` gets the folder. The manifest, which makes the checkpoint count, is written when all ranks have
    written their files. If `write` returns a future (`torch.distributed.checkpoint.async_save`), a later
    `should_checkpoint`, `save_folder` or `finish` writes the manifest. `gather` is an all-gather of bytes; it
    is not needed with `torch.distributed`.

    Raises:
        StaleGeneration: when a newer generation of the job was started: exit now.
        CheckpointFailed: when it cannot be written; the previous checkpoint is untouched.
    """
    return current().save_folder(step, write, gather)


def finish() -> None:
    """Report that the job is done. A job that reports steps and exits without this call counts as failed."""
    run = current()
    run.settle()
    if run.is_first and run.progress:
        Path(f"{run.progress}.done").write_text("done\n")
    run.note_saved()


def steps(
    total: int,
    *,
    load: Callable[[Path], Any],
    save: Callable[[Any], Any],
    every: int | None = None,
    agree: Callable[[bool], bool] | None = None,
    folder: bool = False,
    gather: Gather | None = None,
    before_save: Callable[[], Any] | None = None,
    check: Callable[[Path], Any] | None = None,
) -> Iterator[int]:
    """Yield the remaining steps up to `total`: resume before the first, save on the way, finish at the end.

    `load` gets the path of the newest checkpoint before the first step. `save` writes a checkpoint after each
    `every` steps and when a stop is requested; a stop ends the loop after the save. A step that the loop body
    does not report is reported here, without samples. `agree` is as in `should_checkpoint`.

    With `folder`, a checkpoint is a folder into which all ranks save: `save` gets the folder instead of an
    open file, `gather` is as in `save_folder`, and the random generators of each rank are saved and restored
    too. Without `folder`, every rank calls `before_save` before the first rank saves, and `check` loads what
    was saved from its path. With `check`, a job tries to save and to load after its first step already: a
    state that cannot be saved fails while no work is at stake.

    Raises:
        StaleGeneration: when a newer generation of the job was started: exit now.
        CheckpointFailed: when a checkpoint cannot be written or cannot be loaded again; the previous one is
            untouched.
    """
    run = current()
    run.train()
    found = run.resume()
    if found is not None:
        load(found.path)
        if folder:
            run.resume_random(found)
    begin = found.step if found else 0
    if begin < total and agree is None and gather is None and run.is_over_already():
        return  # The next step may take longer than the grace, and what it did would be lost.

    for step in range(begin, total):
        yield step
        if run.step != step + 1:
            run.report(step + 1, 0.0, None, None)
        if run.should_checkpoint(every, agree):
            if folder:
                run.save_folder(step + 1, save, gather)
            else:
                if before_save is not None:
                    before_save()
                run.save(step + 1, save, check)
            if run.stop_agreed:
                return
        elif found is None and step == 0 and check is not None:
            run.try_save(save, check)
    finish()
