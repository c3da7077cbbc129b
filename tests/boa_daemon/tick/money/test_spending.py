"""Which nodes stay, and what the next node of a type would cost."""

from __future__ import annotations

from dataclasses import replace

from boa_daemon.testing import a_node, a_state
from boa_daemon.tick.facts.offers import Cooldown, Offer
from boa_daemon.tick.money.spending import SLACK, live_nodes, price_of_next

OFFERS = (
    Offer(instance_type="x", zone="a", usd_per_hour=3.0),
    Offer(instance_type="x", zone="b", usd_per_hour=2.0),
    Offer(instance_type="y", zone="a", usd_per_hour=1.0),
    Offer(instance_type="x", zone="c"),
)


def test_live_nodes_are_ready_or_requested_without_an_announced_end() -> None:
    """Stopped, terminating and terminated nodes are not live."""
    phases = ("ready", "requested", "stopped", "terminating", "terminated")
    nodes = [a_node(phase, phase=phase) for phase in phases]  # type: ignore[arg-type]
    state = a_state(nodes=[*nodes, replace(a_node("ends"), ends_by=9.0)])
    assert [node.id for node in live_nodes(state)] == ["ready", "requested"]


def test_the_next_node_costs_its_cheapest_open_offer_or_the_price_of_its_type() -> None:
    """If the cheapest offer is closed the next one counts; without an open offer the type's price does."""
    state = a_state(offers=OFFERS, now=10.0)
    assert price_of_next(state, "x", 9.0) == 2.0
    assert price_of_next(replace(state, cooldowns={"x/b": Cooldown(until=11.0)}), "x", 9.0) == 3.0
    assert price_of_next(replace(state, cooldowns={"x/b": Cooldown(until=10.0)}), "x", 9.0) == 2.0
    assert price_of_next(replace(state, cooldowns={"x": Cooldown(until=11.0)}), "x", 9.0) == 9.0
    assert price_of_next(state, "z", 9.0) == 9.0
    assert price_of_next(a_state(), "x", 9.0) == 9.0


def test_the_slack_covers_rounding_errors_but_no_real_money() -> None:
    """Three times 0.1 fits into 0.3; a tenth of a cent above 100,000 dollars does not fit."""
    assert 0.3 * SLACK >= 0.1 * 3
    assert 100_000.00005 < 100_000.0 * SLACK < 100_000.001
