"""`job/gate/bucket.py`: a bucket never gives more than its size plus its gain over time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.job.gate.bucket import TokenBucket


class Hand:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_bucket_gives_a_burst_and_then_its_rate() -> None:
    """The bucket's size limits the burst."""
    clock = Hand()
    bucket = TokenBucket(10.0, 10.0, clock)

    assert [bucket.take() for _ in range(10)] == [0.0] * 10
    assert bucket.take() == pytest.approx(0.1)
    clock.now = 0.5
    assert [bucket.take() > 0.0 for _ in range(6)] == [False] * 5 + [True]


def test_a_debt_shrinks_with_time_at_the_current_rate() -> None:
    """Three tokens of debt take 1.5 s at two per second, and 0.5 s at six."""
    clock = Hand()
    bucket = TokenBucket(1.0, 2.0, clock)
    bucket.charge(4.0)

    assert bucket.seconds_in_debt() == pytest.approx(1.5)
    bucket.set_rate(6.0)
    assert bucket.seconds_in_debt() == pytest.approx(0.5)
    clock.now = 0.5
    assert bucket.seconds_in_debt() == pytest.approx(0.0)


@given(
    size=st.floats(1.0, 100.0),
    rate=st.floats(0.1, 100.0),
    steps=st.lists(st.floats(-1.0, 5.0), max_size=40),
)
def test_tokens_taken_never_exceed_the_size_and_the_gain(
    size: float, rate: float, steps: list[float]
) -> None:
    """This also holds if the clock goes back."""
    clock, taken, passed = Hand(), 0, 0.0
    bucket = TokenBucket(size, rate, clock)
    for step in steps:
        clock.now += step
        passed += max(step, 0.0)
        taken += bucket.take() == 0.0

    assert taken <= size + rate * passed + 1e-6
