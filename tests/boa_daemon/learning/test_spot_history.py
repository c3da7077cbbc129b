"""Spot history: prices, interruptions and capacity, estimated on the careful side."""

from __future__ import annotations

from dataclasses import replace

import pytest

from boa_daemon.learning.spot_history import PRIOR_FRACTION, SpotHistory
from boa_daemon.testing import a_node, an_instance_type
from boa_daemon.tick.facts.offers import Offer
from boa_daemon.tick.facts.state import NodeState

KIND = replace(an_instance_type(gpu_type="t4@spot"), name="box@spot")
HOUR = 3600.0


def a_spot_node(name: str = "n1", zone: str = "a", **changes: object) -> NodeState:
    return replace(a_node(name, kind=KIND), market="spot", zone=zone, **changes)  # type: ignore[arg-type]


def an_offer(price: float, zone: str = "a") -> Offer:
    return Offer(instance_type="box@spot", zone=zone, market="spot", usd_per_hour=price)


def looked(history: SpotHistory, hours: int, *nodes: NodeState, since: int = 0) -> None:
    for hour in range(since, hours + 1):
        history.look(nodes, (), {}, now=hour * HOUR)


def test_without_observations_the_prior_is_used() -> None:
    terms = SpotHistory().terms("box@spot")

    assert terms.price_fraction == pytest.approx(PRIOR_FRACTION)
    # More careful than one interruption in 12 hours and four of five nodes launched.
    assert 4.0 < 1.0 / terms.per_node_hour < 12.0
    assert terms.given_fraction < 0.8
    assert terms.planned_fraction > terms.price_fraction
    assert "assumed, because none was rented yet" in SpotHistory().sentence("box")


def test_hours_without_interruptions_lower_the_rate_and_interruptions_raise_it() -> None:
    quiet, loud = SpotHistory(), SpotHistory()
    looked(quiet, 100, a_spot_node())
    for hour in range(100):
        loud.look([a_spot_node(f"n{hour // 2}")], (), {}, now=hour * HOUR)

    believed = SpotHistory().terms("box").per_node_hour
    assert quiet.terms("box").per_node_hour < 0.5 * believed
    assert loud.terms("box").per_node_hour > 2.0 * believed
    assert loud.terms("box").sudden_fraction > 0.9


def test_nodes_that_the_daemon_ended_do_not_count_as_interruptions() -> None:
    history = SpotHistory()
    looked(history, 2, a_spot_node("ours"), a_spot_node("told"), a_spot_node("gone"))
    history.look(
        [a_spot_node("ours"), a_spot_node("told", ends_by=9e9), a_spot_node("gone")], (), {}, now=3 * HOUR
    )
    history.note_ended(["ours"])
    looked(history, 5, since=4)

    [row] = history.zones("box").values()
    assert (row.ends, row.sudden) == pytest.approx((2.0, 1.0), rel=0.05)
    assert row.hours == pytest.approx(9.0, rel=0.05)


def test_the_given_fraction_is_launched_nodes_over_requested_ones() -> None:
    history, offer = SpotHistory(), an_offer(1.0)
    for _ in range(20):
        history.note_launch(offer, asked=2, given=0)
    history.note_launch(Offer(instance_type="box"), asked=5, given=0)

    assert history.terms("box").given_fraction <= 0.1
    assert history.zones("box")["a"].asked == 40


def test_prices_are_averaged_over_a_day_and_the_cheapest_zone_counts() -> None:
    history = SpotHistory()
    for hour in range(72):
        history.look((), (an_offer(3.0), an_offer(1.2, "b")), {"box": 4.0}, now=hour * HOUR)
    assert history.terms("box").price_fraction == pytest.approx(0.3)
    history.look((), (an_offer(3.6, "b"),), {"box": 4.0}, now=73 * HOUR)

    assert history.terms("box").price_fraction < 0.4


def test_the_history_survives_a_restart() -> None:
    history = SpotHistory()
    looked(history, 50, a_spot_node())
    history.note_launch(an_offer(1.0), asked=3, given=1)
    again = SpotHistory(history.documents())

    assert again.terms("box") == history.terms("box")
    assert again.sentence("box") == history.sentence("box")
