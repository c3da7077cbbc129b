"""Rests: how waits grow, and when what a node refused is asked again."""

from __future__ import annotations

import pytest

from boa_daemon.tick.rests import FAILURE, NODE, OFFER, WIDE_OFFER, Refusal, Rest


def test_waits_grow_with_the_times_or_with_how_long_it_lasts() -> None:
    """Offers double from three minutes to thirty, failures from five seconds on, nodes by an eighth."""
    assert [OFFER.seconds(times=n) for n in (1, 2, 4, 5, 2000)] == [180.0, 360.0, 1440.0, 1800.0, 1800.0]
    assert [FAILURE.seconds(times=n) for n in (1, 2, 8)] == [5.0, 10.0, 640.0]
    assert [NODE.seconds(lasted_seconds=s) for s in (0.0, 40.0, 160.0, 9000.0)] == [5.0, 5.0, 20.0, 60.0]


@pytest.mark.parametrize(("since", "at", "until"), [(100.0, 100.0, 105.0), (100.0, 260.0, 280.0)])
def test_a_refusal_is_asked_again_after_a_part_of_what_it_lasted(
    since: float, at: float, until: float
) -> None:
    """It counts from the first time to the last."""
    assert Refusal(since=since, at=at).until == until


def test_an_order_of_several_nodes_rests_for_ten_minutes_first() -> None:
    """It doubles to half an hour."""
    assert [WIDE_OFFER.seconds(times=n) for n in (1, 2, 3)] == [600.0, 1200.0, 1800.0]
    assert [rest.seconds() for rest in (OFFER, WIDE_OFFER, FAILURE, NODE)] == [180.0, 600.0, 5.0, 5.0]


def test_a_rest_that_does_not_grow_is_the_same_each_time() -> None:
    """Whatever it lasted; one that grows by the time alone starts at nothing."""
    assert [Rest(first_seconds=7.0).seconds(times=n, lasted_seconds=99.0) for n in (1, 9)] == [7.0, 7.0]
    assert Rest(first_seconds=0.0, part=0.5).seconds() == 0.0
