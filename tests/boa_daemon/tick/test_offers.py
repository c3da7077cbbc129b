"""Facts about boa_daemon.tick.offers, and how launches use them."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.store.memory import MemoryStore
from boa_daemon.testing import Ideal, Wishes, a_job, a_node, a_state, an_instance_type, rules
from boa_daemon.tick.actions import LaunchNodes
from boa_daemon.tick.controller import Controller, Ports
from boa_daemon.tick.decision import decide
from boa_daemon.tick.diff import diff
from boa_daemon.tick.ledger import bill
from boa_daemon.tick.offers import (
    Cooldown,
    Offer,
    closed_until,
    closes_wide_orders,
    closing,
    cooled,
    covers,
    most_usd_per_hour,
    open_offers,
    room_to_rent,
    scope_of_gang,
    whole_gangs,
)
from boa_daemon.tick.ports import Launched, OpenLaunch, Refused, Unknown
from policies.errors import InvalidProblem
from policies.placement.lwf import LeastWorkloadFirst

A = Offer(instance_type="gpu-x4", zone="a", usd_per_hour=4.0)
B = Offer(instance_type="gpu-x4", zone="b", usd_per_hour=3.0)
SPOT = Offer(instance_type="gpu-x4", zone="a", market="spot", usd_per_hour=None)
LAUNCH = LaunchNodes(id="l", instance_type=an_instance_type(), reason="test", count=3)


@pytest.mark.parametrize(
    ("scope", "is_covered"),
    [
        ("gpu-x4", True),
        ("gpu-x4/a/on-demand/1", True),
        ("gpu-x4/a/on-demand/2", False),
        ("gpu-x4/a", True),
        ("gpu-x4/*/on-demand", True),
        ("*/a", True),
        ("*", True),
        ("gpu-x4/b", False),
        ("*/*/spot", False),
        ("gpu", False),
    ],
)
def test_a_scope_leaves_parts_out_or_stars_them(scope: str, is_covered: bool) -> None:
    """Type, zone and market are compared part by part."""
    assert covers(scope, A.key) is is_covered


def test_cooldowns_double_from_three_minutes_to_thirty_while_the_reason_stays() -> None:
    """180, 360, 720, 1440, 1800, 1800; another kind of refusal starts anew, and a said time wins."""
    rest, lengths = None, []
    for _ in range(6):
        rest = cooled(rest, kind="no-capacity", at=0.0, retry_after_seconds=None)
        lengths.append(rest.until)
    assert lengths == [180.0, 360.0, 720.0, 1440.0, 1800.0, 1800.0]
    assert cooled(rest, kind="quota", at=0.0, retry_after_seconds=None).until == 180.0
    assert cooled(rest, kind="no-capacity", at=5.0, retry_after_seconds=7.0).until == 12.0


def test_an_order_that_was_too_wide_leaves_half_of_it_open() -> None:
    """Four together were not to be had: three are not asked for, two are; ten minutes first, then twice."""
    scope = scope_of_gang(A.key, 4)
    assert [covers(scope, A.key, together=nodes) for nodes in (1, 2, 3, 4)] == [False, False, True, True]
    assert covers(scope_of_gang(A.key, 2), A.key, together=2)
    assert not covers(scope_of_gang(A.key, 2), A.key)

    first = cooled(None, kind="no-capacity", at=0.0, retry_after_seconds=None, scope=scope)
    second = cooled(first, kind="no-capacity", at=0.0, retry_after_seconds=None, scope=scope)
    assert (first.until, second.until) == (600.0, 1200.0)


def room(offers: tuple[Offer, ...], cooldowns: dict[str, Cooldown]) -> tuple[float, float]:
    """Return how many nodes may be asked for now: in all, and in one order."""
    return room_to_rent("gpu-x4", offers, cooldowns, now=0.0)


def test_a_quota_is_one_for_all_zones_of_its_market() -> None:
    """Three by quota in two zones are three; another market has its own; what is closed has none."""
    a, b = replace(A, nodes_left=3), replace(B, nodes_left=3)
    spot = replace(SPOT, usd_per_hour=1.0, nodes_left=2)
    assert room((a, b), {}) == (3, 3)
    assert room((a, b, spot), {}) == (5, 3)
    assert room((a, b, spot), {"*/*/on-demand": Cooldown(until=9.0)}) == (2, 2)
    assert room((a, b), {"gpu-x4": Cooldown(until=9.0)}) == (0, 0)
    assert room((A, B), {}) == (inf, inf)


def test_where_wide_orders_are_closed_no_more_is_there_than_the_widest_that_is_open() -> None:
    """Four were refused in one zone: two there; the other zone has no limit until it refuses as well."""
    in_a, in_b = (
        {scope_of_gang(A.key, 4): Cooldown(until=9.0)},
        {scope_of_gang(B.key, 8): Cooldown(until=9.0)},
    )
    assert room((A,), in_a) == (2, 2)
    assert room((A, B), in_a) == (inf, inf)
    assert room((A, B), in_a | in_b) == (6, 4)
    assert open_offers("gpu-x4", (A, B), in_a, now=0.0, together=4) == [B]
    assert closed_until("gpu-x4", (A,), in_a, now=0.0) is None
    assert closed_until("gpu-x4", (A,), in_a, now=0.0, together=4) == Cooldown(until=9.0)


def test_the_cheapest_open_offer_comes_first_and_one_without_a_price_is_closed() -> None:
    """A price that nobody knows is never taken for zero, and nothing is rented at it."""
    assert open_offers("gpu-x4", (A, B, SPOT), {}, now=0.0) == [B, A]

    assert open_offers("gpu-x4", (A, B, SPOT), {"*/b": Cooldown(until=9.0)}, now=0.0) == [A]
    assert open_offers("gpu-x4", (A, B), {"*/b": Cooldown(until=9.0)}, now=9.0) == [B, A]


def test_a_type_is_closed_until_its_first_offer_opens() -> None:
    """One open offer is enough; with none the first to open counts; a quota of none never opens."""
    cooldowns = {"gpu-x4/a": Cooldown(until=9.0), "gpu-x4/b": Cooldown(until=5.0, kind="quota")}
    assert closed_until("gpu-x4", (A, B, SPOT), {}, now=0.0) is None
    assert closed_until("gpu-x4", (A, B), cooldowns, now=0.0) == cooldowns["gpu-x4/b"]
    none_left = Offer(instance_type="gpu-x4", nodes_left=0)
    closed = closed_until("gpu-x4", (none_left,), {}, now=0.0)
    assert closed is not None
    assert closed.kind == "quota"


def test_an_offer_costs_something() -> None:
    """Zero dollars is a missing price, and a missing price is None."""
    with pytest.raises(InvalidProblem, match="costs more than nothing"):
        Offer(instance_type="x", usd_per_hour=0.0)


def launches(state_changes: dict[str, object], widths: dict[str, int]) -> list[LaunchNodes]:
    """Return what is rented for jobs of the given widths."""
    jobs = [a_job(name, arrived_at=float(number)) for number, name in enumerate(widths)]
    state = a_state(*jobs, **state_changes)  # type: ignore[arg-type]
    plan = decide(state, allocator=Wishes(widths=widths), placer=LeastWorkloadFirst(), rules=rules()).plan
    return [action for action in diff(state, plan) if isinstance(action, LaunchNodes)]


def test_a_job_over_two_nodes_asks_for_a_gang_and_small_jobs_do_not() -> None:
    """Eight GPUs on nodes of four: both or none; two jobs of four: any part helps."""
    assert [(a.count, a.is_gang) for a in launches({}, {"a": 8})] == [(2, True)]
    assert [(a.count, a.is_gang) for a in launches({}, {"a": 4, "b": 4})] == [(2, False)]
    assert [(a.count, a.is_gang) for a in launches({}, {"a": 8, "b": 4})] == [(2, True), (1, False)]


def test_quotas_spread_nodes_over_offers_but_keep_gangs_whole() -> None:
    """One node left in the cheap zone: a gang of two goes to the other, single nodes use both."""
    cheap = Offer(instance_type="gpu-x4", zone="b", usd_per_hour=3.0, nodes_left=1)
    (gang,) = launches({"offers": (A, cheap)}, {"a": 8})
    assert (gang.offer, gang.count) == (A, 2)
    singles = launches({"offers": (A, cheap)}, {"a": 4, "b": 4, "c": 4})
    assert [(action.offer, action.count) for action in singles] == [(cheap, 1), (A, 2)]


def test_zones_share_the_quota_of_their_market() -> None:
    """Three nodes left, said of both zones: three are asked for, and not three of each."""
    offers = (replace(A, nodes_left=3), replace(B, nodes_left=3))
    asked = launches({"offers": offers}, dict.fromkeys("abcde", 4))
    assert [(action.offer.zone if action.offer else "", action.count) for action in asked] == [("b", 3)]
    assert [a.count for a in launches({"offers": offers}, {"a": 8, "b": 8})] == [2]


def test_a_partial_grant_waits_for_its_nodes_and_rests_the_offer() -> None:
    """Two of three: two are to be seen, and the offer cools down."""
    store = MemoryStore()
    store.record_intent(LAUNCH, at=0.0)
    short = Refused(reason="no more", kind="no-capacity")
    store.record_outcome(LAUNCH, Launched(nodes=("n1", "n2"), short=short), at=0.0)
    assert store.cooldowns(1.0) == {"gpu-x4//on-demand": Cooldown(until=180.0)}
    store.record_seen("l", ["n1"])
    assert [launch.unseen for launch in store.unsettled()] == [("n2",)]
    store.record_seen("l", ["n2"])
    assert store.unsettled() == []


def test_a_lost_answer_counts_as_all_its_nodes_until_they_are_seen_or_given_up() -> None:
    """Three may exist; one shows up; two still count, and after five minutes no longer."""
    store, world = MemoryStore(), Ideal(a_state())
    store.record_intent(LAUNCH, at=0.0)
    store.record_outcome(LAUNCH, Unknown(reason="connection reset"), at=0.0)
    world.nodes_by_id["n1"] = a_node("n1")
    ports = Ports(clock=world.clock, cloud=world, jobs=world, engine=world, store=store)
    controller = Controller(
        allocator=Wishes(widths={}), placer=LeastWorkloadFirst(), rules=rules(), ports=ports
    )
    assert len(controller.observe().nodes) == 4
    store.record_seen("l", ["n1"])
    assert sorted(controller.observe().nodes) == ["l/1", "l/2", "n1"]
    world.clock.instant = 301.0
    assert sorted(controller.observe().nodes) == ["n1"]
    assert store.unsettled() == []


def test_answered_launches_are_known_by_their_names() -> None:
    """What the answer named and no listing has shown."""
    launch = OpenLaunch(action=LAUNCH, at=0.0, nodes=("x", "y", "z"), seen=frozenset({"y"}))
    assert launch.unseen == ("x", "z")


@given(
    steps=st.lists(st.tuples(st.floats(1.0, 1e4), st.floats(0.1, 50.0)), min_size=1, max_size=5),
    seconds=st.floats(0.0, 1e5),
)
def test_each_second_is_billed_at_its_price(steps: list[tuple[float, float]], seconds: float) -> None:
    """The bill is the area under the price from launch to end, at least a minute of it."""
    prices, at = [(0.0, steps[0][1])], 0.0
    for gap, price in steps[1:]:
        at += gap
        prices.append((at, price))
    from dataclasses import replace

    node = replace(a_node(launched_at=0.0), prices=tuple(prices))
    until = max(seconds, 60.0)
    ends = [min(until, start) for start, _ in prices[1:]] + [until]
    area = sum(
        max(0.0, end - min(until, start)) * price for (start, price), end in zip(prices, ends, strict=True)
    )
    assert bill(node, until=seconds) == pytest.approx(area * 1e6 / 3600.0, abs=1.0)


def test_without_any_price_a_type_waits_for_one() -> None:
    """It is looked at again after a minute, and the reason is the price."""
    rest = closed_until("gpu-x4", (SPOT,), {}, now=100.0)
    assert rest == Cooldown(until=160.0, kind="no-price")
    assert closed_until("gpu-x4", (replace(SPOT, usd_per_hour=1.0),), {}, now=100.0) is None


def test_a_cloud_that_names_no_prices_rents_at_the_types_own() -> None:
    """Without any offers the type's price holds."""
    assert [offer.key for offer in open_offers("gpu-x4", (), {}, now=0.0)] == ["gpu-x4//on-demand"]


def test_a_rest_is_over_at_its_end() -> None:
    """Orders of one node or of several; the longest of those that close an offer counts."""
    for scope, together in (("gpu-x4", 1), ("gpu-x4/a/on-demand/2", 2)):
        rests = {scope: Cooldown(until=60.0), "gpu-x4/b": Cooldown(until=90.0)}
        for now, is_open in ((59.0, False), (60.0, True), (61.0, True)):
            assert (closing(rests, A.key, now=now, together=together) is None) is is_open
            in_one_order = room_to_rent("gpu-x4", (A,), rests, now=now)[1]
            assert in_one_order == (inf if is_open else 0.0 if together == 1 else 1.0)
    both = {"gpu-x4": Cooldown(until=60.0), "*": Cooldown(until=90.0)}
    assert closing(both, A.key, now=0.0) == both["*"]
    assert not closes_wide_orders(["gpu-x4", "gpu-x4/a/on-demand", "gpu-x4/a/on-demand/1"])
    assert closes_wide_orders(["gpu-x4", "gpu-x4/a/on-demand/2"])


def test_what_nobody_says_how_many_is_asked_for_one_by_one() -> None:
    """An offer of one node is open to an order that does not say, and closed to one of two."""
    one = replace(A, nodes_left=1)
    assert open_offers("gpu-x4", (one,), {}, now=0.0) == [one]
    assert open_offers("gpu-x4", (one,), {}, now=0.0, together=2) == []
    assert closed_until("gpu-x4", (one,), {}, now=0.0) is None
    none = replace(A, nodes_left=0)
    assert room_to_rent("gpu-x4", (none,), {}, now=0.0) == (0.0, 0.0)
    assert closed_until("gpu-x4", (none,), {}, now=0.0) == Cooldown(until=inf, kind="quota")


def test_the_most_that_a_node_may_cost_is_over_its_own_offers() -> None:
    """Its type's price with the dearest extras, or an offer above that; others are other types' offers."""
    kind = an_instance_type(gpus=1, usd_per_gpu_hour=0.5)
    mine = Offer(instance_type="gpu-x1", usd_per_hour=0.25, market="spot", extras=(("disk", 0.125),))
    assert most_usd_per_hour(kind, ()) == 0.5
    assert most_usd_per_hour(kind, (replace(mine, usd_per_hour=None, extras=()),)) == 0.5
    assert most_usd_per_hour(kind, (mine, A, replace(A, instance_type="a"))) == 0.5 + 0.125
    assert most_usd_per_hour(kind, (mine, replace(mine, usd_per_hour=2.0))) == 2.0


@pytest.mark.parametrize(
    ("gangs", "nodes", "kept"),
    [((2, 3), 4, (2,)), ((2, 3), 5, (2, 3)), ((3, 2), 2, (2,)), ((2, 2, 2), 4, (2, 2)), ((2,), 1, ())],
)
def test_gangs_are_kept_as_a_whole_as_far_as_nodes_go(
    gangs: tuple[int, ...], nodes: int, kept: tuple[int, ...]
) -> None:
    """In their order; one that does not fit keeps no later one out."""
    assert whole_gangs(gangs, nodes) == kept
