"""Data order that survives a resize: at another width no sample is seen twice and none is left out.

A global batch holds the same samples at every width, and each rank takes its part of it. The position in the
data depends only on the number of steps, so a job that resumes at another width goes on with the next sample.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence


def split_batch(
    global_batch: int, *, most_per_rank: int | None = None, width: int | None = None
) -> tuple[int, int]:
    """Return (batch size per rank, gradient accumulation steps) for a global batch at this width.

    `most_per_rank` limits the batch size per rank. `width` is the number of ranks, by default `WORLD_SIZE`.

    Raises:
        ValueError: when the global batch cannot be split evenly over the ranks.
    """
    width = int(os.environ.get("WORLD_SIZE", "1")) if width is None else width
    if global_batch % width:
        raise ValueError(
            f"a global batch of {global_batch} cannot be split evenly over {width} ranks; "
            f"`batch: {global_batch}` in the job file leaves only widths that do"
        )
    share = global_batch // width
    times = 1
    while share % times or (most_per_rank is not None and share // times > most_per_rank):
        times += 1
    return share // times, times


class SampleStream:
    """A sampler that yields the indices of this rank's samples from a step on, epoch after epoch.

    Pass it to a `DataLoader` as `sampler`, with a `batch_size` that divides `share`. `size` is the number of
    samples in the data set, `batch` the global batch. Each epoch is shuffled with `seed`; with None, every
    epoch keeps the order of the data set. A global batch may span two epochs. The stream ends after step
    `steps`, or never. `rank` and `width` default to torchrun's.
    """

    def __init__(
        self,
        size: int,
        *,
        batch: int,
        step: int = 0,
        seed: int | None = 0,
        rank: int | None = None,
        width: int | None = None,
        steps: int | None = None,
    ) -> None:
        self.size, self.batch, self.step, self.seed, self.steps = size, batch, step, seed, steps
        self.rank = int(os.environ.get("RANK", "0")) if rank is None else rank
        self.width = int(os.environ.get("WORLD_SIZE", "1")) if width is None else width
        if size < 1 or batch % self.width:
            raise ValueError(
                f"a batch of {batch} from {size} samples cannot be split over {self.width} ranks; "
                f"`batch: {batch}` in the job file leaves only widths that do"
            )
        self._epoch, self._order = -1, list[int]()

    def __iter__(self) -> Iterator[int]:
        """Yield the indices of this rank, from `step` up to `steps` if that is given."""
        share, step = self.share, self.step
        while self.steps is None or step < self.steps:
            begin = step * self.batch + self.rank * share
            for place in range(begin, begin + share):
                yield self._sample(place)
            step += 1

    def __len__(self) -> int:
        """Return the number of this rank's indices in all steps, including those before `step`.

        Lightning counts batches from the first step of the job and ends an epoch at this number. With the
        number of remaining indices, samples would be seen twice.

        Raises:
            TypeError: without `steps`, because the stream is endless.
        """
        if self.steps is None:
            raise TypeError("a stream of samples has no length: say `steps`")
        return self.steps * self.share

    @property
    def share(self) -> int:
        """This rank's number of samples in each global batch."""
        return self.batch // self.width

    def _sample(self, place: int) -> int:
        """Return the sample at a position, counted from the start of the first epoch."""
        epoch, within = divmod(place, self.size)
        if self.seed is None:
            return within
        if epoch != self._epoch:
            self._epoch, self._order = epoch, list(range(self.size))
            random.Random(f"{self.seed}/{epoch}").shuffle(self._order)
        return self._order[within]


def check_each_seen_once(
    make: Callable[[int, int, int], Iterable[int]],
    *,
    size: int,
    batch: int,
    widths: Sequence[int] = (1, 2, 4, 1),
    steps_each: int = 3,
) -> None:
    """For tests: check that a sampler yields each sample of two epochs once while the width changes.

    `make(rank, width, step)` returns the samples of a rank from a step on, as your script makes them. The
    check resumes at each of `widths` in turn, for `steps_each` steps.

    Raises:
        AssertionError: when a sample of an epoch is seen twice or never; the message names up to five.
    """
    seen: list[int] = []
    step, turn = 0, 0
    while len(seen) < 2 * size:
        width = widths[turn % len(widths)]
        parts = [iter(make(rank, width, step)) for rank in range(width)]
        for _ in range(steps_each):
            for part in parts:
                seen += [next(part) for _ in range(batch // width)]
        step, turn = step + steps_each, turn + 1
    for epoch in (0, 1):
        counts = Counter(seen[epoch * size : (epoch + 1) * size])
        twice = [sample for sample, count in counts.items() if count > 1][:5]
        never = [sample for sample in range(size) if sample not in counts][:5]
        if twice or never:
            raise AssertionError(f"in epoch {epoch} samples are seen twice: {twice}, or never: {never}")
