"""What each cap leaves for nodes that go on, in closed form: each node costs price times time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from boa_daemon.testing import a_node, a_state, an_instance_type
from boa_daemon.tick.facts.limits import DAY_SECONDS, Caps, FixedCost
from boa_daemon.tick.facts.state import ClusterState, NodeState
from boa_daemon.tick.money.cap_projection import CapProjection, most_per_second
from boa_daemon.units import micro_dollars

NOON = 12 * 3600.0
DOLLARS = an_instance_type(gpus=1, usd_per_gpu_hour=3600.0)
"""A node of one dollar a second."""
TIMES: dict[str, Any] = {
    "tick_seconds": 1.0,
    "checkpoint_seconds": 20.0,
    "refused_seconds": 200.0,
    "shutdown_seconds": 99.0,
    "unseen_seconds": 40.0,
    "least_run_seconds": 5000.0,
}
"""An end takes 300 s with the tick that tries it again, a stop 321 s; a node that is kept may cost 322 s, one
that is launched 5000 s."""


def node(name: str = "n1", *, since: float = NOON - 1000.0, **changes: Any) -> NodeState:
    """Return a ready node that costs one dollar per second."""
    return replace(a_node(name, kind=DOLLARS, launched_at=since), **changes)


def books(*nodes: NodeState, now: float = NOON, ending: tuple[str, ...] = (), **caps: Any) -> CapProjection:
    """Return the projection at noon under these caps."""
    return CapProjection(state(*nodes, now=now), Caps(**TIMES, **caps), ending=ending)


def state(*nodes: NodeState, now: float = NOON, **changes: Any) -> ClusterState:
    """Return a state with these nodes."""
    return a_state(nodes=nodes, now=now, **changes)


def left(projection: CapProjection, code: Any = "cap-day") -> float:
    """Return the dollars that are left, without rounding errors of a few micro-dollars per node."""
    return round(projection.numbers(code)["left_usd"], 3)


def test_a_kept_node_counts_until_the_next_tick_could_have_stopped_it() -> None:
    """It has cost 1000 s so far and may cost 322 s more, out of 10,000 dollars."""
    projection = books(node(), usd_per_day=10_000.0)
    assert left(projection) == 10_000.0 - 1000.0 - 322.0
    assert left(books(node(is_listed=False), usd_per_day=10_000.0)) == 10_000.0 - 1000.0 - 322.0
    assert left(books(node(), node("n2"), usd_per_day=10_000.0)) == 10_000.0 - 2 * 1322.0


@pytest.mark.parametrize(
    ("how", "seconds"), [("end", 300.0), ("stop", 321.0), ("wait", 301.0), ("look_ahead", 5000.0)]
)
def test_how_long_a_node_may_cost_depends_on_how_it_ends(how: str, seconds: float) -> None:
    """It ends now, after its jobs have stopped, at the next tick, or runs on as long as a launch."""
    projection = books(node(), usd_per_day=10_000.0)
    getattr(projection, how)(*([] if how == "look_ahead" else ["n1"]))
    assert left(projection) == 10_000.0 - 1000.0 - seconds


def test_released_and_terminating_nodes_count_until_their_shutdown_is_over() -> None:
    """A shutdown takes 300 s or until the announced end; a terminated node costs nothing."""
    assert left(books(node(), usd_per_day=10_000.0, ending=("n1",))) == 10_000.0 - 1300.0
    assert left(books(node(phase="terminating"), usd_per_day=10_000.0)) == 10_000.0 - 1300.0
    for ends_by, seconds in ((NOON + 500.0, 500.0), (NOON + 100.0, 300.0)):
        going = node(phase="terminating", ends_by=ends_by)
        assert left(books(going, usd_per_day=10_000.0)) == 10_000.0 - 1000.0 - seconds
    assert left(books(node(ends_by=NOON + 500.0), usd_per_day=10_000.0)) == 10_000.0 - 1322.0
    assert left(books(node(phase="terminated", ended_at=NOON), usd_per_day=10_000.0)) == 10_000.0


def test_an_unlisted_node_counts_until_it_is_listed_and_then_as_a_kept_node() -> None:
    """It was launched 10 s ago: a minute is billed, it is listed within 30 s, and is then kept for 322 s."""
    fresh = node(since=NOON - 10.0, is_listed=False)
    assert left(books(fresh, usd_per_day=10_000.0)) == 10_000.0 - 60.0 - (30.0 + 322.0)
    assert left(books(replace(fresh, is_listed=True), usd_per_day=10_000.0)) == 10_000.0 - 60.0 - 322.0


def test_costs_after_midnight_count_against_the_cap_of_the_next_day() -> None:
    """A node kept 100 s before midnight costs today 100 s; a launch also counts against tomorrow."""
    late = DAY_SECONDS - 100.0
    projection = books(node(since=late - 1000.0), now=late, usd_per_day=10_000.0)
    assert left(projection) == 10_000.0 - 1100.0
    projection.look_ahead()
    assert left(projection) == 10_000.0 - 4900.0, "tomorrow is the tighter one: 5000 s less today's 100"


def test_bills_standing_costs_and_fixed_costs_reduce_what_is_left() -> None:
    """The cap is 10,000: bills take 600, a day of standing costs 240, and a day of fixed costs 48."""
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
    numbers = projection.numbers("cap-day")
    assert (numbers["cap_usd"], numbers["set_aside_usd"]) == (10_000.0, 240.0 + 48.0)


def test_the_day_and_the_month_have_separate_caps_and_bills() -> None:
    """The cap that leaves less decides how many nodes there is room for."""
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
def test_counts_and_hourly_prices_may_reach_their_cap_and_projected_money_may_not(
    caps: dict[str, Any], present: int, broken: str | None
) -> None:
    """Only a broken cap on the day's or month's money counts as overspent; ending nodes mends the others."""
    projection = books(*(node(f"n{at}") for at in range(present)), **caps)
    assert projection.broken == broken
    assert projection.is_overspent == (broken in ("cap-day", "cap-month"))
    for at in range(present):
        projection.end(f"n{at}")
    if broken in ("cap-hour", "cap-instances"):
        assert projection.broken is None


def test_a_stopped_node_does_not_count_as_an_instance() -> None:
    """One node runs and one is stopped: a cap of one instance holds, without room for another."""
    asleep = node("n2", phase="stopped", prices=((NOON - 1000.0, 0.0),))
    projection = books(node(), asleep, instances=1)
    assert projection.broken is None
    assert projection.room_for(1.0) == (0.0, "cap-instances")
    assert projection.numbers("cap-instances") == {"cap_nodes": 1.0, "present_nodes": 1.0}


def test_the_room_for_nodes_is_the_least_that_any_cap_leaves() -> None:
    """Caps on instances, on USD per hour and on USD per day; ending nodes still count."""
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


def test_launches_use_up_the_room_under_every_cap() -> None:
    """Two nodes of half a dollar per second count for 5000 s."""
    projection = books(usd_per_day=10_000.0, usd_per_hour=9000.0, instances=5)
    projection.add(1800.0, 2)
    assert left(projection) == 5000.0
    assert projection.numbers("cap-hour")["usd_per_hour"] == 3600.0
    assert projection.numbers("cap-instances")["present_nodes"] == 2.0
    assert projection.room_for(1800.0) == (pytest.approx(2.0), "cap-day")
    projection.add(1800.0, 3)
    assert (projection.broken, projection.is_overspent) == ("cap-day", True)


def test_a_launch_before_midnight_costs_its_minimum_today_and_the_rest_tomorrow() -> None:
    """Of today 10 s are left: a minute is billed today, and 4990 s count for tomorrow."""
    projection = books(now=DAY_SECONDS - 10.0, usd_per_day=10_000.0)
    projection.add(3600.0, 1)
    assert left(projection) == 10_000.0 - 4990.0
    assert projection.room_for(3600.0) == (pytest.approx(5010.0 / 4990.0), "cap-day")
    tight = books(now=DAY_SECONDS - 10.0, usd_per_day=10_000.0, fixed=())
    tight.add(3600.0 * 150.0, 1)
    assert left(tight) == pytest.approx(10_000.0 - 150.0 * 4990.0)


def test_the_money_lasts_until_the_staying_nodes_have_spent_it() -> None:
    """At one dollar per second 8678 dollars last 8678 s; without staying nodes there is no end."""
    projection = books(node(), usd_per_day=10_000.0)
    assert projection.dry_at == pytest.approx(NOON + 8678.0, abs=0.01)
    assert books(node(), node("n2"), usd_per_day=10_000.0).dry_at == pytest.approx(NOON + 3678.0, abs=0.01)
    assert books(usd_per_day=10_000.0).dry_at is None
    assert books(node()).dry_at is None
    assert books(node(), usd_per_day=1000.0).dry_at == NOON + 1.0
    gone = books(node(), usd_per_day=10_000.0, ending=("n1",))
    assert gone.dry_at is None


def test_the_money_of_the_next_day_may_run_out_if_that_of_today_suffices() -> None:
    """The cap is 50,000 per day: today is paid, and tomorrow's money lasts 50,000 s less a stop."""
    projection = books(node(), usd_per_day=50_000.0)
    assert projection.dry_at == pytest.approx(DAY_SECONDS + 50_000.0 - 322.0, abs=0.01)


def test_there_is_room_again_at_the_next_tick_or_in_the_next_window() -> None:
    """The window is a day or a month; the next tick counts if a node comes or goes."""
    projection = books(node(), usd_per_day=10_000.0, usd_per_month=10_000.0)
    assert projection.opens_at(["cap-day"], is_moving=False) == DAY_SECONDS
    assert projection.opens_at(["cap-month"], is_moving=False) == 31 * DAY_SECONDS
    assert projection.opens_at(["cap-day", "cap-month"], is_moving=False) == DAY_SECONDS
    assert projection.opens_at(["cap-hour"], is_moving=False) is None
    assert projection.opens_at(["cap-hour"], is_moving=True) == NOON + 1.0
    projection.end("n1")
    assert projection.opens_at([], is_moving=False) == NOON + 1.0


def test_a_node_costs_at_least_a_minute_even_if_it_ends_at_once() -> None:
    """Launched this second, with a shutdown of 10 s, it costs 60 s."""
    quick = Caps(**(TIMES | {"refused_seconds": 0.0, "shutdown_seconds": 10.0, "usd_per_day": 10_000.0}))
    projection = CapProjection(state(node(since=NOON)), quick, ending=("n1",))
    assert left(projection) == 10_000.0 - 60.0


def test_a_spot_node_may_cost_up_to_its_on_demand_price() -> None:
    """On demand costs one dollar per second and spot a tenth; the disk is added."""
    disk = (("disk", 36.0),)
    cheap = node(market="spot", prices=((0.0, 360.0),), extras=disk)
    assert most_per_second(cheap) == pytest.approx(micro_dollars(1.01))
    assert most_per_second(replace(cheap, market="on-demand")) == pytest.approx(micro_dollars(0.11))
    dear = replace(cheap, prices=((0.0, 7200.0),))
    assert most_per_second(dear) == pytest.approx(micro_dollars(2.01))
