"""The nodes that are to stay, and the price of the next node of a type.  Cost: O(nodes + offers)."""

from __future__ import annotations

from boa_daemon.tick.offers import open_offers
from boa_daemon.tick.state import ClusterState, NodeState

SLACK = 1.0 + 1e-9
"""Tolerance factor for sums of floats that were added in another order."""


def live_nodes(state: ClusterState) -> list[NodeState]:
    """Return the nodes that are ready or requested, and are to stay."""
    return [n for n in state.nodes.values() if n.phase in ("ready", "requested") and n.ends_by is None]


def price_of_next(state: ClusterState, name: str, otherwise: float) -> float:
    """Return the price of the next node of a type: its cheapest open offer, or else `otherwise`."""
    found = open_offers(name, state.offers, state.cooldowns, now=state.now) if state.offers else []
    price = found[0].usd_per_hour if found else None
    return otherwise if price is None else price
