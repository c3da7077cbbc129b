"""The place in the data, counted in samples: at another width no sample is seen twice and none is left out.

A global batch is the same samples at every width, and each rank takes its part of it. So the place after a
step is the number of steps, and whoever resumes at another width goes on with the very next sample.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence


def split_batch(
    global_batch: int, *, most_per_rank: int | None = None, width: int | None = None
) -> tuple[int, int]:
    """Return (samples of a rank at a time, how often it accumulates) for a global batch at this width.

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
    """A sampler: the indices of this rank's samples, epoch after epoch without end, from a step on.

    Hand it to a `DataLoader` as `sampler`, with a `batch_size` that divides `share`. `size` is that
    of the data set; each epoch is in an order of its own, drawn from `seed`, or in that of the data set for
    None. A global batch may reach over the end of an epoch. `rank` and `width` are torchrun's where they are
    left out.
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
        """Yield the indices of this rank, from its step on; to step `steps`, where that is given."""
        share, step = self.share, self.step
        while self.steps is None or step < self.steps:
            begin = step * self.batch + self.rank * share
            for place in range(begin, begin + share):
                yield self._sample(place)
            step += 1

    def __len__(self) -> int:
        """Return how many indices of this rank all steps have, those before its own included.

        Lightning counts batches from the first step of the job on, and ends an epoch at this number: were it
        what is left, samples would be seen again.

        Raises:
            TypeError: when it has no end.
        """
        if self.steps is None:
            raise TypeError("a stream of samples has no length: say `steps`")
        return self.steps * self.share

    @property
    def share(self) -> int:
        """How many samples of a global batch are this rank's."""
        return self.batch // self.width

    def _sample(self, place: int) -> int:
        """Return the sample at a place, counted from the first of the first epoch on."""
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
    """For tests: resume a sampler at one width after the other, and see each sample of two epochs once.

    `make(rank, width, step)` returns what a rank draws from a step on, as your script makes it.

    Raises:
        AssertionError: when a sample of an epoch is seen twice or never; it names some.
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
