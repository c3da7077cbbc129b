"""The position in the data, counted in samples."""

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
def test_each_sample_of_an_epoch_is_seen_once_at_changing_widths(
    size: int, share: int, seed: int | None, steps_each: int
) -> None:
    """This also holds if an epoch ends within a global batch."""

    def make(rank: int, width: int, step: int) -> SampleStream:
        return SampleStream(size, batch=4 * share, step=step, seed=seed, rank=rank, width=width)

    check_each_seen_once(make, size=size, batch=4 * share, steps_each=steps_each)


def test_the_check_finds_loaders_that_repeat_samples() -> None:
    """One loader starts the epoch again after each change; in the other each rank takes all samples."""

    def anew(rank: int, width: int, step: int) -> SampleStream:
        return SampleStream(64, batch=8, step=0, rank=rank, width=width)

    def all_take_all(rank: int, width: int, step: int) -> Iterator[int]:
        return iter(SampleStream(64, batch=8, step=step, rank=0, width=1))

    for make in (anew, all_take_all):
        with pytest.raises(AssertionError, match="seen twice"):
            check_each_seen_once(make, size=64, batch=8)


def test_a_global_batch_has_the_same_samples_at_every_width() -> None:
    """So its gradient and the loss do not depend on the width."""

    def batch(width: int) -> list[int]:
        streams = [iter(SampleStream(100, batch=8, step=5, rank=rank, width=width)) for rank in range(width)]
        return sorted(next(stream) for stream in streams for _ in range(8 // width))

    assert batch(1) == batch(2) == batch(4) == batch(8)


def test_the_length_counts_all_steps_from_any_start() -> None:
    """Lightning counts batches from the job's first step; a shorter stream would be repeated."""
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
    """Samples per rank, times accumulation steps, times ranks is always 64."""
    assert split_batch(64, most_per_rank=most, width=width) == expected
    assert expected[0] * expected[1] * width == 64


def test_a_batch_that_cannot_be_split_evenly_is_an_error() -> None:
    """A stream without a number of steps has no length."""
    with pytest.raises(ValueError, match="64 cannot be split evenly over 3"):
        split_batch(64, width=3)
    with pytest.raises(ValueError, match="cannot be split over 3"):
        SampleStream(10, batch=64, rank=0, width=3)
    with pytest.raises(TypeError, match="no length"):
        len(SampleStream(10, batch=4, rank=0, width=1))
