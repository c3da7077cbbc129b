"""The capacity of the simulated cloud: zones, markets, stock, quotas and prices.

Stock and spot prices are step functions of time that no run changes (`boa_daemon.sim.step_functions`). The
nodes that a run holds are subtracted from the stock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from boa_daemon.sim.spot_market import mean_price_fraction
from boa_daemon.sim.step_functions import StepFunction, price_path, stock_path
from boa_daemon.sim.world_settings import WorldSettings, of_type
from boa_daemon.tick.facts.actions import LaunchNodes
from boa_daemon.tick.facts.offers import Market, Offer
from boa_daemon.tick.facts.ports import Refused
from policies.model import InstanceType, NodeId


@dataclass(slots=True)
class CapacityPool:
    """The nodes of one type in one zone on one market: the stock, and the nodes that the run holds."""

    instance_type: InstanceType
    zone: str
    market: Market
    stock: StepFunction[float]
    prices: StepFunction[float] | None
    live: dict[NodeId, None] = field(default_factory=dict)
    is_watched: bool = False

    @property
    def key(self) -> str:
        """The key of the pool's offer."""
        return Offer(instance_type=self.instance_type.name, zone=self.zone, market=self.market).key


class CapacityPools:
    """All pools of a world, and the limits on taking nodes from them."""

    def __init__(
        self, world: WorldSettings, instance_types: Sequence[InstanceType], *, seed: int, start: float
    ) -> None:
        self._world = world
        self._quotas: Mapping[str, int | None] = {
            kind.name: of_type(world.quotas, kind.name, kind.gpu_type) for kind in instance_types
        }
        self._is_limited = any(
            world.most_nodes(kind.name, kind.gpu_type) is not None for kind in instance_types
        )
        self._held = dict.fromkeys(self._quotas, 0)
        by_plan = any(machine.kind.is_spot for machine in instance_types)
        self._pools = {
            pool.key: pool
            for kind in instance_types
            for pool in _pools_of(kind, _own_markets(kind, world) if by_plan else world, f"{seed}", start)
        }

    def offers(self, now: float) -> tuple[Offer, ...]:
        """Return the current offers; empty if the world names none."""
        if not self._world.names_offers:
            return ()
        return tuple(
            Offer(
                instance_type=pool.instance_type.name,
                zone=pool.zone,
                market=pool.market,
                usd_per_hour=pool.instance_type.usd_per_hour if pool.prices is None else pool.prices.at(now),
                nodes_left=self._quota_left(pool.instance_type.name),
            )
            for pool in self._pools.values()
        )

    @property
    def is_limited(self) -> bool:
        """Whether an order may have to wait for nodes to be given back."""
        return self._is_limited

    @property
    def notice_seconds(self) -> float:
        """The time between the announcement of a spot interruption and the end of the node."""
        return 0.0 if self._world.spot is None else self._world.spot.notice_seconds

    def least_prices(self, until: float) -> dict[str, float]:
        """Return the least price so far in any zone and market by instance type, dollars per hour."""
        least = {pool.instance_type.name: pool.instance_type.usd_per_hour for pool in self._pools.values()}
        for pool in self._pools.values():
            if pool.prices is not None:
                steps = pool.prices.steps_from(-inf, until)
                name = pool.instance_type.name
                least[name] = min(least[name], *(price for _, price in steps))
        return least

    def pool_of(self, action: LaunchNodes) -> CapacityPool | None:
        """Return the pool that an order takes its nodes from; None if there is no such pool."""
        return self._pools.get(action.offer_key)

    def grant(self, pool: CapacityPool, action: LaunchNodes, now: float) -> tuple[int, Refused | None]:
        """Return how many nodes of an order are available, and why not all. A gang gets all or none."""
        name = pool.instance_type.name
        quota, stock = self._quota_left(name), pool.stock.at(now) - len(pool.live)
        granted = int(max(0.0, min(action.count, stock, action.count if quota is None else quota)))
        if granted == action.count:
            return granted, None
        if quota is not None and quota <= stock:
            why = Refused(reason=f"the quota of {name} is used up", kind="quota", scopes=(name,))
        else:
            why = Refused(reason=f"no {name} left in {pool.zone or 'stock'}", kind="no-capacity")
        return (0 if action.is_gang else granted), why

    def take(self, pool: CapacityPool, node: NodeId) -> None:
        """Add a node to those the run holds."""
        pool.live[node] = None
        self._held[pool.instance_type.name] += 1

    def put_back(self, pool: CapacityPool, node: NodeId) -> None:
        """Remove a node from those the run holds."""
        del pool.live[node]
        self._held[pool.instance_type.name] -= 1

    def _quota_left(self, name: str) -> int | None:
        """Return how many more nodes of a type the quota allows; None without a quota."""
        quota = self._quotas[name]
        return None if quota is None else max(0, quota - self._held[name])


def _own_markets(kind: InstanceType, world: WorldSettings) -> WorldSettings:
    """Return the world with only the market of this machine, if the plan names markets."""
    on_spot = kind.kind.is_spot
    return replace(world, on_demand=not on_spot, spot=world.spot if on_spot else None)


def _pools_of(kind: InstanceType, world: WorldSettings, seed: str, start: float) -> Iterator[CapacityPool]:
    """Yield the pools of a type: one in each zone on each market."""
    for zone in world.zones or ("",):
        if world.spot is not None:
            name = f"{seed}/{kind.name}/{zone}"
            on_demand = kind.usd_per_hour
            if kind.kind.is_spot:
                on_demand /= mean_price_fraction(world.spot)
            yield CapacityPool(
                instance_type=kind,
                zone=zone,
                market="spot",
                stock=stock_path(world.spot.stock, f"{name}/spot stock", start=start),
                prices=price_path(world.spot, on_demand, f"{name}/spot price", start=start),
            )
        if world.on_demand:
            stock = world.stock_in(zone, kind.name, kind.gpu_type)
            yield CapacityPool(
                instance_type=kind,
                zone=zone,
                market="on-demand",
                stock=stock_path(stock, f"{seed}/{kind.name}/{zone}/stock", start=start),
                prices=None,
            )
