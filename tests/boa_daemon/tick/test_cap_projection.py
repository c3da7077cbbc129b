"""What each cap leaves for nodes that go on, in closed form: dollars are price times time, node by node."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from boa_daemon.testing import a_node, a_state, an_instance_type
from boa_daemon.tick.cap_projection import CapProjection, most_per_second
from boa_daemon.tick.limits import DAY_SECONDS, Caps, FixedCost
from boa_daemon.tick.state import ClusterState, NodeState
from boa_daemon.units import micro_dollars

NOON = 12 * 3600.0
DOLLARS = an_instance_type(gpus=1, usd_per_gpu_hour=3600.0)
"""A node of one dollar a second."""
TIMES: dict[str, Any] = {
    "tick_seconds": 1.0,
    "checkpoint_seconds": 20.0,
    "shutdown_seconds": 300.0,
    "unseen_seconds": 40.0,
    "least_run_seconds": 5000.0,
}
"""A stop takes 321 s, a node that is kept may cost 322 s, one that is launched 5000 s."""


def node(name: str = "n1", *, since: float = NOON - 1000.0, **changes: Any) -> NodeState:
    """Return a ready node of a dollar a second."""
    return replace(a_node(name, kind=DOLLARS, launched_at=since), **changes)


def books(*nodes: NodeState, now: float = NOON, ending: tuple[str, ...] = (), **caps: Any) -> CapProjection:
    """Return the projection at noon; what has been spent so far is told by its caps and nodes."""
    return CapProjection(state(*nodes, now=now), Caps(**TIMES, **caps), ending=ending)


def state(*nodes: NodeState, now: float = NOON, **changes: Any) -> ClusterState:
    """Return a state with nodes."""
    return a_state(nodes=nodes, now=now, **changes)


def left(projection: CapProjection, code: Any = "cap-day") -> float:
    """Return the dollars that are left, without the roundings of five millionths a node."""
    return round(projection.numbers(code)["left_usd"], 3)


def test_a_node_that_is_kept_may_cost_until_the_next_look_can_still_stop_it() -> None:
    """1000 s so far and 322 s to come, of 10,000 dollars."""
    projection = books(node(), usd_per_day=10_000.0)
    assert left(projection) == 10_000.0 - 1000.0 - 322.0
    assert left(books(node(is_listed=False), usd_per_day=10_000.0)) == 10_000.0 - 1000.0 - 322.0
    assert left(books(node(), node("n2"), usd_per_day=10_000.0)) == 10_000.0 - 2 * 1322.0


@pytest.mark.parametrize(
    ("how", "seconds"), [("end", 300.0), ("stop", 321.0), ("wait", 301.0), ("look_ahead", 5000.0)]
)
def test_what_becomes_of_a_node_says_how_long_it_costs(how: str, seconds: float) -> None:
    """Given back now, after its jobs have stopped, at the next look, or not for as long as a launch runs."""
    projection = books(node(), usd_per_day=10_000.0)
    getattr(projection, how)(*([] if how == "look_ahead" else ["n1"]))
    assert left(projection) == 10_000.0 - 1000.0 - seconds


def test_nodes_of_a_plan_that_end_and_those_that_end_already_are_given_back() -> None:
    """300 s each; a terminating one whose end the cloud announced has until then; one that ended, nothing."""
    assert left(books(node(), usd_per_day=10_000.0, ending=("n1",))) == 10_000.0 - 1300.0
    assert left(books(node(phase="terminating"), usd_per_day=10_000.0)) == 10_000.0 - 1300.0
    for ends_by, seconds in ((NOON + 500.0, 500.0), (NOON + 100.0, 300.0)):
        going = node(phase="terminating", ends_by=ends_by)
        assert left(books(going, usd_per_day=10_000.0)) == 10_000.0 - 1000.0 - seconds
    assert left(books(node(ends_by=NOON + 500.0), usd_per_day=10_000.0)) == 10_000.0 - 1322.0
    assert left(books(node(phase="terminated", ended_at=NOON), usd_per_day=10_000.0)) == 10_000.0


def test_one_that_no_listing_shows_may_run_until_it_is_seen() -> None:
    """Launched 10 s ago, a minute is billed; it is seen in 30 s at the latest and then kept for 322."""
    fresh = node(since=NOON - 10.0, is_listed=False)
    assert left(books(fresh, usd_per_day=10_000.0)) == 10_000.0 - 60.0 - (30.0 + 322.0)
    assert left(books(replace(fresh, is_listed=True), usd_per_day=10_000.0)) == 10_000.0 - 60.0 - 322.0


def test_only_the_day_of_now_bears_its_costs() -> None:
    """100 s before midnight 100 s of them fall into today; what is launched costs in both days."""
    late = DAY_SECONDS - 100.0
    projection = books(node(since=late - 1000.0), now=late, usd_per_day=10_000.0)
    assert left(projection) == 10_000.0 - 1100.0
    projection.look_ahead()
    assert left(projection) == 10_000.0 - 4900.0, "tomorrow is the tighter one: 5000 s less today's 100"


def test_bills_standing_costs_and_what_is_paid_anyway_come_first() -> None:
    """Of 10,000: 600 of bills, 24 h at 10 a day's standing, of which 12 h are in bills, and 24 h at 2."""
    caps: dict[str, Any] = {
        "usd_per_day": 10_000.0,
        "standing_usd_per_hour": 10.0,
        "fixed": (FixedCost(name="block", usd_per_hour=2.0),),
    }
    told = state(settled_today_micro_dollars=600_000_000)
    assert left(CapProjection(told, Caps(**TIMES, **caps))) == 10_000.0 - 600.0 - 240.0 - 48.0
    charged = replace(told, standing_charged_until=NOON)
    projection = CapProjection(charged, Caps(**TIMES, **caps))
    assert left(projection) == 10_000.0 - 600.0 - 120.0 - 48.0
    assert projection.numbers("cap-day")["cap_usd"] == 10_000.0 - 240.0 - 48.0


def test_day_and_month_have_a_purse_each_with_bills_of_their_own() -> None:
    """The tighter one says how much room there is."""
    told = state(settled_today_micro_dollars=100_000_000, settled_month_micro_dollars=700_000_000)
    projection = CapProjection(told, Caps(**TIMES, usd_per_day=6000.0, usd_per_month=6500.0))
    assert (left(projection), left(projection, "cap-month")) == (5900.0, 5800.0)
    room, code = projection.room_for(3600.0)
    assert (room, code) == (pytest.approx(5800.0 / 5000.0), "cap-month")


@pytest.mark.parametrize(
    ("caps", "present", "broken"),
    [
        ({"instances": 1}, 2, "cap-instances"),
        ({"instances": 2}, 2, None),
        ({"usd_per_hour": 7199.0}, 2, "cap-hour"),
        ({"usd_per_hour": 7200.0}, 2, None),
        ({"usd_per_hour": 7200.0, "standing_usd_per_hour": 1.0}, 2, "cap-hour"),
        ({"usd_per_day": 1322.0}, 1, "cap-day"),
        ({"usd_per_day": 1322.001}, 1, None),
        ({"usd_per_month": 1322.0}, 1, "cap-month"),
        ({}, 2, None),
    ],
)
def test_which_cap_could_break(caps: dict[str, Any], present: int, broken: str | None) -> None:
    """At the cap it holds; beyond it, by however little, it does not. Money alone is overspent."""
    projection = books(*(node(f"n{at}") for at in range(present)), **caps)
    assert projection.broken == broken
    assert projection.is_overspent == (broken in ("cap-day", "cap-month"))
    for at in range(present):
        projection.end(f"n{at}")
    if broken in ("cap-hour", "cap-instances"):
        assert projection.broken is None


def test_what_is_stopped_is_no_instance_that_runs() -> None:
    """One runs and one is stopped: one instance is allowed, and none more."""
    asleep = node("n2", phase="stopped", prices=((NOON - 1000.0, 0.0),))
    projection = books(node(), asleep, instances=1)
    assert projection.broken is None
    assert projection.room_for(1.0) == (0.0, "cap-instances")
    assert projection.numbers("cap-instances") == {"cap_nodes": 1.0, "present_nodes": 1.0}


def test_room_is_what_every_cap_leaves_and_nodes_that_end_take_it_until_they_are_gone() -> None:
    """Instances, dollars an hour, dollars a day: the least of them, and which it is."""
    projection = books(node(), instances=3, ending=("n1",))
    assert projection.room_for(1.0) == (2.0, "cap-instances")
    hourly = books(node(), usd_per_hour=9000.0, standing_usd_per_hour=600.0, ending=("n1",))
    assert hourly.room_for(1200.0) == (pytest.approx(4800.0 / 1200.0), "cap-hour")
    assert hourly.numbers("cap-hour") == {"cap_usd_per_hour": 9000.0, "usd_per_hour": 4200.0}
    daily = books(usd_per_day=10_000.0)
    assert daily.room_for(3600.0) == (pytest.approx(2.0), "cap-day")
    assert books().room_for(1.0)[0] == float("inf")
    for cap in ({"instances": 1}, {"usd_per_hour": 5000.0}, {"usd_per_day": 1000.0}):
        assert books(node(), node("n2"), **cap).room_for(1.0)[0] == 0.0


def test_what_is_launched_takes_its_room() -> None:
    """Two nodes of half a dollar a second for 5000 s, of each cap."""
    projection = books(usd_per_day=10_000.0, usd_per_hour=9000.0, instances=5)
    projection.add(1800.0, 2)
    assert left(projection) == 5000.0
    assert projection.numbers("cap-hour")["usd_per_hour"] == 3600.0
    assert projection.numbers("cap-instances")["present_nodes"] == 2.0
    assert projection.room_for(1800.0) == (pytest.approx(2.0), "cap-day")
    projection.add(1800.0, 3)
    assert (projection.broken, projection.is_overspent) == ("cap-day", True)


def test_a_launch_just_before_midnight_bears_the_minimum_today_and_the_rest_tomorrow() -> None:
    """10 s are left of today: a minute is billed there, and 4990 s fall into tomorrow."""
    projection = books(now=DAY_SECONDS - 10.0, usd_per_day=10_000.0)
    projection.add(3600.0, 1)
    assert left(projection) == 10_000.0 - 4990.0
    assert projection.room_for(3600.0) == (pytest.approx(5010.0 / 4990.0), "cap-day")
    tight = books(now=DAY_SECONDS - 10.0, usd_per_day=10_000.0, fixed=())
    tight.add(3600.0 * 150.0, 1)
    assert left(tight) == pytest.approx(10_000.0 - 150.0 * 4990.0)


def test_money_lasts_until_what_stays_has_spent_it() -> None:
    """10,000 less 1000 and 322: at a dollar a second the rest lasts 8678 s; at two nodes half of less."""
    projection = books(node(), usd_per_day=10_000.0)
    assert projection.dry_at == pytest.approx(NOON + 8678.0, abs=0.01)
    assert books(node(), node("n2"), usd_per_day=10_000.0).dry_at == pytest.approx(NOON + 3678.0, abs=0.01)
    assert books(usd_per_day=10_000.0).dry_at is None
    assert books(node()).dry_at is None
    assert books(node(), usd_per_day=1000.0).dry_at == NOON + 1.0
    gone = books(node(), usd_per_day=10_000.0, ending=("n1",))
    assert gone.dry_at is None


def test_where_today_suffices_the_next_day_may_not() -> None:
    """50,000 a day: today's 43,200 s are paid, tomorrow's money lasts 50,000 s less what a stop takes."""
    projection = books(node(), usd_per_day=50_000.0)
    assert projection.dry_at == pytest.approx(DAY_SECONDS + 50_000.0 - 322.0, abs=0.01)


def test_room_comes_with_the_next_look_or_the_next_window() -> None:
    """The day, the month, or a second from now where a node goes or comes."""
    projection = books(node(), usd_per_day=10_000.0, usd_per_month=10_000.0)
    assert projection.opens_at(["cap-day"], is_moving=False) == DAY_SECONDS
    assert projection.opens_at(["cap-month"], is_moving=False) == 31 * DAY_SECONDS
    assert projection.opens_at(["cap-day", "cap-month"], is_moving=False) == DAY_SECONDS
    assert projection.opens_at(["cap-hour"], is_moving=False) is None
    assert projection.opens_at(["cap-hour"], is_moving=True) == NOON + 1.0
    projection.end("n1")
    assert projection.opens_at([], is_moving=False) == NOON + 1.0


def test_a_node_costs_its_minimum_even_if_it_goes_at_once() -> None:
    """Launched this second, and a shutdown takes ten: a minute all the same."""
    quick = Caps(**(TIMES | {"shutdown_seconds": 10.0, "usd_per_day": 10_000.0}))
    projection = CapProjection(state(node(since=NOON)), quick, ending=("n1",))
    assert left(projection) == 10_000.0 - 60.0


def test_spot_may_come_to_cost_what_on_demand_does() -> None:
    """A dollar a second on demand; on spot a tenth now, and its disk beside it."""
    disk = (("disk", 36.0),)
    cheap = node(market="spot", prices=((0.0, 360.0),), extras=disk)
    assert most_per_second(cheap) == pytest.approx(micro_dollars(1.01))
    assert most_per_second(replace(cheap, market="on-demand")) == pytest.approx(micro_dollars(0.11))
    dear = replace(cheap, prices=((0.0, 7200.0),))
    assert most_per_second(dear) == pytest.approx(micro_dollars(2.01))
