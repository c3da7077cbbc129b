"""The warm pool: stopped instances that cost only their disks and start sooner than new ones boot.

How many are worth their disks, and for how long, follows from the same price of money as for idle nodes
(`policies.online.node_prices.stopped_retention`). Without such a price, a stopped node is kept for as much
money as an idle one. A stopped node saves the boot less the start. Cost: O(nodes).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from boa_daemon.tick.facts.offers import Extras, Offer
from boa_daemon.tick.facts.plan import Plan
from boa_daemon.tick.facts.state import ClusterState, NodeState, Rules, WarmPool
from boa_daemon.units import SECONDS_PER_HOUR
from policies.answer import NodePrices, NodeRetention
from policies.model import InstanceType, NodeId

LONGEST_SECONDS = 24 * 3600.0
"""A stopped node unused for a day goes back, however cheap its disk; images and drivers age as well."""


def disk_extras(extras: Extras, *, otherwise: float) -> Extras:
    """Return what a stopped node still costs: its disk, at `otherwise` if its extras name none."""
    return (("disk", next((usd for kind, usd in extras if kind == "disk"), otherwise)),)


def may_stop(node: NodeState) -> bool:
    """Return whether a node can be stopped rather than terminated; EC2 stops no spot instances.

    A node that the cloud takes back, or that is unfit, is terminated.
    """
    return (
        node.phase == "ready"
        and node.is_listed
        and node.ends_by is None
        and node.market == "on-demand"
        and not any(node.gpus)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolWorth:
    """How many stopped nodes of each type are worth their disks, and how long."""

    pool: WarmPool
    node_prices: NodePrices | None
    idle_hold_seconds: float
    gpu_types: frozenset[str]

    @classmethod
    def of(cls, rules: Rules, node_prices: NodePrices | None) -> PoolWorth:
        """Return the worth by the rules and the policy; a site without a pool has room for no nodes."""
        pool = rules.warm_pool or WarmPool(nodes=0)
        return cls(
            pool=pool,
            node_prices=node_prices,
            idle_hold_seconds=rules.idle_hold_seconds,
            gpu_types=frozenset(rules.instance_types),
        )

    def hold(self, kind: InstanceType, disk_usd_per_hour: float) -> NodeRetention:
        """Return how many stopped nodes of a type to keep, and for how long."""
        if kind.gpu_type not in self.gpu_types or not self.pool.nodes:
            return NodeRetention(nodes=0, seconds=0.0)
        share = disk_usd_per_hour / kind.usd_per_hour
        if self.node_prices is None:
            seconds = self.idle_hold_seconds / share if share else LONGEST_SECONDS
            return NodeRetention(
                nodes=self.pool.nodes if seconds else 0, seconds=min(seconds, LONGEST_SECONDS)
            )
        saved = self.node_prices.boot_hours - self.pool.start_seconds / SECONDS_PER_HOUR
        worth = self.node_prices.warm(kind.gpu_type, saved_hours=max(saved, 0.0), share=share)
        return NodeRetention(nodes=worth.nodes, seconds=min(worth.seconds, LONGEST_SECONDS))


def stopped_nodes(state: ClusterState) -> list[NodeState]:
    """Return the stopped nodes, latest stop first, because those were needed most recently."""
    found = [node for node in state.passing_nodes if node.phase == "stopped"]
    found.sort(key=lambda node: (-node.launched_at, node.id))
    return found


class PoolStarts:
    """The stopped nodes that launches may start, each node once."""

    def __init__(self, state: ClusterState, plan: Plan) -> None:
        self._left: dict[tuple[str, str], list[NodeId]] = {}
        ending = {*plan.releases, *plan.forced}
        self._names_offers = bool(state.offers)
        for node in stopped_nodes(state):
            if node.id not in ending:
                self._left.setdefault((node.instance_type.name, node.zone), []).append(node.id)

    def first(self, offers: Iterable[Offer]) -> list[Offer]:
        """Return offers by price; among equal prices those first where a stopped node can be started."""
        found = list(offers)
        if not self._left:
            return found
        return sorted(found, key=lambda offer: (offer.usd_per_hour or 0.0, not self._at(offer)))

    def take(self, offer: Offer, count: int) -> tuple[NodeId, ...]:
        """Return up to `count` nodes to start in place of launches of an offer."""
        there = self._at(offer)
        taken, there[:] = there[:count], there[count:]
        return tuple(taken)

    def _at(self, offer: Offer) -> list[NodeId]:
        """Return the stopped nodes that match an offer."""
        if offer.market != "on-demand":
            return []
        if not self._names_offers:
            keys = [key for key in self._left if key[0] == offer.instance_type and self._left[key]]
            return self._left[keys[0]] if keys else []
        return self._left.get((offer.instance_type, offer.zone), [])


def stopped_node_expiries(
    nodes: Iterable[NodeState], worth: PoolWorth, *, now: float, kept: Mapping[str, int] | None = None
) -> Iterator[tuple[NodeState, float]]:
    """Yield stopped nodes, each with the instant until which it is worth its disk; `now` if not at all.

    `kept` counts by instance type the nodes that stay anyway.
    """
    counts = dict(kept or {})
    for node in nodes:
        name = node.instance_type.name
        hold = worth.hold(node.instance_type, node.usd_per_hour)
        fits = counts.get(name, 0) < hold.nodes and sum(counts.values()) < worth.pool.nodes
        until = node.launched_at + hold.seconds if fits else now
        if until > now:
            counts[name] = counts.get(name, 0) + 1
        yield node, until
