"""Jobs with a date get the width, the place in line and the market that the date requires."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from followers import Known

from boa_daemon.testing import a_job, a_node, a_state, an_instance_type, rules, some_slots
from boa_daemon.tick.decide.decision import Decision, decide
from boa_daemon.tick.facts.actions import LaunchNodes, StopJob, TerminateNode
from boa_daemon.tick.facts.codec import dumps, loads
from boa_daemon.tick.facts.draft import Draft
from boa_daemon.tick.facts.limits import Act, Caps, Steady
from boa_daemon.tick.facts.offers import Cooldown, Offer
from boa_daemon.tick.facts.state import ClusterState, Due, JobTerms, Rules, WarmPool
from boa_daemon.tick.stages.widths.meet_dates import _usd_per_hour, meet_dates
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
    """Return the terms of a perfectly parallel job that is due some hours after second 1,000."""
    at = {Width("gpu", gpus): work / gpus for gpus in widths}
    return JobTerms(due=Due(at=1000.0 + 3600.0 * hours, hours=tuple(at.items())))


def a_case(terms: JobTerms, *, offers: tuple[Offer, ...] = (), width: int | None = None) -> ClusterState:
    """Return a state at second 1,000: job b arrived first, and job a has a date."""
    held = (
        {} if width is None else {"a": tuple(slot for n in range(width) for slot in some_slots(f"n{n}", 0))}
    )
    nodes = [replace(a_node(f"n{n}", gpus=1), market="spot") for n in range(width or 0)]
    state = a_state(a_job("b"), a_job("a", arrived_at=500.0), nodes=nodes, held=held, now=1000.0)
    jobs = {**state.jobs, "a": replace(state.jobs["a"], terms=terms)}
    return replace(state, jobs=jobs, offers=offers)


def decided(state: ClusterState, *, site: Rules = ONES, width: int = 1) -> Decision:
    """Return the decision under a policy that gives every job the same width."""
    known = Known(widths={"a": width, "b": width})
    return decide(state, allocator=known, placer=FirstFit(), rules=site)


def test_a_job_gets_the_narrowest_width_that_meets_its_date() -> None:
    """Eight GPU-hours in 2.5 hours need four GPUs, in ten hours one, whatever width the policy gives."""
    near, far = a_case(due_in(2.5)), a_case(due_in(10.0))

    for width in (1, 8):
        assert decided(near, width=width).plan.jobs.widths["a"] == Width("gpu", 4)
        assert decided(far, width=width).plan.jobs.widths["a"] == Width("gpu", 1)
        assert decided(near, width=width).plan.jobs.widths["b"] == Width("gpu", width)
    assert decided(near).plan.jobs.dates["a"].kept > 0.99


def alone(state: ClusterState, *, is_up: bool = True, market: str | None = None) -> ClusterState:
    """Return the state without job b; spot is available if `is_up`, and nodes are of one market."""
    nodes = {
        name: node if market is None else replace(node, market=market) for name, node in state.nodes.items()
    }
    closed = {} if is_up else {OFFERS[0].key: Cooldown(until=state.now + 600.0)}
    return replace(state, jobs={"a": state.jobs["a"]}, offers=OFFERS, nodes=nodes, cooldowns=closed)


def test_a_job_waits_for_spot_while_its_date_leaves_time() -> None:
    """It has 40 h for 8 h of work: nothing is rented, and a job on demand stops with this reason."""
    waits = alone(a_case(due_in(40.0)), is_up=False)
    runs = alone(a_case(due_in(40.0), width=1), is_up=False, market="on-demand")
    found = decided(waits)

    assert (found.plan.jobs.waiting, found.plan.launches) == ({"a": "spot"}, {})
    assert found.plan.jobs.dates["a"].waits
    assert "its date leaves time to wait for spot" in found.explain("a")
    (stop,) = decided(runs).actions
    assert isinstance(stop, StopJob)
    assert re.fullmatch(r"its date, [^ ]+, leaves time to wait for spot", stop.reason)
    late = decided(alone(a_case(due_in(8.3, widths=(1,))), is_up=False)).plan
    assert late.jobs.waiting == {"a": "nodes-to-come"}


def test_a_job_on_a_spot_node_goes_on_if_no_more_spot_nodes_are_available() -> None:
    """It is neither stopped nor widened."""
    plan = decided(alone(a_case(due_in(40.0, widths=(1,)), width=1), is_up=False)).plan

    assert (plan.jobs.widths["a"], plan.jobs.stops, plan.launches) == (Width("gpu", 1), (), {})


def test_a_job_on_demand_moves_to_spot_once_a_spot_node_is_ready() -> None:
    """It works on until then, and does not move to another node on demand."""
    state = alone(a_case(due_in(40.0, widths=(1,)), width=1), market="on-demand")
    first = decided(state)
    (order,) = first.actions
    assert isinstance(order, LaunchNodes)
    assert order.offer == OFFERS[0]
    assert (first.plan.jobs.stops, first.plan.jobs.slots) == ((), {})

    ready = replace(a_node("s", gpus=1), market="spot")
    then = decided(replace(state, nodes={**state.nodes, "s": ready}))
    assert then.plan.jobs.slots == {"a": some_slots("s", 0)}
    assert not any(isinstance(one, LaunchNodes) for one in then.actions)

    idle = replace(a_node("d", gpus=1), market="on-demand")
    beside = decided(replace(state, nodes={**state.nodes, "d": idle}))
    assert [type(one) for one in beside.actions] == [TerminateNode]


@pytest.mark.parametrize(("moved_at", "moves"), [(999.0, False), (100.0, True)])
def test_moves_that_only_save_money_keep_to_the_rules_against_flapping(moved_at: float, moves: bool) -> None:
    """A job that started a second ago stays on demand; a move that its date needs is made."""
    site = replace(ONES, steady=Steady())
    acts = (Act(kind="start", target="a", at=moved_at),)
    for is_up in (True, False):
        case = a_case(due_in(40.0, widths=(1,)), width=1)
        found = decided(replace(alone(case, is_up=is_up, market="on-demand"), acts=acts), site=site)
        assert bool(found.actions) is moves

    slow = replace(alone(a_case(due_in(2.5), width=1), market="on-demand"), acts=acts)
    assert decided(slow, site=site).actions


def test_the_width_names_the_spot_type_if_the_settings_plan_spot_separately() -> None:
    """A waiting job and a job on demand both go to the spot type."""
    machine = an_instance_type(gpus=1)
    apart = replace(machine, name=str(machine.machine_name.on_spot), gpu_type="gpu@spot", usd_per_hour=0.3)
    site = rules(instance_types={"gpu": machine, "gpu@spot": apart})
    offers = (replace(OFFERS[0], instance_type=apart.name), OFFERS[1])
    for width in (None, 1):
        state = alone(a_case(due_in(40.0, widths=(1,)), width=width), market="on-demand")
        found = decided(replace(state, offers=offers), site=site)
        assert found.plan.jobs.widths["a"] == Width("gpu@spot", 1)
        (order,) = found.actions
        assert isinstance(order, LaunchNodes)
        assert order.offer == offers[0]


def test_a_job_with_a_date_is_served_first_at_the_node_limit() -> None:
    """The later job gets all four nodes, and the earlier one waits."""
    plan = decided(a_case(due_in(2.5)), site=replace(ONES, max_nodes=4)).plan

    assert plan.launches == {NAME: 4}
    assert plan.jobs.waiting["b"] == "node-limit"


def test_a_hard_cap_overrules_a_date() -> None:
    """A cap of 3 USD per hour allows at most three nodes, although the date needs four."""
    plan = decided(a_case(due_in(2.5)), site=replace(ONES, caps=Caps(usd_per_hour=3.0))).plan

    assert sum(plan.launches.values()) <= 3


@pytest.mark.parametrize(("hours", "market"), [(40.0, "spot"), (8.2, "on-demand")])
def test_a_job_uses_spot_while_its_date_leaves_time_and_on_demand_otherwise(
    hours: float, market: str
) -> None:
    """It has eight hours of work, and 40 h or 8.2 h until its date."""
    state = a_case(due_in(hours, widths=(1,)), offers=OFFERS)
    state = replace(state, jobs={"a": state.jobs["a"]})
    orders = [one for one in decided(state).actions if isinstance(one, LaunchNodes)]

    assert [one.offer.market for one in orders if one.offer is not None] == [market]


def test_a_stopped_node_in_the_warm_pool_does_not_change_the_market_of_a_date() -> None:
    """The date needs on demand, and the launch is on demand."""
    state = a_case(due_in(8.2, widths=(1,)), offers=OFFERS)
    stopped = replace(a_node("i-1~2", gpus=1, phase="stopped"), gpus=(), zone="elsewhere", launched_by="")
    state = replace(state, jobs={"a": state.jobs["a"]}, nodes={**state.nodes, stopped.id: stopped})
    found = decided(state, site=replace(ONES, warm_pool=WarmPool(nodes=1)))
    orders = [one for one in found.actions if isinstance(one, LaunchNodes)]

    assert [one.offer.market for one in orders if one.offer is not None] == ["on-demand"]


def test_a_date_that_is_past_or_cannot_be_met_changes_no_width() -> None:
    """One hour is too short for eight GPU-hours on two GPUs."""
    lost, past = a_case(due_in(1.0, widths=(1, 2))), a_case(due_in(-1.0))

    assert decided(lost).plan.jobs.widths["a"] == Width("gpu", 1)
    assert decided(lost).plan.jobs.dates["a"].width is None
    assert decided(past).plan.jobs.dates == {}


def test_dates_do_not_change_running_rigid_jobs_and_widths_that_users_ordered() -> None:
    """Both keep one GPU where the date would need four."""
    state = a_case(due_in(2.5), width=1)
    rigid = replace(state, jobs={**state.jobs, "a": replace(state.jobs["a"], is_rigid=True)})
    terms = replace(due_in(2.5), ordered_gpus=1)

    assert decided(state).plan.jobs.widths["a"] == Width("gpu", 4)
    assert decided(rigid).plan.jobs.widths["a"] == Width("gpu", 1)
    assert decided(a_case(terms)).plan.jobs.widths["a"] == Width("gpu", 1)


def test_a_recorded_state_with_a_date_is_read_back_unchanged() -> None:
    """So the decision can be replayed."""
    state = a_case(due_in(2.5))

    assert loads(dumps(state)) == state


def test_the_ceiling_rises_by_the_price_of_the_whole_nodes_that_dates_need() -> None:
    """Four nodes of 1 USD raise the ceiling from 2 to 6 USD; five GPUs need two nodes of four."""
    assert _usd_per_hour(a_case(due_in(2.5)), ONES, Width("gpu", 4)) == 4.0
    assert _usd_per_hour(a_case(due_in(2.5)), rules(), Width("gpu", 5)) == 8.0
    draft = Draft(rules=ONES, allocator=Known(widths={}), placer=FirstFit())
    wanted = Allocation(widths={name: Width("gpu", 1) for name in "ab"}, most_usd_per_hour=2.0)
    found = meet_dates(a_case(due_in(2.5)), replace(draft, allocation=wanted)).allocation
    assert (found.widths["a"], found.most_usd_per_hour) == (Width("gpu", 4), 6.0)
