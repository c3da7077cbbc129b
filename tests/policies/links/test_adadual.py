import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from policies.links.adadual import overlap_pays, threshold
from policies.links.contention import Link

links = st.builds(
    Link,
    latency_seconds=st.just(0.0),
    seconds_per_byte=st.floats(0.1, 10.0),
    contention_seconds_per_byte=st.floats(0.0, 20.0),
)
sizes = st.floats(0.01, 100.0)


def best_start_seconds(link: Link, *, message_bytes: float, bytes_left: float) -> float:
    """Return when the second message should start: now (0), or when the first ends."""
    ratio = threshold(link.seconds_per_byte, link.contention_seconds_per_byte)
    if overlap_pays(message_bytes, bytes_left, ratio):
        return 0.0
    return bytes_left * link.seconds_per_byte


def finish_seconds(
    link: Link, *, message_bytes: float, bytes_left: float, start_seconds: float
) -> tuple[float, float]:
    """Return the end of the message in flight, and of the one started later.

    The latency is left out, because it shifts every choice alike.
    """
    alone, shared = link.pace(1), link.pace(2)
    if start_seconds >= bytes_left * alone:
        return bytes_left * alone, start_seconds + message_bytes * alone
    old_left = bytes_left - start_seconds / alone
    if message_bytes <= old_left:
        second = start_seconds + message_bytes * shared
        return second + (old_left - message_bytes) * alone, second
    first = start_seconds + old_left * shared
    return first, first + (message_bytes - old_left) * alone


def test_the_papers_threshold_is_0_3923() -> None:
    """0.856 / (2 (0.856 + 0.235))."""
    assert threshold(0.856, 0.235) == pytest.approx(0.39230, abs=1e-5)


def test_the_threshold_is_half_without_contention_and_zero_at_infinite_contention() -> None:
    assert threshold(1.0, 0.0) == 0.5
    assert threshold(1.0, 1e12) == pytest.approx(0.0, abs=1e-12)


@given(links, sizes, sizes)
def test_the_rule_is_as_good_as_the_best_start_on_a_grid(link: Link, m1: float, m2: float) -> None:
    """No start among 401 up to twice the first message's time has a smaller sum of finish times."""
    alone = m1 * link.seconds_per_byte
    chosen = best_start_seconds(link, message_bytes=m2, bytes_left=m1)
    best = sum(finish_seconds(link, message_bytes=m2, bytes_left=m1, start_seconds=chosen))
    for start in np.linspace(0.0, 2.0 * alone, 401):
        tried = sum(finish_seconds(link, message_bytes=m2, bytes_left=m1, start_seconds=float(start)))
        assert best <= tried * (1 + 1e-9)


@given(links, sizes, sizes, st.floats(0.0, 1.5))
def test_the_closed_form_equals_a_simulation_event_by_event(
    link: Link, m1: float, m2: float, part: float
) -> None:
    """Messages send alone, together, and alone again."""
    start = part * m1 * link.pace(1)
    assume(abs(part - 1.0) > 1e-6)
    left, now, finished = {"old": m1}, 0.0, {}
    events = [start]
    while left or events:
        each = link.pace(max(1, len(left)))
        ends = {name: now + size * each for name, size in left.items()}
        upcoming = min([*ends.values(), *events])
        left = {name: size - (upcoming - now) / each for name, size in left.items()}
        now = upcoming
        for name in [name for name, end in ends.items() if end == now]:
            finished[name] = now
            del left[name]
        if events and events[0] == now:
            events.clear()
            left["new"] = m2
    first, second = finish_seconds(link, message_bytes=m2, bytes_left=m1, start_seconds=start)
    assert first == pytest.approx(finished["old"], rel=1e-9)
    assert second == pytest.approx(finished["new"], rel=1e-9)


@given(links, sizes, sizes, st.tuples(st.floats(0.1, 10), st.floats(0.1, 10)), st.integers(0, 5))
def test_weights_and_the_queue_decide_by_the_weighted_sum_of_finish_times(
    link: Link, m1: float, m2: float, weights: tuple[float, float], queue: int
) -> None:
    """The threshold picks the cheaper of starting now and waiting.

    Each job in the queue waits until the link is free: until the last finish of the two messages.
    """
    w1, w2 = weights

    def cost(start: float) -> float:
        first, second = finish_seconds(link, message_bytes=m2, bytes_left=m1, start_seconds=start)
        return w1 * first + w2 * second + queue * max(first, second)

    now, later = cost(0.0), cost(m1 * link.pace(1))
    ratio = threshold(link.seconds_per_byte, link.contention_seconds_per_byte, w2, w1, float(queue))
    assume(m2 < m1)
    assume(abs(now - later) > 1e-9 * later)
    assert overlap_pays(m2, m1, ratio) == (now < later)


@given(sizes, sizes)
def test_threshold_zero_always_waits_and_infinity_never_does(m1: float, m2: float) -> None:
    assert not overlap_pays(m2, m1, 0.0)
    assert overlap_pays(m2, m1, float("inf"))


@given(links, sizes, sizes, st.floats(0.0, 0.999))
def test_a_refused_message_stays_refused_while_the_old_one_shrinks(
    link: Link, m1: float, m2: float, left: float
) -> None:
    """Therefore the rule needs testing only when a message starts or ends."""
    ratio = threshold(link.seconds_per_byte, link.contention_seconds_per_byte)
    assume(not overlap_pays(m2, m1, ratio))
    assert not overlap_pays(m2, m1 * left, ratio)


def test_a_message_at_the_threshold_waits() -> None:
    """Both choices cost the same, and overlap without a gain is avoided."""
    assert [overlap_pays(size, 4.0, 0.25) for size in (0.99, 1.0, 1.01)] == [True, False, False]
    assert overlap_pays(0.5, 1.0, 1.0)
