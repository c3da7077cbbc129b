"""Rests: how waits grow, and when a request that a node refused is repeated."""

from __future__ import annotations

import pytest

from boa_daemon.tick.facts.rests import FAILURE, NODE, OFFER, WIDE_OFFER, Refusal, Rest


def test_waits_grow_with_the_number_of_refusals_or_with_their_duration() -> None:
    """Waits for offers and failures double up to a limit; waits for nodes are an eighth of the duration."""
    assert [OFFER.seconds(times=n) for n in (1, 2, 4, 5, 2000)] == [180.0, 360.0, 1440.0, 1800.0, 1800.0]
    assert [FAILURE.seconds(times=n) for n in (1, 2, 8)] == [5.0, 10.0, 640.0]
    assert [NODE.seconds(lasted_seconds=s) for s in (0.0, 40.0, 160.0, 9000.0)] == [5.0, 5.0, 20.0, 60.0]


@pytest.mark.parametrize(("since", "at", "until"), [(100.0, 100.0, 105.0), (100.0, 260.0, 280.0)])
def test_a_refused_request_is_repeated_after_an_eighth_of_the_refusals_duration(
    since: float, at: float, until: float
) -> None:
    """The duration is from the first refusal to the last, and the wait is at least 5 s."""
    assert Refusal(since=since, at=at).until == until


def test_an_order_of_several_nodes_rests_ten_minutes_first_and_half_an_hour_at_most() -> None:
    """The first waits of the four rests are 180, 600, 5 and 5 s."""
    assert [WIDE_OFFER.seconds(times=n) for n in (1, 2, 3)] == [600.0, 1200.0, 1800.0]
    assert [rest.seconds() for rest in (OFFER, WIDE_OFFER, FAILURE, NODE)] == [180.0, 600.0, 5.0, 5.0]


def test_a_rest_without_growth_always_has_its_first_length() -> None:
    """A rest that grows only with the duration may begin at zero."""
    assert [Rest(first_seconds=7.0).seconds(times=n, lasted_seconds=99.0) for n in (1, 9)] == [7.0, 7.0]
    assert Rest(first_seconds=0.0, part=0.5).seconds() == 0.0
