"""Offers, which of them are closed after refusals, and how launches use them."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.store.memory import MemoryStore
from boa_daemon.testing import Ideal, Wishes, a_job, a_node, a_state, an_instance_type, rules
from boa_daemon.tick.decide.controller import Controller, Ports
from boa_daemon.tick.decide.decision import decide
from boa_daemon.tick.decide.diff import diff
from boa_daemon.tick.facts.actions import LaunchNodes
from boa_daemon.tick.facts.offers import (
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
from boa_daemon.tick.facts.ports import Launched, OpenLaunch, Refused, Unknown
from boa_daemon.tick.money.ledger import bill
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
def test_a_scope_covers_an_offer_if_all_its_parts_match(scope: str, is_covered: bool) -> None:
    """Type, zone and market are compared part by part; a star or a missing part matches everything."""
    assert covers(scope, A.key) is is_covered


def test_cooldowns_double_from_three_to_thirty_minutes_for_the_same_kind_of_refusal() -> None:
    """Another kind of refusal starts again at three minutes, and a time named by the cloud wins."""
    rest, lengths = None, []
    for _ in range(6):
        rest = cooled(rest, kind="no-capacity", at=0.0, retry_after_seconds=None)
        lengths.append(rest.until)
    assert lengths == [180.0, 360.0, 720.0, 1440.0, 1800.0, 1800.0]
    assert cooled(rest, kind="quota", at=0.0, retry_after_seconds=None).until == 180.0
    assert cooled(rest, kind="no-capacity", at=5.0, retry_after_seconds=7.0).until == 12.0


def test_a_refused_order_of_four_nodes_closes_orders_of_three_and_more() -> None:
    """Orders of two stay open; the cooldown is ten minutes first, then twenty."""
    scope = scope_of_gang(A.key, 4)
    assert [covers(scope, A.key, together=nodes) for nodes in (1, 2, 3, 4)] == [False, False, True, True]
    assert covers(scope_of_gang(A.key, 2), A.key, together=2)
    assert not covers(scope_of_gang(A.key, 2), A.key)

    first = cooled(None, kind="no-capacity", at=0.0, retry_after_seconds=None, scope=scope)
    second = cooled(first, kind="no-capacity", at=0.0, retry_after_seconds=None, scope=scope)
    assert (first.until, second.until) == (600.0, 1200.0)


def room(offers: tuple[Offer, ...], cooldowns: dict[str, Cooldown]) -> tuple[float, float]:
    """Return how many nodes may be requested now: in all, and in one order."""
    return room_to_rent("gpu-x4", offers, cooldowns, now=0.0)


def test_all_zones_of_a_market_share_one_quota() -> None:
    """A quota of three in two zones is three nodes; other markets have their own; closed offers add none."""
    a, b = replace(A, nodes_left=3), replace(B, nodes_left=3)
    spot = replace(SPOT, usd_per_hour=1.0, nodes_left=2)
    assert room((a, b), {}) == (3, 3)
    assert room((a, b, spot), {}) == (5, 3)
    assert room((a, b, spot), {"*/*/on-demand": Cooldown(until=9.0)}) == (2, 2)
    assert room((a, b), {"gpu-x4": Cooldown(until=9.0)}) == (0, 0)
    assert room((A, B), {}) == (inf, inf)


def test_closed_wide_orders_limit_the_room_to_the_widest_open_order() -> None:
    """A refused order of four leaves room for two in that zone; the other zone has no limit."""
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


def test_open_offers_are_sorted_by_price_and_offers_without_a_price_are_left_out() -> None:
    """A missing price never counts as zero."""
    assert open_offers("gpu-x4", (A, B, SPOT), {}, now=0.0) == [B, A]

    assert open_offers("gpu-x4", (A, B, SPOT), {"*/b": Cooldown(until=9.0)}, now=0.0) == [A]
    assert open_offers("gpu-x4", (A, B), {"*/b": Cooldown(until=9.0)}, now=9.0) == [B, A]


def test_a_type_is_closed_until_its_first_offer_opens() -> None:
    """One open offer is enough; a quota of zero never opens."""
    cooldowns = {"gpu-x4/a": Cooldown(until=9.0), "gpu-x4/b": Cooldown(until=5.0, kind="quota")}
    assert closed_until("gpu-x4", (A, B, SPOT), {}, now=0.0) is None
    assert closed_until("gpu-x4", (A, B), cooldowns, now=0.0) == cooldowns["gpu-x4/b"]
    none_left = Offer(instance_type="gpu-x4", nodes_left=0)
    closed = closed_until("gpu-x4", (none_left,), {}, now=0.0)
    assert closed is not None
    assert closed.kind == "quota"


def test_an_offer_with_a_price_of_zero_is_an_error() -> None:
    """A missing price is None."""
    with pytest.raises(InvalidProblem, match="costs more than nothing"):
        Offer(instance_type="x", usd_per_hour=0.0)


def launches(state_changes: dict[str, object], widths: dict[str, int]) -> list[LaunchNodes]:
    """Return the launches for jobs of these widths."""
    jobs = [a_job(name, arrived_at=float(number)) for number, name in enumerate(widths)]
    state = a_state(*jobs, **state_changes)  # type: ignore[arg-type]
    plan = decide(state, allocator=Wishes(widths=widths), placer=LeastWorkloadFirst(), rules=rules()).plan
    return [action for action in diff(state, plan) if isinstance(action, LaunchNodes)]


def test_a_job_over_two_nodes_is_launched_as_a_gang_and_small_jobs_are_not() -> None:
    """Eight GPUs on nodes of four need both nodes; for two jobs of four GPUs any node helps."""
    assert [(a.count, a.is_gang) for a in launches({}, {"a": 8})] == [(2, True)]
    assert [(a.count, a.is_gang) for a in launches({}, {"a": 4, "b": 4})] == [(2, False)]
    assert [(a.count, a.is_gang) for a in launches({}, {"a": 8, "b": 4})] == [(2, True), (1, False)]


def test_single_nodes_are_spread_over_quotas_and_gangs_stay_whole() -> None:
    """The cheap zone has one node left: a gang of two goes to the other zone."""
    cheap = Offer(instance_type="gpu-x4", zone="b", usd_per_hour=3.0, nodes_left=1)
    (gang,) = launches({"offers": (A, cheap)}, {"a": 8})
    assert (gang.offer, gang.count) == (A, 2)
    singles = launches({"offers": (A, cheap)}, {"a": 4, "b": 4, "c": 4})
    assert [(action.offer, action.count) for action in singles] == [(cheap, 1), (A, 2)]


def test_launches_share_the_quota_of_a_market_between_zones() -> None:
    """Both zones state three nodes left: three are requested in all."""
    offers = (replace(A, nodes_left=3), replace(B, nodes_left=3))
    asked = launches({"offers": offers}, dict.fromkeys("abcde", 4))
    assert [(action.offer.zone if action.offer else "", action.count) for action in asked] == [("b", 3)]
    assert [a.count for a in launches({"offers": offers}, {"a": 8, "b": 8})] == [2]


def test_a_partly_refused_launch_closes_the_offer_and_waits_for_its_granted_nodes() -> None:
    """Two of three nodes were granted and are expected in the listing."""
    store = MemoryStore()
    store.record_intent(LAUNCH, at=0.0)
    short = Refused(reason="no more", kind="no-capacity")
    store.record_outcome(LAUNCH, Launched(nodes=("n1", "n2"), short=short), at=0.0)
    assert store.cooldowns(1.0) == {"gpu-x4//on-demand": Cooldown(until=180.0)}
    store.record_seen("l", ["n1"])
    assert [launch.unseen for launch in store.unsettled()] == [("n2",)]
    store.record_seen("l", ["n2"])
    assert store.unsettled() == []


def test_a_launch_with_a_lost_answer_counts_with_all_its_nodes_for_five_minutes() -> None:
    """Of three nodes one is listed, so two still count until then."""
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


def test_unseen_nodes_are_those_that_were_granted_and_not_listed() -> None:
    """The launch granted x, y and z, and y is listed."""
    launch = OpenLaunch(action=LAUNCH, at=0.0, nodes=("x", "y", "z"), seen=frozenset({"y"}))
    assert launch.unseen == ("x", "z")


@given(
    steps=st.lists(st.tuples(st.floats(1.0, 1e4), st.floats(0.1, 50.0)), min_size=1, max_size=5),
    seconds=st.floats(0.0, 1e5),
)
def test_each_second_is_billed_at_its_price(steps: list[tuple[float, float]], seconds: float) -> None:
    """The bill is the area under the price curve from launch to end, at least for a minute."""
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


def test_a_type_whose_offers_have_no_price_is_closed_for_a_minute() -> None:
    """The cooldown's kind is `no-price`."""
    rest = closed_until("gpu-x4", (SPOT,), {}, now=100.0)
    assert rest == Cooldown(until=160.0, kind="no-price")
    assert closed_until("gpu-x4", (replace(SPOT, usd_per_hour=1.0),), {}, now=100.0) is None


def test_without_offers_the_type_itself_is_the_offer() -> None:
    """The offer's key names the type and on demand."""
    assert [offer.key for offer in open_offers("gpu-x4", (), {}, now=0.0)] == ["gpu-x4//on-demand"]


def test_a_cooldown_is_over_exactly_at_its_end() -> None:
    """This holds for orders of one node and of several; the longest cooldown that covers an offer counts."""
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


def test_open_offers_are_for_one_node_by_default() -> None:
    """An offer of one node is open to one node and closed to two together."""
    one = replace(A, nodes_left=1)
    assert open_offers("gpu-x4", (one,), {}, now=0.0) == [one]
    assert open_offers("gpu-x4", (one,), {}, now=0.0, together=2) == []
    assert closed_until("gpu-x4", (one,), {}, now=0.0) is None
    none = replace(A, nodes_left=0)
    assert room_to_rent("gpu-x4", (none,), {}, now=0.0) == (0.0, 0.0)
    assert closed_until("gpu-x4", (none,), {}, now=0.0) == Cooldown(until=inf, kind="quota")


def test_the_highest_price_of_a_type_considers_only_its_own_offers() -> None:
    """It is the type's price plus the dearest extras, or an offer above that."""
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
def test_gangs_that_fit_into_the_nodes_are_kept_in_order(
    gangs: tuple[int, ...], nodes: int, kept: tuple[int, ...]
) -> None:
    """A gang that does not fit does not exclude later gangs."""
    assert whole_gangs(gangs, nodes) == kept
