"""Which nodes are stopped rather than ended, which stopped ones end, and which are started first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from followers import Known

from boa_daemon.testing import Wishes, a_job, a_node, a_state, an_instance_type, rules, some_slots
from boa_daemon.tick.actions import LaunchNodes, TerminateNode
from boa_daemon.tick.decision import Decision, decide
from boa_daemon.tick.draft import Draft
from boa_daemon.tick.limits import DAY_SECONDS, Caps
from boa_daemon.tick.offers import Offer
from boa_daemon.tick.stages.keep_warm import keep_warm
from boa_daemon.tick.state import ClusterState, NodeState, Plan, WarmPool
from policies.answer import Hold
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

    def warm(self, gpu_type: str, *, saved_hours: float, share: float) -> Hold:
        """Return one node, for as many seconds as its disk is cheap."""
        assert saved_hours == pytest.approx(120.0 / 3600.0)
        return Hold(nodes=1, seconds=10.0 / share)


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
