"""Which nodes are stopped rather than ended, which stopped ones end, and which are started first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from drafts import a_plan
from followers import Known

from boa_daemon.testing import Wishes, a_job, a_node, a_state, an_instance_type, rules, some_slots
from boa_daemon.tick.actions import LaunchNodes, TerminateNode
from boa_daemon.tick.decision import Decision, decide
from boa_daemon.tick.draft import Draft
from boa_daemon.tick.limits import DAY_SECONDS, Caps
from boa_daemon.tick.offers import Offer
from boa_daemon.tick.stages.keep_warm import keep_warm
from boa_daemon.tick.state import ClusterState, NodeState, Plan, WarmPool
from boa_daemon.tick.warm_pool import PoolStarts, PoolWorth, disk_extras, may_stop, stopped_node_expiries
from policies.answer import NodeRetention
from policies.placement.first_fit import FirstFit

NOON = 12 * 3600.0
DISK = 0.02


def asleep(name: str = "i-1~2", *, since: float = NOON - 600.0, **changes: Any) -> NodeState:
    """Return a node of four GPUs that is stopped."""
    node = replace(
        a_node(name, phase="stopped", launched_at=since),
        gpus=(),
        launched_by="",
        prices=((since, 0.0),),
        extras=(("disk", DISK),),
    )
    return replace(node, **changes)


def decided(
    state: ClusterState, *, pool: int | None = 2, caps: Caps | None = None, **widths: int
) -> Decision:
    """Return the decision of a site with a pool, whose policy names no prices."""
    site = rules(caps=caps, warm_pool=None if pool is None else WarmPool(nodes=pool))
    return decide(state, allocator=Wishes(widths=widths), placer=FirstFit(), rules=site)


def ends(decision: Decision) -> dict[str, bool]:
    """Return the nodes that go back, and whether they are stopped."""
    return {each.node: each.stops for each in decision.actions if isinstance(each, TerminateNode)}


def idle(name: str, **changes: Any) -> NodeState:
    """Return a node that has been idle for as long as it may be."""
    return replace(a_node(name, idle_since=NOON - 3600.0), **changes)


def test_an_idle_node_is_stopped_where_there_is_a_pool_with_room() -> None:
    """Two of three, as many as there is room for; without a pool all end."""
    state = a_state(nodes=[idle("i-1"), idle("i-2"), idle("i-3")], now=NOON)

    assert sorted(ends(decided(state)).values()) == [False, True, True]
    assert set(ends(decided(state, pool=None)).values()) == {False}
    with_one = replace(state, nodes={**state.nodes, "i-4~2": asleep("i-4~2")})
    assert sorted(ends(decided(with_one)).values()) == [False, False, True]


@pytest.mark.parametrize("change", [{"market": "spot"}, {"ends_by": NOON + 60.0}])
def test_what_cannot_be_stopped_or_is_taken_back_ends(change: dict[str, Any]) -> None:
    """EC2 stops no spot instance of ours, and what is unfit is to stay away."""
    assert ends(decided(a_state(nodes=[idle("i-1", **change)], now=NOON))) == {"i-1": False}


def test_without_a_pool_what_is_stopped_ends() -> None:
    """So `warm_pool_nodes = 0` and `boa down` leave nothing behind, and the reason says so."""
    decision = decided(a_state(nodes=[asleep()], now=NOON), pool=None)

    [order] = decision.actions
    assert isinstance(order, TerminateNode)
    assert (order.node, order.stops) == ("i-1~2", False)
    assert order.reason == "stopped for 10.0 min, and not worth its disk"


def test_a_stopped_node_goes_back_when_it_has_cost_what_an_idle_one_may() -> None:
    """60 s at 4 USD/h are 12,000 s at 0.02 USD/h; the next look is then."""
    young = asleep(since=NOON - 11_000.0)
    decision = decided(a_state(nodes=[young], now=NOON))
    assert ends(decision) == {}
    assert decision.wake_at == pytest.approx(NOON + 1000.0)

    assert ends(decided(a_state(nodes=[asleep(since=NOON - 12_001.0)], now=NOON))) == {"i-1~2": False}


def launches(decision: Decision) -> list[LaunchNodes]:
    """Return what is launched."""
    return [each for each in decision.actions if isinstance(each, LaunchNodes)]


def test_a_launch_starts_what_is_stopped_first() -> None:
    """Two nodes are wanted and one is stopped, however long: it is started, not ended."""
    state = a_state(a_job("a"), nodes=[asleep(since=NOON - 20_000.0)], now=NOON)
    decision = decided(state, a=8)

    [order] = launches(decision)
    assert (order.count, order.starts) == (2, ("i-1~2",))
    assert "asked for now: 2, stopped and started first: 1 of 1" in decision.explain("a")
    assert ends(decision) == {}


def test_a_start_is_where_the_offer_is() -> None:
    """Among offers of one price the zone with a stopped node comes first; a dearer zone does not."""
    offers = [Offer(instance_type="gpu-x4", zone=zone, usd_per_hour=4.0) for zone in ("a", "b")]
    state = a_state(a_job("a"), nodes=[asleep(zone="b")], now=NOON, offers=tuple(offers))
    [order] = launches(decided(state, a=4))
    assert (order.offer, order.starts) == (offers[1], ("i-1~2",))

    dearer = (offers[0], replace(offers[1], usd_per_hour=5.0))
    [order] = launches(decided(replace(state, offers=dearer), a=4))
    assert (order.offer, order.starts) == (dearer[0], ())


def test_a_stopped_node_takes_no_place_of_an_instance() -> None:
    """With one instance allowed and one stopped, a node may be launched: by starting that one."""
    state = a_state(a_job("a"), nodes=[asleep()], now=NOON)
    decision = decided(state, caps=Caps(instances=1, usd_per_day=1000.0), a=4)

    assert [order.starts for order in launches(decision)] == [("i-1~2",)]


def test_no_disk_is_kept_that_a_cap_could_not_pay_for() -> None:
    """A disk has to be paid for as long as a launch: 900 s at 0.0219 USD/h, beside what ends."""
    state = a_state(nodes=[idle("i-1")], now=NOON)
    billed = 12.0 * 4.0 * 1e6  # from midnight to noon
    assert ends(decided(state, caps=Caps(usd_per_day=(billed + 2e6) / 1e6))) == {"i-1": True}
    assert ends(decided(state, caps=Caps(usd_per_day=(billed + 0.102e6) / 1e6))) == {"i-1": False}


def test_what_is_stopped_goes_back_before_a_cap_breaks() -> None:
    """Its disk counts: with nothing left for it, it is ended."""
    state = a_state(nodes=[asleep()], now=NOON, settled_today_micro_dollars=9_999_900)
    decision = decided(state, caps=Caps(usd_per_day=10.0))

    assert ends(decision) == {"i-1~2": False}
    assert decision.wake_at is not None
    assert decision.wake_at <= DAY_SECONDS


class Priced(Known):
    """A policy that says what a stopped node is worth."""

    def warm(self, gpu_type: str, *, saved_hours: float, share: float) -> NodeRetention:
        """Return one node, for as many seconds as its disk is cheap."""
        assert saved_hours == pytest.approx(120.0 / 3600.0)
        return NodeRetention(nodes=1, seconds=10.0 / share)


def test_the_policys_price_says_how_many_and_how_long() -> None:
    """Boots of 180 s and starts of 60 s: 120 s are saved; one node is worth it, for 10 s over its share."""
    site = rules(warm_pool=WarmPool(nodes=5, disk_usd_per_hour=DISK))
    state = a_state(nodes=[idle("i-1"), idle("i-2")], now=NOON)
    policy = Priced(widths={})

    decision = decide(state, allocator=policy, placer=FirstFit(), rules=site)
    assert sorted(ends(decision).values()) == [False, True]
    for age, is_over in ((1_990.0, False), (2_010.0, True)):
        old = a_state(nodes=[asleep(since=NOON - age)], now=NOON)
        decision = decide(old, allocator=policy, placer=FirstFit(), rules=site)
        assert bool(ends(decision)) == is_over


def test_a_job_never_sits_on_a_stopped_node() -> None:
    """It has no GPUs to give, and does not count as one to come."""
    state = a_state(a_job("a"), nodes=[asleep(), a_node("i-2")], now=NOON)
    decision = decided(state, a=4)

    assert decision.plan.slots == {"a": some_slots("i-2", 0, 1, 2, 3)}


def test_a_disk_is_kept_beside_what_is_launched_or_not_at_all() -> None:
    """A launch of another type takes its dollar first; under a cap that is broken already nothing is kept."""
    other = an_instance_type(gpu_type="other", usd_per_gpu_hour=10.0)
    state = a_state(a_job("a"), nodes=[idle("i-1")], now=NOON)
    billed = 12.0 * 4.0
    kept = {}
    for left in (-1.0, 1.0, 60.0):
        site = rules(warm_pool=WarmPool(nodes=1), caps=Caps(usd_per_day=billed + left))
        plan = Plan(
            widths={},
            slots={},
            releases=("i-1",),
            launches={other.name: 1},
            instance_types={other.name: other},
        )
        draft = Draft(rules=site, allocator=Wishes(widths={}), placer=FirstFit(), plan=plan)
        kept[left] = keep_warm(state, draft).plan.stopping
    assert kept == {-1.0: (), 1.0: (), 60.0: ("i-1",)}


WORTH = PoolWorth.of(rules(warm_pool=WarmPool(nodes=2)), None)


@pytest.mark.parametrize(
    ("pool", "gpu_type", "disk", "hold"),
    [
        (2, "gpu", 0.02, NodeRetention(nodes=2, seconds=60.0 * 4.0 / 0.02)),
        (2, "gpu", 0.0, NodeRetention(nodes=2, seconds=DAY_SECONDS)),
        (2, "gpu", 1e-6, NodeRetention(nodes=2, seconds=DAY_SECONDS)),
        (2, "new", 0.02, NodeRetention(nodes=0, seconds=0.0)),
        (0, "gpu", 0.02, NodeRetention(nodes=0, seconds=0.0)),
    ],
)
def test_a_stopped_node_is_kept_for_the_money_of_an_idle_one_a_day_at_the_most(
    pool: int, gpu_type: str, disk: float, hold: NodeRetention
) -> None:
    """60 s at four dollars an hour; types that the settings do not name are not kept."""
    worth = PoolWorth.of(rules(warm_pool=WarmPool(nodes=pool)), None)
    assert worth.hold(an_instance_type(gpu_type=gpu_type), disk) == hold
    nothing = PoolWorth.of(rules(warm_pool=WarmPool(nodes=2), idle_hold_seconds=0.0), None)
    assert nothing.hold(an_instance_type(), 0.02) == NodeRetention(nodes=0, seconds=0.0)


def test_stopped_nodes_are_judged_in_their_order_by_type_and_in_all() -> None:
    """Two places: the third has none; one that stays anyway takes one, what is too old takes none."""
    hold = 60.0 * 4.0 / DISK
    nodes = [asleep("a"), asleep("b"), asleep("c")]
    until = NOON - 600.0 + hold
    assert [at for _, at in stopped_node_expiries(nodes, WORTH, now=NOON)] == [until, until, NOON]
    assert [at for _, at in stopped_node_expiries(nodes, WORTH, now=NOON, kept={"gpu-x4": 1})] == [
        until,
        NOON,
        NOON,
    ]
    assert [at for _, at in stopped_node_expiries(nodes, WORTH, now=NOON, kept={"new-x4": 1})] == [
        until,
        NOON,
        NOON,
    ]
    old = [asleep("o", since=NOON - hold), *nodes]
    assert [at for _, at in stopped_node_expiries(old, WORTH, now=NOON)] == [NOON, until, until, NOON]


def test_stopped_nodes_are_started_where_an_offer_is_the_youngest_first_and_each_once() -> None:
    """Two in zone x, one in y; none on spot, none that ends, none of another type, and no node that runs."""
    nodes = [
        asleep("old", since=NOON - 900.0, zone="x"),
        asleep("young", zone="x"),
        asleep("also", zone="x"),
        asleep("y", zone="y"),
        asleep("ends", since=NOON, zone="x"),
        asleep("new", zone="x", instance_type=an_instance_type(gpu_type="new")),
        replace(a_node("runs"), zone="x"),
        replace(a_node("boots", phase="requested"), zone="x"),
    ]
    here = Offer(instance_type="gpu-x4", zone="x", usd_per_hour=4.0)
    state = a_state(nodes=nodes, offers=(here,), now=NOON)
    pool = PoolStarts(state, a_plan(releases=("ends",)))
    assert pool.take(replace(here, market="spot"), 1) == ()
    assert pool.take(replace(here, zone="z"), 1) == ()
    assert pool.take(here, 2) == ("also", "young")
    assert pool.take(here, 2) == ("old",)
    assert pool.take(here, 1) == ()
    anywhere = PoolStarts(replace(state, offers=()), a_plan(releases=("ends", "also", "young")))
    nowhere = Offer(instance_type="gpu-x4")
    assert [anywhere.take(nowhere, 1) for _ in range(3)] == [("y",), ("old",), ()]


def test_among_equal_prices_those_come_first_where_a_node_can_be_started() -> None:
    """A cheaper offer stays before all."""
    offers = [
        Offer(instance_type="gpu-x4", zone=zone, usd_per_hour=usd)
        for zone, usd in (("a", 3.0), ("b", 4.0), ("x", 4.0))
    ]
    state = a_state(nodes=[asleep("s", zone="x")], offers=tuple(offers), now=NOON)
    assert [offer.zone for offer in PoolStarts(state, a_plan()).first(offers)] == ["a", "x", "b"]
    empty = PoolStarts(replace(state, nodes={}), a_plan())
    assert [offer.zone for offer in empty.first(offers)] == ["a", "b", "x"]


def test_what_a_stopped_node_goes_on_costing_is_its_disk() -> None:
    """Whatever stands before it; a guess where no disk is named."""
    assert disk_extras((("address", 0.5), ("disk", 0.02)), otherwise=0.1) == (("disk", 0.02),)
    assert disk_extras((("address", 0.5),), otherwise=0.1) == (("disk", 0.1),)


@pytest.mark.parametrize("phase", ["ready", "requested", "stopped", "terminating"])
def test_only_what_is_ready_and_empty_can_be_stopped(phase: Any) -> None:
    """And is on demand, listed, and not to end."""
    node = replace(a_node("n"), phase=phase)
    assert may_stop(node) is (phase == "ready")
    for change in ({"market": "spot"}, {"is_listed": False}, {"ends_by": 9.0}, {"gpus": ("a",)}):
        assert not may_stop(replace(node, **change))  # type: ignore[arg-type]
