"""Dates in the tick: wider and first where a date asks for it, on demand in time, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from followers import Known

from boa_daemon.testing import a_job, a_node, a_state, an_instance_type, rules, some_slots
from boa_daemon.tick.actions import LaunchNodes
from boa_daemon.tick.codec import dumps, loads
from boa_daemon.tick.decision import Decision, decide
from boa_daemon.tick.draft import Draft
from boa_daemon.tick.limits import Caps
from boa_daemon.tick.offers import Offer
from boa_daemon.tick.stages.meet_dates import _usd_per_hour, meet_dates
from boa_daemon.tick.state import ClusterState, Due, JobTerms, Rules, WarmPool
from policies.answer import Allocation
from policies.model import Width
from policies.placement.first_fit import FirstFit

ONES = rules(instance_types={"gpu": an_instance_type(gpus=1)})
NAME = ONES.instance_types["gpu"].name
OFFERS = (
    Offer(instance_type=NAME, zone="a", market="spot", usd_per_hour=0.3),
    Offer(instance_type=NAME, zone="a", market="on-demand", usd_per_hour=1.0),
)


def due_in(hours: float, *, work: float = 8.0, widths: tuple[int, ...] = (1, 2, 4, 8)) -> JobTerms:
    """Return the terms of a job of so many GPU-hours, perfectly parallel, due in so long from 1,000 on."""
    at = {Width("gpu", gpus): work / gpus for gpus in widths}
    return JobTerms(due=Due(at=1000.0 + 3600.0 * hours, hours=tuple(at.items())))


def a_case(terms: JobTerms, *, offers: tuple[Offer, ...] = (), width: int | None = None) -> ClusterState:
    """Return a state at 1,000 where "a" has a date, and "b" came before it."""
    held = (
        {} if width is None else {"a": tuple(slot for n in range(width) for slot in some_slots(f"n{n}", 0))}
    )
    nodes = [replace(a_node(f"n{n}", gpus=1), market="spot") for n in range(width or 0)]
    state = a_state(a_job("b"), a_job("a", arrived_at=500.0), nodes=nodes, held=held, now=1000.0)
    jobs = {**state.jobs, "a": replace(state.jobs["a"], terms=terms)}
    return replace(state, jobs=jobs, offers=offers)


def decided(state: ClusterState, *, site: Rules = ONES, width: int = 1) -> Decision:
    """Return the decision where the policy gives every job so many GPUs."""
    known = Known(widths={"a": width, "b": width})
    return decide(state, allocator=known, placer=FirstFit(), rules=site)


def test_a_date_makes_a_job_as_wide_as_it_has_to_be_and_no_wider_than_the_policy_would() -> None:
    """Eight GPU-hours in 2.5 hours are four GPUs; in ten hours the policy's one will do, and so will six."""
    near, far = a_case(due_in(2.5)), a_case(due_in(10.0))

    assert decided(near).plan.widths["a"] == Width("gpu", 4)
    assert decided(far).plan.widths["a"] == Width("gpu", 1)
    assert decided(near, width=8).plan.widths["a"] == Width("gpu", 8)
    assert decided(near).plan.widths["b"] == Width("gpu", 1)
    assert decided(near).plan.dates["a"].kept > 0.99


def test_what_has_a_date_is_served_first_where_nodes_are_few() -> None:
    """Four nodes: the later job has them all, and the earlier one waits."""
    plan = decided(a_case(due_in(2.5)), site=replace(ONES, max_nodes=4)).plan

    assert plan.launches == {NAME: 4}
    assert plan.waiting["b"] == "node-limit"


def test_a_hard_cap_is_above_every_date() -> None:
    """Three dollars an hour hold three nodes, whatever the date asks for."""
    plan = decided(a_case(due_in(2.5)), site=replace(ONES, caps=Caps(usd_per_hour=3.0))).plan

    assert sum(plan.launches.values()) <= 3


@pytest.mark.parametrize(("hours", "market"), [(40.0, "spot"), (8.2, "on-demand")])
def test_spot_while_that_is_safe_and_on_demand_in_time(hours: float, market: str) -> None:
    """Eight hours of work on one GPU, in forty hours and in a few minutes more than it takes."""
    state = a_case(due_in(hours, widths=(1,)), offers=OFFERS)
    state = replace(state, jobs={"a": state.jobs["a"]})
    orders = [one for one in decided(state).actions if isinstance(one, LaunchNodes)]

    assert [one.offer.market for one in orders if one.offer is not None] == [market]


def test_a_stopped_node_of_a_warm_pool_does_not_bring_a_firm_date_back_to_spot() -> None:
    """What can be started comes first among equal prices, and never before what a date needs."""
    state = a_case(due_in(8.2, widths=(1,)), offers=OFFERS)
    stopped = replace(a_node("i-1~2", gpus=1, phase="stopped"), gpus=(), zone="elsewhere", launched_by="")
    state = replace(state, jobs={"a": state.jobs["a"]}, nodes={**state.nodes, stopped.id: stopped})
    found = decided(state, site=replace(ONES, warm_pool=WarmPool(nodes=1)))
    orders = [one for one in found.actions if isinstance(one, LaunchNodes)]

    assert [one.offer.market for one in orders if one.offer is not None] == ["on-demand"]


def test_a_date_that_is_lost_or_past_asks_for_nothing() -> None:
    """An hour for eight GPU-hours on at most two GPUs; an hour ago."""
    lost, past = a_case(due_in(1.0, widths=(1, 2))), a_case(due_in(-1.0))

    assert decided(lost).plan.widths["a"] == Width("gpu", 1)
    assert decided(lost).plan.dates["a"].width is None
    assert decided(past).plan.dates == {}


def test_rigid_jobs_that_run_and_widths_that_were_ordered_are_left_alone() -> None:
    """A move would cost the one all that it did, and somebody chose the other."""
    state = a_case(due_in(2.5), width=1)
    rigid = replace(state, jobs={**state.jobs, "a": replace(state.jobs["a"], is_rigid=True)})
    terms = replace(due_in(2.5), ordered_gpus=1)

    assert decided(state).plan.widths["a"] == Width("gpu", 4)
    assert decided(rigid).plan.widths["a"] == Width("gpu", 1)
    assert decided(a_case(terms)).plan.widths["a"] == Width("gpu", 1)


def test_what_a_tick_saw_of_a_date_can_be_read_back() -> None:
    """So a decision is replayed with it."""
    state = a_case(due_in(2.5))

    assert loads(dumps(state)) == state


def test_a_ceiling_makes_room_for_whole_nodes_of_what_dates_ask_for() -> None:
    """Four nodes at a dollar beside what the policy's own ceiling allows; five GPUs are two nodes of four."""
    assert _usd_per_hour(a_case(due_in(2.5)), ONES, Width("gpu", 4)) == 4.0
    assert _usd_per_hour(a_case(due_in(2.5)), rules(), Width("gpu", 5)) == 8.0
    draft = Draft(rules=ONES, allocator=Known(widths={}), placer=FirstFit())
    wanted = Allocation(widths={name: Width("gpu", 1) for name in "ab"}, most_usd_per_hour=2.0)
    found = meet_dates(a_case(due_in(2.5)), replace(draft, allocation=wanted)).allocation
    assert (found.widths["a"], found.most_usd_per_hour) == (Width("gpu", 4), 6.0)
