from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from policies.errors import InvalidProblem
from policies.links.contention import (
    ETHERNET_10G,
    Link,
    LinkSample,
    _huber_weights,
    crowds,
    fit_link,
    pace,
    paces,
)

A_LINK = Link(latency_seconds=0.5, seconds_per_byte=1.0, contention_seconds_per_byte=0.5)


def samples(
    link: Link, *, noise: float = 0.0, seed: int = 0, sizes: tuple[float, ...] = (1e6, 2e7, 1e8)
) -> list[LinkSample]:
    rng = np.random.default_rng(seed)
    return [
        LinkSample(
            messages_at_once=k,
            message_bytes=size,
            seconds=link.seconds(size, messages_at_once=k) * (1.0 + noise * float(rng.standard_normal())),
        )
        for k in (1, 2, 3, 4)
        for size in sizes
        for _ in range(4)
    ]


def test_k_messages_share_the_link_and_pay_for_contention() -> None:
    """T(3, 4) = a + 3 b M + 2 eta M."""
    assert A_LINK.seconds(4.0, messages_at_once=3) == 0.5 + 3 * 1.0 * 4 + 2 * 0.5 * 4


def test_the_papers_link_takes_451_ms_for_vgg_alone() -> None:
    """0.856 ms per million bytes and 0.669 ms of latency."""
    assert ETHERNET_10G.seconds(526.4e6) == pytest.approx(6.69e-4 + 526.4 * 0.856e-3)


def test_a_faster_link_scales_bandwidth_and_contention_but_not_latency() -> None:
    """A 100 Gbit/s link moves a byte in a tenth of the time of a 10 Gbit/s link."""
    fast = Link.of_gigabits(100.0)

    assert fast.latency_seconds == ETHERNET_10G.latency_seconds
    assert fast.seconds_per_byte == pytest.approx(ETHERNET_10G.seconds_per_byte / 10)
    assert fast.contention_seconds_per_byte == pytest.approx(ETHERNET_10G.contention_seconds_per_byte / 10)


def test_a_message_moves_at_the_pace_of_its_most_crowded_server() -> None:
    """Job b meets one message on each of two servers; a and c meet b only."""
    in_flight = {"a": ["x", "y"], "b": ["y", "z"], "c": ["z", "w"], "d": ["v", "u"]}

    assert crowds(in_flight) == {"a": 2, "b": 2, "c": 2, "d": 1}
    assert paces(A_LINK, in_flight)["d"] == pace(1.0, 0.5, 1) == 1.0
    assert paces(A_LINK, in_flight)["b"] == pace(1.0, 0.5, 2) == 2.5


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"seconds_per_byte": 0.0}, "seconds_per_byte"),
        ({"latency_seconds": -1.0}, "latency_seconds"),
        ({"contention_seconds_per_byte": float("nan")}, "contention_seconds_per_byte"),
    ],
)
def test_invalid_links_are_refused(change: dict[str, float], names: str) -> None:
    """The error names the constant that is zero, negative or undefined."""
    constants = {"latency_seconds": 0.0, "seconds_per_byte": 1.0, "contention_seconds_per_byte": 0.0}
    with pytest.raises(InvalidProblem, match=names):
        Link(**{**constants, **change})


def test_a_link_speed_of_zero_is_refused() -> None:
    with pytest.raises(InvalidProblem, match="above zero"):
        Link.of_gigabits(0.0)


def test_exact_samples_give_the_link_back() -> None:
    """Without noise the estimated constants are those of the link."""
    fit = fit_link(samples(ETHERNET_10G))

    assert fit.link.seconds_per_byte == pytest.approx(8.56e-10, rel=1e-9)
    assert fit.link.contention_seconds_per_byte == pytest.approx(2.35e-10, rel=1e-9)
    assert fit.link.latency_seconds == pytest.approx(6.69e-4, rel=1e-6)
    assert fit.adadual_threshold == pytest.approx(0.3923, abs=1e-4)
    assert fit.median_relative_error < 1e-9


def test_intervals_cover_the_truth_about_as_often_as_stated() -> None:
    """95 % intervals of 200 fits with 5 % noise cover each constant in 90 % to 99.5 % of them."""
    covered = np.zeros(3)
    for seed in range(200):
        fit = fit_link(samples(ETHERNET_10G, noise=0.05, seed=seed))
        for i, (estimate, truth) in enumerate(
            [
                (fit.latency_seconds, 6.69e-4),
                (fit.seconds_per_byte, 8.56e-10),
                (fit.contention_seconds_per_byte, 2.35e-10),
            ]
        ):
            covered[i] += estimate.low <= truth <= estimate.high
    assert np.all(covered / 200 >= 0.90)
    assert np.all(covered / 200 <= 0.995)


def test_one_stalled_message_does_not_move_the_fit() -> None:
    """A sample ten times too slow changes the bandwidth by less than 2 %."""
    good = samples(ETHERNET_10G, noise=0.02)
    bad = good[5]
    stalled = LinkSample(
        messages_at_once=bad.messages_at_once, message_bytes=bad.message_bytes, seconds=bad.seconds * 10
    )

    fit = fit_link([*good[:5], stalled, *good[6:]])

    assert fit.seconds_per_byte.value == pytest.approx(8.56e-10, rel=0.02)
    assert fit.contention_seconds_per_byte.value == pytest.approx(2.35e-10, rel=0.10)


def test_negative_contention_is_set_to_zero_and_reported() -> None:
    """Concurrent messages that cost less than fair sharing put the contention at its bound."""
    kind = [
        LinkSample(messages_at_once=k, message_bytes=size, seconds=1e-3 + 0.9 ** (k > 1) * k * 1e-9 * size)
        for k in (1, 2, 4)
        for size in (1e6, 1e7, 1e8)
    ]

    fit = fit_link(kind)

    assert fit.at_bound == ("contention_seconds_per_byte",)
    assert fit.link.contention_seconds_per_byte == 0.0
    assert fit.contention_seconds_per_byte.low == 0.0


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ([(1, 1e6), (2, 1e6), (3, 1e6), (4, 1e6)], "at least two sizes"),
        ([(1, 1e6), (1, 2e6), (1, 3e6), (1, 4e6)], "at least two messages at once"),
        ([(1, 1e6), (2, 2e6), (1, 3e6)], "measure 4 or more"),
        ([(1, 1e6), (2, 2e6), (1, 1e6), (2, 2e6)], "on one line"),
    ],
)
def test_samples_that_cannot_tell_the_constants_apart_are_refused(
    broken: list[tuple[int, float]], says: str
) -> None:
    """The error says which samples to add: sizes, concurrent messages, or more measurements."""
    with pytest.raises(InvalidProblem, match=says):
        fit_link(
            [LinkSample(messages_at_once=k, message_bytes=m, seconds=1e-3 + k * m * 1e-9) for k, m in broken]
        )


def test_times_that_fall_with_size_are_refused() -> None:
    """Such times would give a negative bandwidth, which hints at wrong units."""
    wrong = [
        LinkSample(messages_at_once=k, message_bytes=m, seconds=1.0 - k * m * 1e-9)
        for k in (1, 2)
        for m in (1e6, 2e6, 1e8)
    ]
    with pytest.raises(InvalidProblem, match="Check the units"):
        fit_link(wrong)


@given(st.floats(0, 1e-2), st.floats(1e-12, 1e-6), st.floats(0, 1e-6), st.integers(1, 8), st.floats(1.0, 1e9))
def test_one_more_concurrent_message_never_speeds_up_another(
    a: float, b: float, eta: float, k: int, m: float
) -> None:
    """The time of a message does not fall with the number of messages at once."""
    link = Link(latency_seconds=a, seconds_per_byte=b, contention_seconds_per_byte=eta)
    assert link.seconds(m, messages_at_once=k + 1) >= link.seconds(m, messages_at_once=k)


@pytest.mark.parametrize("wrong", [(0, 1.0, 1.0), (1, 0.0, 1.0), (1, 1.0, float("nan"))])
def test_invalid_samples_are_refused(wrong: tuple[int, float, float]) -> None:
    k, size, seconds = wrong
    with pytest.raises(InvalidProblem):
        LinkSample(messages_at_once=k, message_bytes=size, seconds=seconds)


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0, float("nan")])
def test_confidence_must_be_a_fraction(confidence: float) -> None:
    with pytest.raises(InvalidProblem, match="confidence must lie between 0 and 1"):
        fit_link(samples(ETHERNET_10G), confidence=confidence)


def noisy_samples() -> list[LinkSample]:
    """Return samples of two sizes, alone and in pairs, with noise; one sample is three times as slow."""
    rng = np.random.default_rng(5)
    found = []
    for k, size in [(1, 1e7), (2, 1e7), (1, 1e8), (2, 1e8)] * 3:
        seconds = 1e-3 + k * size * 1e-9 + (k - 1) * size * 3e-10
        found.append(
            LinkSample(messages_at_once=k, message_bytes=size, seconds=seconds * rng.normal(1.0, 0.02))
        )
    return [*found[:-1], replace(found[-1], seconds=3.0 * found[-1].seconds)]


def test_intervals_are_those_of_students_t_distribution() -> None:
    """Twelve samples for three constants leave nine degrees of freedom."""
    narrow, wide = (fit_link(noisy_samples(), confidence=share).seconds_per_byte for share in (0.5, 0.95))
    quantiles = [scipy.stats.t(9).ppf(0.5 + share / 2.0) for share in (0.5, 0.95)]
    assert narrow.value == wide.value
    assert (wide.high - wide.low) / (narrow.high - narrow.low) == pytest.approx(quantiles[1] / quantiles[0])


def test_the_weights_of_outliers_have_converged() -> None:
    """One more weighted fit from the answer gives the same answer."""
    found = noisy_samples()
    crowd, size, seconds = (
        np.array([getattr(one, name) for one in found], dtype=float)
        for name in ("messages_at_once", "message_bytes", "seconds")
    )
    design = np.column_stack([np.ones_like(size), crowd * size, (crowd - 1.0) * size])
    link = fit_link(found).link
    answer = np.array([link.latency_seconds, link.seconds_per_byte, link.contention_seconds_per_byte])
    model = design @ answer
    root = np.sqrt(_huber_weights((seconds - model) / model)) / model
    unit = np.abs(design).max(axis=0)
    again = np.linalg.lstsq(design / unit * root[:, None], seconds * root, rcond=None)[0] / unit
    assert again == pytest.approx(answer, rel=1e-7)


def test_a_link_slower_than_a_gigabit_is_allowed() -> None:
    """At 0.5 Gbit/s a byte takes twenty times as long as at 10 Gbit/s."""
    assert Link.of_gigabits(0.5).seconds_per_byte == pytest.approx(20 * ETHERNET_10G.seconds_per_byte)


def test_negative_latency_is_set_to_zero_and_reported() -> None:
    """The link has no latency, and its small messages were measured a little too fast."""
    link = Link(latency_seconds=0.0, seconds_per_byte=1e-9, contention_seconds_per_byte=5e-10)
    found = fit_link(
        [
            LinkSample(
                messages_at_once=k,
                message_bytes=size,
                seconds=link.seconds(size, messages_at_once=k) * (0.9 if size < 1e7 else 1.0),
            )
            for k in (1, 2, 3)
            for size in (1e6, 1e7, 1e8)
            for _ in range(3)
        ]
    )
    assert found.at_bound == ("latency_seconds",)
    assert found.latency_seconds.value == 0.0
    assert found.seconds_per_byte.value == pytest.approx(1e-9, rel=0.05)
    assert found.contention_seconds_per_byte.value == pytest.approx(5e-10, rel=0.05)
