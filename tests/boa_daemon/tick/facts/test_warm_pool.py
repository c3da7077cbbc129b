"""The warm pool: which nodes are stopped instead of ended, which stopped ones end, and which start first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from drafts import a_plan
from followers import Known

from boa_daemon.testing import Wishes, a_job, a_node, a_state, an_instance_type, rules, some_slots
from boa_daemon.tick.decide.decision import Decision, decide
from boa_daemon.tick.facts.actions import LaunchNodes, TerminateNode
from boa_daemon.tick.facts.draft import Draft
from boa_daemon.tick.facts.limits import DAY_SECONDS, Caps
from boa_daemon.tick.facts.offers import Offer
from boa_daemon.tick.facts.state import ClusterState, NodeState, WarmPool
from boa_daemon.tick.facts.warm_pool import (
    PoolStarts,
    PoolWorth,
    disk_extras,
    may_stop,
    stopped_node_expiries,
)
from boa_daemon.tick.stages.end.keep_warm import keep_warm
from policies.answer import NodeRetention
from policies.placement.first_fit import FirstFit

NOON = 12 * 3600.0
DISK = 0.02


def asleep(name: str = "i-1~2", *, since: float = NOON - 600.0, **changes: Any) -> NodeState:
    """Return a stopped node of four GPUs."""
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
    """Return the decision of a site with a pool, under a policy without prices."""
    site = rules(caps=caps, warm_pool=None if pool is None else WarmPool(nodes=pool))
    return decide(state, allocator=Wishes(widths=widths), placer=FirstFit(), rules=site)


def ends(decision: Decision) -> dict[str, bool]:
    """Return the nodes that are given back, and whether they are stopped instead of ended."""
    return {each.node: each.stops for each in decision.actions if isinstance(each, TerminateNode)}


def idle(name: str, **changes: Any) -> NodeState:
    """Return a node whose idle hold is over."""
    return replace(a_node(name, idle_since=NOON - 3600.0), **changes)


def test_idle_nodes_are_stopped_until_the_pool_is_full() -> None:
    """The pool holds two of three nodes; without a pool all end."""
    state = a_state(nodes=[idle("i-1"), idle("i-2"), idle("i-3")], now=NOON)

    assert sorted(ends(decided(state)).values()) == [False, True, True]
    assert set(ends(decided(state, pool=None)).values()) == {False}
    with_one = replace(state, nodes={**state.nodes, "i-4~2": asleep("i-4~2")})
    assert sorted(ends(decided(with_one)).values()) == [False, False, True]


@pytest.mark.parametrize("change", [{"market": "spot"}, {"ends_by": NOON + 60.0}])
def test_spot_nodes_and_ending_nodes_are_ended_and_not_stopped(change: dict[str, Any]) -> None:
    """EC2 does not stop our spot instances, and an ending node must not come back."""
    assert ends(decided(a_state(nodes=[idle("i-1", **change)], now=NOON))) == {"i-1": False}


def test_without_a_pool_stopped_nodes_end() -> None:
    """So `warm_pool_nodes = 0` and `boa down` leave nothing behind; the reason says why."""
    decision = decided(a_state(nodes=[asleep()], now=NOON), pool=None)

    [order] = decision.actions
    assert isinstance(order, TerminateNode)
    assert (order.node, order.stops) == ("i-1~2", False)
    assert order.reason == "stopped for 10.0 min, and not worth its disk"


def test_a_stopped_node_ends_when_its_disk_has_cost_as_much_as_the_idle_hold() -> None:
    """60 s at 4 USD per hour are 12,000 s at 0.02 USD per hour; the plan wakes up then."""
    young = asleep(since=NOON - 11_000.0)
    decision = decided(a_state(nodes=[young], now=NOON))
    assert ends(decision) == {}
    assert decision.wake_at == pytest.approx(NOON + 1000.0)

    assert ends(decided(a_state(nodes=[asleep(since=NOON - 12_001.0)], now=NOON))) == {"i-1~2": False}


def launches(decision: Decision) -> list[LaunchNodes]:
    """Return the launches."""
    return [each for each in decision.actions if isinstance(each, LaunchNodes)]


def test_a_launch_starts_stopped_nodes_first() -> None:
    """Two nodes are wanted and one is stopped: it is started, however old it is."""
    state = a_state(a_job("a"), nodes=[asleep(since=NOON - 20_000.0)], now=NOON)
    decision = decided(state, a=8)

    [order] = launches(decision)
    assert (order.count, order.starts) == (2, ("i-1~2",))
    assert "asked for now: 2, stopped and started first: 1 of 1" in decision.explain("a")
    assert ends(decision) == {}


def test_a_stopped_node_is_started_only_in_the_zone_of_the_chosen_offer() -> None:
    """Among offers of one price the zone with a stopped node comes first; a dearer zone does not."""
    offers = [Offer(instance_type="gpu-x4", zone=zone, usd_per_hour=4.0) for zone in ("a", "b")]
    state = a_state(a_job("a"), nodes=[asleep(zone="b")], now=NOON, offers=tuple(offers))
    [order] = launches(decided(state, a=4))
    assert (order.offer, order.starts) == (offers[1], ("i-1~2",))

    dearer = (offers[0], replace(offers[1], usd_per_hour=5.0))
    [order] = launches(decided(replace(state, offers=dearer), a=4))
    assert (order.offer, order.starts) == (dearer[0], ())


def test_a_stopped_node_does_not_count_towards_the_cap_on_instances() -> None:
    """With a cap of one instance the stopped node is started."""
    state = a_state(a_job("a"), nodes=[asleep()], now=NOON)
    decision = decided(state, caps=Caps(instances=1, usd_per_day=1000.0), a=4)

    assert [order.starts for order in launches(decision)] == [("i-1~2",)]


def test_a_node_is_not_stopped_if_a_cap_cannot_pay_for_its_disk() -> None:
    """The disk must be paid for 900 s at 0.0219 USD per hour."""
    state = a_state(nodes=[idle("i-1")], now=NOON)
    billed = 12.0 * 4.0 * 1e6  # From midnight to noon.
    assert ends(decided(state, caps=Caps(usd_per_day=(billed + 2e6) / 1e6))) == {"i-1": True}
    assert ends(decided(state, caps=Caps(usd_per_day=(billed + 0.102e6) / 1e6))) == {"i-1": False}


def test_a_stopped_node_ends_before_its_disk_breaks_a_cap() -> None:
    """Almost nothing is left of the day's cap."""
    state = a_state(nodes=[asleep()], now=NOON, settled_today_micro_dollars=9_999_900)
    decision = decided(state, caps=Caps(usd_per_day=10.0))

    assert ends(decision) == {"i-1~2": False}
    assert decision.wake_at is not None
    assert decision.wake_at <= DAY_SECONDS


class Priced(Known):
    """A policy that knows what a stopped node is worth."""

    def warm(self, gpu_type: str, *, saved_hours: float, share: float) -> NodeRetention:
        """Return one node, kept longer the cheaper its disk is."""
        assert saved_hours == pytest.approx(120.0 / 3600.0)
        return NodeRetention(nodes=1, seconds=10.0 / share)


def test_the_policy_decides_how_many_nodes_are_stopped_and_for_how_long() -> None:
    """A boot takes 180 s and a start 60 s; the policy keeps one node, for 10 s over the disk's share."""
    site = rules(warm_pool=WarmPool(nodes=5, disk_usd_per_hour=DISK))
    state = a_state(nodes=[idle("i-1"), idle("i-2")], now=NOON)
    policy = Priced(widths={})

    decision = decide(state, allocator=policy, placer=FirstFit(), rules=site)
    assert sorted(ends(decision).values()) == [False, True]
    for age, is_over in ((1_990.0, False), (2_010.0, True)):
        old = a_state(nodes=[asleep(since=NOON - age)], now=NOON)
        decision = decide(old, allocator=policy, placer=FirstFit(), rules=site)
        assert bool(ends(decision)) == is_over


def test_a_job_is_not_placed_on_a_stopped_node() -> None:
    """It starts on the ready node."""
    state = a_state(a_job("a"), nodes=[asleep(), a_node("i-2")], now=NOON)
    decision = decided(state, a=4)

    assert decision.plan.jobs.slots == {"a": some_slots("i-2", 0, 1, 2, 3)}


def test_a_launch_is_paid_before_the_disk_of_a_stopped_node() -> None:
    """If the cap is already broken, or the launch takes the rest of it, no node is stopped."""
    other = an_instance_type(gpu_type="other", usd_per_gpu_hour=10.0)
    state = a_state(a_job("a"), nodes=[idle("i-1")], now=NOON)
    billed = 12.0 * 4.0
    kept = {}
    for left in (-1.0, 1.0, 60.0):
        site = rules(warm_pool=WarmPool(nodes=1), caps=Caps(usd_per_day=billed + left))
        plan = a_plan(
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
def test_a_stopped_node_is_kept_for_the_cost_of_the_idle_hold_and_at_most_a_day(
    pool: int, gpu_type: str, disk: float, hold: NodeRetention
) -> None:
    """The idle hold is 60 s at 4 USD per hour; types that the settings do not name are not kept."""
    worth = PoolWorth.of(rules(warm_pool=WarmPool(nodes=pool)), None)
    assert worth.hold(an_instance_type(gpu_type=gpu_type), disk) == hold
    nothing = PoolWorth.of(rules(warm_pool=WarmPool(nodes=2), idle_hold_seconds=0.0), None)
    assert nothing.hold(an_instance_type(), 0.02) == NodeRetention(nodes=0, seconds=0.0)


def test_stopped_nodes_beyond_the_size_of_the_pool_expire_at_once() -> None:
    """The pool holds two: a node that stays anyway takes a place, and a node that is too old takes none."""
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


def test_stopped_nodes_in_the_zone_of_an_offer_start_youngest_first_and_once() -> None:
    """Nodes of another type or zone, running or released nodes, and spot offers are excluded."""
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


def test_among_offers_of_equal_price_those_with_a_stopped_node_come_first() -> None:
    """A cheaper offer still comes before them."""
    offers = [
        Offer(instance_type="gpu-x4", zone=zone, usd_per_hour=usd)
        for zone, usd in (("a", 3.0), ("b", 4.0), ("x", 4.0))
    ]
    state = a_state(nodes=[asleep("s", zone="x")], offers=tuple(offers), now=NOON)
    assert [offer.zone for offer in PoolStarts(state, a_plan()).first(offers)] == ["a", "x", "b"]
    empty = PoolStarts(replace(state, nodes={}), a_plan())
    assert [offer.zone for offer in empty.first(offers)] == ["a", "b", "x"]


def test_a_stopped_node_costs_only_its_disk() -> None:
    """Without a disk among the extras the given price is used."""
    assert disk_extras((("address", 0.5), ("disk", 0.02)), otherwise=0.1) == (("disk", 0.02),)
    assert disk_extras((("address", 0.5),), otherwise=0.1) == (("disk", 0.1),)


@pytest.mark.parametrize("phase", ["ready", "requested", "stopped", "terminating"])
def test_only_a_ready_empty_node_can_be_stopped(phase: Any) -> None:
    """It must also be on demand, listed, and without an announced end."""
    node = replace(a_node("n"), phase=phase)
    assert may_stop(node) is (phase == "ready")
    for change in ({"market": "spot"}, {"is_listed": False}, {"ends_by": 9.0}, {"gpus": ("a",)}):
        assert not may_stop(replace(node, **change))  # type: ignore[arg-type]
