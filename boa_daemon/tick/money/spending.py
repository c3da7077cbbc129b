"""The nodes that are to stay, and the price of the next node of a type.  Cost: O(nodes + offers)."""

from __future__ import annotations

from collections.abc import Mapping

from boa_daemon.tick.facts.offers import open_offers
from boa_daemon.tick.facts.state import ClusterState, NodeState
from policies.model import InstanceType

SLACK = 1.0 + 1e-9
"""Tolerance factor for sums of floats that were added in another order."""


def live_nodes(state: ClusterState) -> list[NodeState]:
    """Return the nodes that are ready or requested, and are to stay."""
    return [n for n in state.nodes.values() if n.phase in ("ready", "requested") and n.ends_by is None]


def prices_in_use(state: ClusterState, kinds: Mapping[str, InstanceType]) -> dict[str, float]:
    """Return the price of a node of each GPU type: the mean of the present nodes, or else the offer's."""
    here: dict[str, list[float]] = {}
    for node in live_nodes(state):
        here.setdefault(node.instance_type.gpu_type, []).append(node.usd_per_hour)
    return {
        kind: sum(here[kind]) / len(here[kind])
        if kind in here
        else price_of_next(state, machine.name, machine.usd_per_hour)
        for kind, machine in kinds.items()
    }


def gpu_prices_in_use(state: ClusterState) -> dict[str, float]:
    """Return the mean price of a GPU of each type among the present nodes: that of the offers in use."""
    usd: dict[str, float] = {}
    gpus: dict[str, int] = {}
    for node in live_nodes(state):
        kind = node.instance_type.gpu_type
        usd[kind] = usd.get(kind, 0.0) + node.usd_per_hour
        gpus[kind] = gpus.get(kind, 0) + node.instance_type.gpus
    return {kind: usd[kind] / gpus[kind] for kind in usd}


def price_of_next(state: ClusterState, name: str, otherwise: float) -> float:
    """Return the price of the next node of a type: its cheapest open offer, or else `otherwise`."""
    found = open_offers(name, state.offers, state.cooldowns, now=state.now) if state.offers else []
    price = found[0].usd_per_hour if found else None
    return otherwise if price is None else price
