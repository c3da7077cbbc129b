"""Who gets how many nodes: stock, quotas and gangs."""

from __future__ import annotations

from boa_daemon.sim.capacity_pools import CapacityPools
from boa_daemon.sim.world_settings import Spot, Stock, WorldSettings
from boa_daemon.testing import an_instance_type
from boa_daemon.tick.actions import LaunchNodes
from boa_daemon.tick.offers import Offer

KIND = an_instance_type()


def order(count: int, *, zone: str = "", is_gang: bool = False) -> LaunchNodes:
    """Return an order for nodes on demand."""
    offer = Offer(instance_type=KIND.name, zone=zone)
    return LaunchNodes(
        id="l", instance_type=KIND, reason="test", count=count, is_gang=is_gang, offer=offer if zone else None
    )


def granted(shelves: CapacityPools, action: LaunchNodes) -> tuple[int, str]:
    """Return how many nodes an order gets, and why not all."""
    pool = shelves.pool_of(action)
    assert pool is not None
    count, short = shelves.grant(pool, action, 0.0)
    for number in range(count):
        shelves.take(pool, f"{action.id}-{len(pool.live)}-{number}")
    return count, "" if short is None else short.kind


def test_without_limits_everybody_gets_what_they_ask_for_and_nothing_is_named() -> None:
    """The plain world has no offers."""
    shelves = CapacityPools(WorldSettings(), [KIND], seed=0, start=0.0)

    assert shelves.offers(0.0) == ()
    assert granted(shelves, order(1000)) == (1000, "")
    assert not shelves.is_limited


def test_stock_is_granted_in_part_to_a_group_and_not_at_all_to_a_gang() -> None:
    """Three are there: a gang of four gets none, four on their own get three, then there are none."""
    shelves = CapacityPools(WorldSettings(stock={"": Stock(nodes=3)}), [KIND], seed=0, start=0.0)

    assert granted(shelves, order(4, is_gang=True)) == (0, "no-capacity")
    assert granted(shelves, order(4)) == (3, "no-capacity")
    assert granted(shelves, order(1)) == (0, "no-capacity")


def test_a_quota_counts_all_zones_and_is_in_the_offers() -> None:
    """Two of three nodes are held in one zone: one is left, whichever the zone."""
    shelves = CapacityPools(WorldSettings(zones=("a", "b"), quotas={"gpu": 3}), [KIND], seed=0, start=0.0)
    assert granted(shelves, order(2, zone="a")) == (2, "")

    assert [offer.nodes_left for offer in shelves.offers(0.0)] == [1, 1]
    assert granted(shelves, order(2, zone="b")) == (1, "quota")


def test_a_zone_may_have_a_stock_of_its_own() -> None:
    """None in a, no limit in b; the most that one job may hold is what the best zone has."""
    world = WorldSettings(zones=("a", "b"), zone_stock={"a": {KIND.name: Stock(nodes=0)}})
    shelves = CapacityPools(world, [KIND], seed=0, start=0.0)

    assert granted(shelves, order(2, zone="a")) == (0, "no-capacity")
    assert granted(shelves, order(2, zone="b")) == (2, "")
    assert world.most_nodes(KIND.name, "gpu") is None


def test_spot_is_offered_at_its_price_and_on_demand_at_the_type_s() -> None:
    """4 USD on demand, 1 USD on spot; the least price over time is the cheaper one."""
    world = WorldSettings(spot=Spot(prices=((0.0, 0.25),)))
    shelves = CapacityPools(world, [KIND], seed=0, start=0.0)

    assert [(offer.market, offer.usd_per_hour) for offer in shelves.offers(0.0)] == [
        ("spot", 1.0),
        ("on-demand", 4.0),
    ]
    assert shelves.least_prices(1e6) == {KIND.name: 1.0}
