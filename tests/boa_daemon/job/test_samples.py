"""The place in the data, counted in samples."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import sampled

from boa_daemon.job.samples import SampleStream, check_each_seen_once, split_batch


@settings(max_examples=sampled(40))
@given(
    size=st.integers(1, 200),
    share=st.integers(1, 5),
    seed=st.one_of(st.none(), st.integers(0, 9)),
    steps_each=st.integers(1, 4),
)
def test_each_sample_of_an_epoch_is_seen_once_whatever_the_widths(
    size: int, share: int, seed: int | None, steps_each: int
) -> None:
    """1 -> 2 -> 4 -> 1, also where an epoch ends within a global batch."""

    def make(rank: int, width: int, step: int) -> SampleStream:
        return SampleStream(size, batch=4 * share, step=step, seed=seed, rank=rank, width=width)

    check_each_seen_once(make, size=size, batch=4 * share, steps_each=steps_each)


def test_a_loader_that_begins_anew_or_forgets_its_width_is_caught() -> None:
    """The two mistakes that nobody sees in a loss: the epoch starts again, and each rank takes all."""

    def anew(rank: int, width: int, step: int) -> SampleStream:
        return SampleStream(64, batch=8, step=0, rank=rank, width=width)

    def all_take_all(rank: int, width: int, step: int) -> Iterator[int]:
        return iter(SampleStream(64, batch=8, step=step, rank=0, width=1))

    for make in (anew, all_take_all):
        with pytest.raises(AssertionError, match="seen twice"):
            check_each_seen_once(make, size=64, batch=8)


def test_a_global_batch_is_the_same_samples_at_every_width() -> None:
    """So is its gradient, and the loss does not depend on the width."""

    def batch(width: int) -> list[int]:
        streams = [iter(SampleStream(100, batch=8, step=5, rank=rank, width=width)) for rank in range(width)]
        return sorted(next(stream) for stream in streams for _ in range(8 // width))

    assert batch(1) == batch(2) == batch(4) == batch(8)


def test_the_length_is_that_of_all_steps_wherever_it_begins() -> None:
    """Lightning counts batches from the first step of the job on: a shorter one is seen again."""
    lengths = {
        (width, step): len(SampleStream(100, batch=8, step=step, steps=50, rank=0, width=width))
        for width in (1, 2)
        for step in (0, 10, 50)
    }
    assert lengths == {(width, step): 50 * 8 // width for width, step in lengths}
    assert len(list(SampleStream(100, batch=8, step=10, steps=50, rank=0, width=2))) == 40 * 4


@pytest.mark.parametrize(
    ("width", "most", "expected"), [(1, None, (64, 1)), (2, 16, (16, 2)), (4, 16, (16, 1)), (1, 5, (4, 16))]
)
def test_the_global_batch_is_kept_by_accumulation(
    width: int, most: int | None, expected: tuple[int, int]
) -> None:
    """Samples of a rank, times how often, times ranks: 64."""
    assert split_batch(64, most_per_rank=most, width=width) == expected
    assert expected[0] * expected[1] * width == 64


def test_what_cannot_be_split_is_refused() -> None:
    """A global batch of 64 over 3 ranks would be another one."""
    with pytest.raises(ValueError, match="64 cannot be split evenly over 3"):
        split_batch(64, width=3)
    with pytest.raises(ValueError, match="cannot be split over 3"):
        SampleStream(10, batch=64, rank=0, width=3)
    with pytest.raises(TypeError, match="no length"):
        len(SampleStream(10, batch=4, rank=0, width=1))
