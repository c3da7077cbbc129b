"""Hard caps: no plan breaks one, whatever runs, boots or is only asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.caps import within_caps
from boa_daemon.diff import diff
from boa_daemon.ledger import bill, bill_within, charge_for
from boa_daemon.limits import DAY_SECONDS, Caps, day_of, month_of
from boa_daemon.state import ClusterState, NodeState, Plan, Rules
from boa_daemon.testing import a_job, a_node, a_state, an_instance_type, some_slots
from policies.model import Width

DAY = 20_000 * DAY_SECONDS
KIND = an_instance_type(gpus=4, usd_per_gpu_hour=1.0)
CAPS = Caps(usd_per_day=100.0, tick_seconds=30.0, wind_down_seconds=120.0, least_run_seconds=900.0)


def rules_with(caps: Caps) -> Rules:
    return Rules(instance_types={"gpu": KIND}, caps=caps)


def launching(count: int, **changes: Any) -> Plan:
    values: dict[str, Any] = {
        "widths": {},
        "slots": {},
        "launches": {KIND.name: count},
        "instance_types": {KIND.name: KIND},
    }
    return Plan(**(values | changes))


def nodes_at(now: float, count: int, **changes: Any) -> list[NodeState]:
    return [a_node(f"n{n}", launched_at=now - 600.0 - n, kind=KIND, **changes) for n in range(count)]


def test_a_launch_is_refused_when_the_day_has_no_room_for_a_quarter_of_an_hour() -> None:
    """98 of 100 dollars are settled: two nodes at 4 USD/hour may run for 15 min, not three."""
    state = a_state(now=DAY + 3600.0, settled_today_micro_dollars=98_000_000)
    plan = within_caps(state, launching(3), rules_with(CAPS))
    assert plan.launches == {KIND.name: 2}
    assert [held.code for held in plan.held] == ["cap-day"]
    assert 3 * 4.0 * 900 / 3600 > 2.0 >= 2 * 4.0 * 900 / 3600


def test_a_job_that_waits_for_a_refused_node_is_told_which_cap() -> None:
    """Its reason changes from nodes to come to the cap."""
    state = a_state(a_job("a"), now=DAY, settled_today_micro_dollars=100_000_000)
    plan = launching(1, widths={"a": Width("gpu", 4)}, waiting={"a": "nodes-to-come"})
    assert within_caps(state, plan, rules_with(CAPS)).waiting == {"a": "cap-day"}


def test_nodes_are_given_back_before_a_cap_would_be_broken() -> None:
    """At 4 USD/hour a node costs 0.2 USD in the three minutes ahead: with 0.15 left one of two must go."""
    caps = replace(CAPS, usd_per_day=10.0)
    nodes = nodes_at(DAY + 7200.0, 2)
    state = a_state(nodes=nodes, now=DAY + 7200.0)
    spent = sum(bill(node, until=state.now) for node in nodes)
    state = replace(state, settled_today_micro_dollars=10_000_000 - spent - 350_000)
    plan = within_caps(state, Plan(widths={}, slots={}), rules_with(caps))
    assert plan.releases == ("n0",), "the youngest of those without jobs"


def test_a_node_with_a_job_checkpoints_before_it_goes() -> None:
    """First the job is stopped; the node is only ended under it where that would be too late."""
    caps = replace(CAPS, usd_per_day=10.0)
    (node,) = nodes_at(DAY + 7200.0, 1)
    state = a_state(a_job("a"), nodes=[node], held={"a": some_slots("n0", 0)}, now=DAY + 7200.0)
    spent = bill(node, until=state.now)
    soon = replace(state, settled_today_micro_dollars=10_000_000 - spent - 150_000)
    plan = within_caps(soon, Plan(widths={}, slots={}), rules_with(caps))
    assert (plan.stops, plan.releases, plan.forced) == (("a",), (), ())
    late = replace(state, settled_today_micro_dollars=10_000_000 - spent - 50_000)
    plan = within_caps(late, Plan(widths={}, slots={}), rules_with(caps))
    assert plan.forced == ("n0",)
    assert [action.id for action in diff(late, plan)] == ["t1-stop-a", "t1-terminate-n0"]


def test_unseen_nodes_count() -> None:
    """Four nodes that were only asked for leave room for one of a cap of five instances."""
    state = a_state(nodes=nodes_at(DAY, 4, phase="requested"), now=DAY)
    plan = within_caps(state, launching(3), rules_with(Caps(instances=5)))
    assert plan.launches == {KIND.name: 1}
    assert plan.held[0].numbers == {"cap": 5.0, "present": 4.0}


def test_a_gang_that_does_not_fit_is_left_out_whole() -> None:
    """Of a gang of three and one more, a cap of two instances leaves the one."""
    plan = within_caps(a_state(now=DAY), launching(4, gangs={KIND.name: (3,)}), rules_with(Caps(instances=2)))
    assert plan.launches == {KIND.name: 1}
    assert plan.gangs == {KIND.name: ()}


def test_a_launch_just_before_midnight_must_fit_into_tomorrow() -> None:
    """A day of 10 cents holds no node for its least time, however little of it falls into today."""
    caps = replace(CAPS, usd_per_day=0.1)
    assert within_caps(a_state(now=DAY - 1.0), launching(1), rules_with(caps)).launches == {}


def test_the_month_has_its_own_cap() -> None:
    """Nothing settled today, all of the month's money is."""
    caps = Caps(usd_per_month=500.0)
    state = a_state(now=DAY, settled_month_micro_dollars=499_900_000)
    plan = within_caps(state, launching(1), rules_with(caps))
    assert [held.code for held in plan.held] == ["cap-month"]


@given(
    lives=st.lists(st.tuples(st.floats(0.0, 3 * DAY_SECONDS), st.floats(0.0, 2 * DAY_SECONDS)), max_size=5),
    prices=st.lists(st.tuples(st.floats(0.0, 1e5), st.floats(0.1, 50.0)), max_size=3),
)
def test_parts_by_day_add_up_to_the_bill(
    lives: list[tuple[float, float]], prices: list[tuple[float, float]]
) -> None:
    """To the micro-dollar, also where the price changes and the minimum is billed."""
    for begin, length in lives:
        launched = DAY + begin
        steps = tuple(sorted((launched + at, price) for at, price in prices))
        steps = ((launched, steps[0][1]), *steps[1:]) if steps else ()
        node = a_node(launched_at=launched, kind=KIND, phase="terminated")
        node = replace(node, prices=steps, ended_at=launched + length)
        charge = charge_for(node)
        assert sum(part for _, part in charge.days) == charge.micro_dollars
        assert all(part >= 0 for _, part in charge.days)


@given(
    settled=st.integers(0, 100_000_000),
    count=st.integers(0, 6),
    wanted=st.integers(0, 20),
    second=st.floats(0.0, DAY_SECONDS - 1.0),
)
def test_what_is_kept_and_launched_fits_under_the_cap(
    settled: int, count: int, wanted: int, second: float
) -> None:
    """After the step, everything that stays could go on until the next tick can still end it."""
    now = DAY + second
    nodes = [a_node(f"n{n}", launched_at=now - 30.0 * n, kind=KIND) for n in range(count)]
    state: ClusterState = a_state(nodes=nodes, now=now, settled_today_micro_dollars=settled)
    plan = within_caps(state, launching(wanted), rules_with(CAPS))
    window = day_of(now)
    stay = [node for node in nodes if node.id not in plan.releases]
    goes_on = sum(bill_within(node, window, until=now + CAPS.keep_seconds) for node in stay)
    going = sum(
        bill_within(node, window, until=now + CAPS.wind_down_seconds)
        for node in nodes
        if node.id in plan.releases
    )
    new = sum(plan.launches.values()) * 4.0e6 * min(CAPS.keep_seconds, window.ends_at - now) / 3600.0
    if plan.releases and not stay:
        return  # everything goes: nothing better can be done
    assert settled + goes_on + going + new <= 100_000_000 + 1


@pytest.mark.parametrize(("now", "days"), [(0.0, 31), (31 * DAY_SECONDS, 28), (59 * DAY_SECONDS, 31)])
def test_months_are_those_of_the_calendar(now: float, days: int) -> None:
    """January, February and March 1970."""
    assert month_of(now + 5.0).ends_at - month_of(now + 5.0).begins_at == days * DAY_SECONDS
