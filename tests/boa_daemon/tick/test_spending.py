"""Which nodes are to stay, and what the next of a type would cost."""

from __future__ import annotations

from dataclasses import replace

from boa_daemon.testing import a_node, a_state
from boa_daemon.tick.offers import Cooldown, Offer
from boa_daemon.tick.spending import SLACK, live_nodes, price_of_next

OFFERS = (
    Offer(instance_type="x", zone="a", usd_per_hour=3.0),
    Offer(instance_type="x", zone="b", usd_per_hour=2.0),
    Offer(instance_type="y", zone="a", usd_per_hour=1.0),
    Offer(instance_type="x", zone="c"),
)


def test_nodes_that_are_here_or_to_come_live_unless_their_end_is_announced() -> None:
    """Not those that are stopped, terminating or terminated."""
    phases = ("ready", "requested", "stopped", "terminating", "terminated")
    nodes = [a_node(phase, phase=phase) for phase in phases]  # type: ignore[arg-type]
    state = a_state(nodes=[*nodes, replace(a_node("ends"), ends_by=9.0)])
    assert [node.id for node in live_nodes(state)] == ["ready", "requested"]


def test_the_next_node_costs_its_cheapest_offer_that_is_open_else_what_its_type_does() -> None:
    """Closing the cheapest leaves the next; closing all, or naming none, the type's own price."""
    state = a_state(offers=OFFERS, now=10.0)
    assert price_of_next(state, "x", 9.0) == 2.0
    assert price_of_next(replace(state, cooldowns={"x/b": Cooldown(until=11.0)}), "x", 9.0) == 3.0
    assert price_of_next(replace(state, cooldowns={"x/b": Cooldown(until=10.0)}), "x", 9.0) == 2.0
    assert price_of_next(replace(state, cooldowns={"x": Cooldown(until=11.0)}), "x", 9.0) == 9.0
    assert price_of_next(state, "z", 9.0) == 9.0
    assert price_of_next(a_state(), "x", 9.0) == 9.0


def test_the_slack_covers_the_order_of_adding_up_and_no_money() -> None:
    """Three tenths are three tenths; a tenth of a cent in a hundred thousand dollars is more."""
    assert 0.3 * SLACK >= 0.1 * 3
    assert 100_000.00005 < 100_000.0 * SLACK < 100_000.001
