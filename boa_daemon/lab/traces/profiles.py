"""Measured profiles of training jobs, as AdaptDL (Pollux) and Sia publish them, and their goodput.

Source: Qiao et al., "Pollux", OSDI 2021, and its public simulator.

    goodput(B, n) = gain / (t + a (t - s))         gain = (v + q) / (v B0 / B + q)

    symbol   here           meaning
    n        gpus           GPUs
    B        batch          samples per optimizer step, all GPUs together
    B0       initial_batch  the batch at which progress is counted
    a        accumulation   extra passes before each optimizer step
    t        step_seconds   one pass, synchronisation included
    s        sync_seconds   the part of t that waits for synchronisation
    q, v     grad_sqr, grad_var   squared norm and variance of the gradient, per epoch

Goodput is progress per second, in optimizer steps at B0 that advance the job equally. Step times are
interpolated linearly between measured batches per GPU, gradient statistics between measured global batches.
GPU counts without measurements are not offered.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from boa_daemon.errors import InputError
from boa_daemon.inputs.tables import TableRow, read_rows

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationFacts:
    """Facts of an application in the published simulators, besides its measurements.

    A job has `epochs`; `max_local_batch` is samples per GPU and pass; `fixed_batch` is its only global batch;
    `max_gpus` is its widest width. None: no limit but the measurements.
    """

    epochs: int | None = None
    max_local_batch: int | None = None
    fixed_batch: int | None = None
    max_gpus: int | None = None


POLLUX_FACTS = {
    "bert": ApplicationFacts(epochs=2),
    "cifar10": ApplicationFacts(epochs=100),
    "deepspeech2": ApplicationFacts(epochs=80),
    "imagenet": ApplicationFacts(epochs=90),
    "ncf": ApplicationFacts(epochs=10, fixed_batch=32768, max_gpus=1),
    "yolov3": ApplicationFacts(epochs=50, max_local_batch=8),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """One placement: seconds of a pass at each measured batch per GPU, in ascending order."""

    gpus: int
    nodes: int
    local_batches: Floats
    step_seconds: Floats
    sync_seconds: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """The training runs: progress at the end of each epoch, and the gradient at each batch.

    `progress_steps` has shape (epochs,), in steps at the initial batch; `grad_sqr` and `grad_var` have shape
    (epochs, batches).
    """

    batches: Floats
    progress_steps: Floats
    grad_sqr: Floats
    grad_var: Floats

    @property
    def initial_batch(self) -> int:
        """The smallest measured batch, samples."""
        return int(self.batches[0])

    @property
    def epoch_steps(self) -> Floats:
        """Progress of each epoch, steps at the initial batch, shape (epochs,)."""
        return np.diff(self.progress_steps, prepend=0.0)

    def gain(self, batch: Ints) -> Floats:
        """Return progress per optimizer step at each batch, shape (epochs, len(batch))."""
        weights = np.stack([np.interp(batch, self.batches, row) for row in np.eye(len(self.batches))])
        sqr, var = self.grad_sqr @ weights, self.grad_var @ weights
        return np.asarray((var + sqr) / (var * (self.initial_batch / batch) + sqr))


def goodput(
    times: StepTimes, statistics: Statistics, facts: ApplicationFacts, batch: int | None = None
) -> Floats | None:
    """Return the best goodput of each epoch at this placement, steps per second, shape (epochs,).

    With `batch` the global batch is fixed; otherwise the best of all whole batches per GPU is taken. None
    when no batch fits the limits. Cost: O(epochs x batches per GPU).
    """
    accumulation, local = _passes(times, statistics, facts, batch)
    if not len(local):
        return None
    total = times.gpus * local * (accumulation + 1)
    step = np.interp(local, times.local_batches, times.step_seconds)
    sync = np.interp(local, times.local_batches, times.sync_seconds)
    per_second = statistics.gain(total) / (step + accumulation * (step - sync))
    return np.asarray(per_second.max(axis=1))


def _passes(
    times: StepTimes, statistics: Statistics, facts: ApplicationFacts, batch: int | None
) -> tuple[Ints, Ints]:
    """Return the allowed pairs (accumulation, batch per GPU and pass).

    As in the simulator, passes are accumulated only if a GPU cannot hold its share. A single GPU with more
    than the initial batch makes at least two passes: one pass shows nothing of the gradient's variance.
    """
    low, high = int(times.local_batches[0]), int(times.local_batches[-1])
    high = min(high, facts.max_local_batch or high)
    largest = int(statistics.batches[-1])
    share = np.arange(1, largest // times.gpus + 1) if batch is None else np.array([-(-batch // times.gpus)])
    accumulation = -(-share // high) - 1
    if times.gpus == 1:
        accumulation = np.where(share > statistics.initial_batch, np.maximum(accumulation, 1), accumulation)
    local = -(-share // (accumulation + 1))
    if batch is not None:
        local = np.minimum(local, largest // (times.gpus * (accumulation + 1)))
    total = times.gpus * local * (accumulation + 1)
    fits = (low <= local) & (local <= high) & (statistics.initial_batch <= total) & (total <= largest)
    pairs = np.unique(np.stack([accumulation[fits], local[fits]]), axis=1)
    return pairs[0], pairs[1]


def read_statistics(directory: Path, facts: ApplicationFacts) -> Statistics:
    """Return the training runs in ``validation-B.csv``.

    The progress of an epoch is that of the batch with the least, as in the simulator.

    Raises:
        InputError: when there is no file, or a file is damaged or has fewer epochs than the job.
    """
    runs: dict[int, list[TableRow]] = {}
    columns = ("progress", "grad_sqr", "grad_var")
    for path in directory.glob("validation-*.csv"):
        size = path.stem.removeprefix("validation-")
        if not size.isdigit():
            raise InputError("the name must be validation-BATCH.csv", file=path)
        runs[int(size)] = list(read_rows(path, columns))
    if not runs:
        raise InputError("no validation-BATCH.csv in this directory", file=directory)
    epochs = facts.epochs or min(len(rows) for rows in runs.values())
    for rows in runs.values():
        if len(rows) < epochs:
            raise rows[-1].refuse(f"{len(rows)} epochs where a job has {epochs}", "The file may be cut short")
    batches = sorted(runs)
    progress, sqr, var = (
        np.array([[row.number(column) for row in runs[batch][:epochs]] for batch in batches]).T
        for column in columns
    )
    ends = progress.min(axis=1)
    if np.any(np.diff(ends, prepend=0.0) <= 0):
        raise InputError("progress must rise with every epoch in validation-*.csv", file=directory)
    return Statistics(batches=np.array(batches, float), progress_steps=ends, grad_sqr=sqr, grad_var=var)


def read_step_times(
    directory: Path, suffix: str = "", *, gpus_per_node: int | None = None
) -> dict[int, tuple[StepTimes, ...]]:
    """Return GPUs -> the measured placements on the fewest nodes, from the placements and scalability files.

    `suffix` names a GPU type, as in ``placements-aws.csv``. The scalability file may be missing. With
    `gpus_per_node`, placements that do not fit machines of that size are left out.

    Raises:
        InputError: when the placements file is missing or a file is damaged.
    """
    points: dict[tuple[int, int, str], dict[int, tuple[float, float]]] = defaultdict(dict)
    for row in read_rows(
        directory / f"placements{suffix}.csv", ("placement", "local_bsz", "step_time", "sync_time")
    ):
        digits = str(row.whole("placement", least=1))
        if gpus_per_node is not None and int(max(digits)) > gpus_per_node:
            continue
        _add(points[sum(map(int, digits)), len(digits), digits], row)
    larger = directory / f"scalability{suffix}.csv"
    if larger.exists():
        for row in read_rows(larger, ("num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time")):
            gpus, nodes = row.whole("num_replicas", least=1), row.whole("num_nodes", least=1)
            if gpus_per_node is None or gpus <= nodes * gpus_per_node:
                _add(points[gpus, nodes, "mean"], row)
    fewest: dict[int, int] = {}
    for gpus, nodes, _ in points:
        fewest[gpus] = min(nodes, fewest.get(gpus, nodes))
    found: dict[int, list[StepTimes]] = defaultdict(list)
    for (gpus, nodes, _), by_batch in sorted(points.items()):
        if nodes == fewest[gpus]:
            local = sorted(by_batch)
            found[gpus].append(
                StepTimes(
                    gpus=gpus,
                    nodes=nodes,
                    local_batches=np.array(local, float),
                    step_seconds=np.array([by_batch[batch][0] for batch in local]),
                    sync_seconds=np.array([by_batch[batch][1] for batch in local]),
                )
            )
    return {gpus: tuple(times) for gpus, times in found.items()}


def _add(points: dict[int, tuple[float, float]], row: TableRow) -> None:
    """Add the step and synchronisation seconds of a row at its batch per GPU."""
    step, sync = row.number("step_time"), row.number("sync_time")
    if step <= 0 or sync > step:
        raise row.refuse(f"step_time must be positive and at least sync_time; got {step!r} and {sync!r}")
    points[row.whole("local_bsz", least=1)] = (step, sync)
