"""The link is fitted to timed messages, if there are enough and they are believable."""

from __future__ import annotations

import pytest

from boa_daemon.gate.timing import LEAST_SAMPLES, MOST_SAMPLES, Timings
from policies.links.contention import Link

LINK = Link(latency_seconds=1e-3, seconds_per_byte=1e-9, contention_seconds_per_byte=2e-10)
SIZES = (1e6, 4e6, 2e7)


def timings(true: Link, count: int, *, at_once: tuple[int, ...] = (1,)) -> Timings:
    """Return timings of messages on a true link."""
    found = Timings(LINK)
    for number in range(count):
        size, messages = SIZES[number % 3], at_once[number % len(at_once)]
        seconds = true.seconds(size, messages_at_once=messages)
        found.add(messages_at_once=messages, message_bytes=size, seconds=seconds)
    return found


def slower(factor: float) -> Link:
    """Return the link with bytes and contention so much slower."""
    return Link(
        latency_seconds=1e-3, seconds_per_byte=factor * 1e-9, contention_seconds_per_byte=factor * 2e-10
    )


def test_a_link_is_fitted_after_enough_new_messages() -> None:
    """Not before, and not again until as many more came."""
    found = timings(slower(2.0), LEAST_SAMPLES - 1)
    assert not found.refit()
    found.add(messages_at_once=1, message_bytes=1e6, seconds=slower(2.0).seconds(1e6))
    assert found.refit()
    assert found.fitted_from == LEAST_SAMPLES
    assert not found.refit()


def test_messages_that_were_alone_give_the_speed_and_keep_the_ratio_of_contention() -> None:
    """The latency stays as configured."""
    found = timings(slower(3.0), 2 * LEAST_SAMPLES)
    found.refit()
    assert found.link.seconds_per_byte == pytest.approx(3e-9, rel=0.05)
    assert found.link.contention_seconds_per_byte / found.link.seconds_per_byte == pytest.approx(
        0.2, rel=0.05
    )


def test_messages_that_met_others_give_all_three_constants() -> None:
    """Contention is three times as costly as configured here, for the same speed."""
    true = Link(latency_seconds=2e-3, seconds_per_byte=1e-9, contention_seconds_per_byte=6e-10)
    found = timings(true, MOST_SAMPLES, at_once=(1, 2))
    assert found.refit()
    assert found.link.contention_seconds_per_byte == pytest.approx(6e-10, rel=0.05)
    assert found.link.latency_seconds == pytest.approx(2e-3, rel=0.2)


@pytest.mark.parametrize(("factor", "is_used"), [(0.05, False), (0.2, True), (9.0, True), (11.0, False)])
def test_a_fit_far_from_the_configured_link_is_not_used(factor: float, is_used: bool) -> None:
    """Something else was timed then."""
    found = timings(slower(factor), LEAST_SAMPLES)
    assert found.refit() is is_used
    assert (found.link == LINK) is not is_used


def test_a_message_of_no_bytes_or_no_time_is_no_sample() -> None:
    """Only the newest samples count, so an old speed is forgotten."""
    found = timings(slower(5.0), MOST_SAMPLES)
    for size, seconds in ((0.0, 1.0), (1e6, 0.0)):
        found.add(messages_at_once=1, message_bytes=size, seconds=seconds)
    found.refit()
    assert found.fitted_from == MOST_SAMPLES
    for _ in range(MOST_SAMPLES):
        found.add(messages_at_once=1, message_bytes=4e6, seconds=LINK.seconds(4e6))
    found.refit()
    assert found.fitted_from == MOST_SAMPLES
    assert found.link.seconds_per_byte == pytest.approx(1e-9, rel=0.05)
