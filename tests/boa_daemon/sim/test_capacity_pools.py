"""Stock, quotas and gangs: how many nodes an order gets."""

from __future__ import annotations

from boa_daemon.sim.capacity_pools import CapacityPools
from boa_daemon.sim.world_settings import Spot, Stock, WorldSettings
from boa_daemon.testing import an_instance_type
from boa_daemon.tick.facts.actions import LaunchNodes
from boa_daemon.tick.facts.offers import Offer

KIND = an_instance_type()


def order(count: int, *, zone: str = "", is_gang: bool = False) -> LaunchNodes:
    """Return an order for on-demand nodes."""
    offer = Offer(instance_type=KIND.name, zone=zone)
    return LaunchNodes(
        id="l", instance_type=KIND, reason="test", count=count, is_gang=is_gang, offer=offer if zone else None
    )


def granted(shelves: CapacityPools, action: LaunchNodes) -> tuple[int, str]:
    """Return how many nodes an order gets, and why it gets no more."""
    pool = shelves.pool_of(action)
    assert pool is not None
    count, short = shelves.grant(pool, action, 0.0)
    for number in range(count):
        shelves.take(pool, f"{action.id}-{len(pool.live)}-{number}")
    return count, "" if short is None else short.kind


def test_without_limits_every_order_is_granted_in_full() -> None:
    """The plain world has no offers."""
    shelves = CapacityPools(WorldSettings(), [KIND], seed=0, start=0.0)

    assert shelves.offers(0.0) == ()
    assert granted(shelves, order(1000)) == (1000, "")
    assert not shelves.is_limited


def test_scarce_stock_is_granted_in_part_to_a_group_and_refused_to_a_gang() -> None:
    """With three nodes in stock, a gang of four gets none and a group of four gets three."""
    shelves = CapacityPools(WorldSettings(stock={"": Stock(nodes=3)}), [KIND], seed=0, start=0.0)

    assert granted(shelves, order(4, is_gang=True)) == (0, "no-capacity")
    assert granted(shelves, order(4)) == (3, "no-capacity")
    assert granted(shelves, order(1)) == (0, "no-capacity")


def test_a_quota_counts_all_zones_and_is_in_the_offers() -> None:
    """With a quota of three and two nodes in one zone, each zone has one left."""
    shelves = CapacityPools(WorldSettings(zones=("a", "b"), quotas={"gpu": 3}), [KIND], seed=0, start=0.0)
    assert granted(shelves, order(2, zone="a")) == (2, "")

    assert [offer.nodes_left for offer in shelves.offers(0.0)] == [1, 1]
    assert granted(shelves, order(2, zone="b")) == (1, "quota")


def test_a_zone_may_have_a_stock_of_its_own() -> None:
    """The most nodes that one job may hold are those of the best zone."""
    world = WorldSettings(zones=("a", "b"), zone_stock={"a": {KIND.name: Stock(nodes=0)}})
    shelves = CapacityPools(world, [KIND], seed=0, start=0.0)

    assert granted(shelves, order(2, zone="a")) == (0, "no-capacity")
    assert granted(shelves, order(2, zone="b")) == (2, "")
    assert world.most_nodes(KIND.name, "gpu") is None


def test_spot_and_on_demand_are_offered_at_their_own_prices() -> None:
    """The least price is the cheaper of the two."""
    world = WorldSettings(spot=Spot(prices=((0.0, 0.25),)))
    shelves = CapacityPools(world, [KIND], seed=0, start=0.0)

    assert [(offer.market, offer.usd_per_hour) for offer in shelves.offers(0.0)] == [
        ("spot", 1.0),
        ("on-demand", 4.0),
    ]
    assert shelves.least_prices(1e6) == {KIND.name: 1.0}
