"""`diff` compares the observed cluster with the plan; its actions leave nothing to do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from drafts import a_plan, gpus
from hypothesis import given

from boa_daemon.testing import (
    Ideal,
    Wishes,
    a_job,
    a_node,
    a_state,
    an_instance_type,
    rules,
    some_slots,
    states,
)
from boa_daemon.tick.decide.decision import Decision, decide
from boa_daemon.tick.decide.diff import diff
from boa_daemon.tick.facts.actions import LaunchNodes, StartJob, StopJob, TerminateNode
from boa_daemon.tick.facts.limits import Held
from boa_daemon.tick.facts.offers import Cooldown, Offer
from boa_daemon.tick.facts.reasons import WAIT_REASON_TEXTS
from boa_daemon.tick.facts.retries import GivenUp
from boa_daemon.tick.facts.state import ClusterState, DateNote
from policies.model import Width
from policies.placement.first_fit import FirstFit
from policies.registry import PLACERS, find_placer

ORDER = (StopJob, TerminateNode, StartJob, LaunchNodes)
MOST_ROUNDS = 8
"""Jobs in a random state; each round settles at least one of those that block each other."""


def decided(state: ClusterState, wishes: Wishes, placer: str = "first-fit") -> Decision:
    """Return the decision on nodes of four GPUs."""
    return decide(state, allocator=wishes, placer=find_placer(placer), rules=rules())


def seen(world: Ideal, tick: int) -> ClusterState:
    """Return the state that a tick observes of the world."""
    return ClusterState(
        now=world.clock.now(), tick=tick, nodes=dict(world.nodes_by_id), jobs=dict(world.jobs_by_id)
    )


@pytest.mark.parametrize("placer", PLACERS)
@given(case=states())
def test_applying_the_actions_leaves_nothing_to_do(placer: str, case: tuple[ClusterState, Wishes]) -> None:
    """In an ideal world the ticks end with every job at its width and no action left."""
    state, wishes = case
    world = Ideal(state)
    for tick in range(1, MOST_ROUNDS):
        world.ready_all()
        decision = decided(seen(world, tick), wishes, placer)
        world.do(decision.actions)
        if not decision.actions:
            break
    assert decision.actions == ()
    assert {name: len(job.slots) for name, job in world.jobs_by_id.items()} == {
        name: wishes.widths.get(name, 0) for name in world.jobs_by_id
    }


@given(case=states())
def test_actions_are_ordered_stops_releases_starts_launches(case: tuple[ClusterState, Wishes]) -> None:
    """So releases never wait for launches, and GPUs are free before their next job starts."""
    kinds = [ORDER.index(type(action)) for action in decided(*case).actions]

    assert kinds == sorted(kinds)


@given(case=states())
def test_every_action_has_a_unique_id_and_a_reason(case: tuple[ClusterState, Wishes]) -> None:
    """Ids name the tick and the target, so the same decision taken twice is the same request."""
    first, second = decided(*case).actions, decided(*case).actions

    assert first == second
    assert len({action.id for action in first}) == len(first)
    assert all(action.id.startswith("t1-") and action.reason for action in first)


@given(case=states())
def test_no_node_with_a_running_job_is_terminated(case: tuple[ClusterState, Wishes]) -> None:
    """Only idle nodes are terminated."""
    state, _ = case
    for action in decided(*case).actions:
        if isinstance(action, TerminateNode):
            assert set(state.nodes[action.node].gpus) == {None}


def test_a_move_is_a_stop_and_a_start_of_the_next_generation() -> None:
    """The reasons name both widths and the number of nodes."""
    state = a_state(a_job("a"), nodes=[a_node("n1")], held={"a": some_slots("n1", 0)})

    stop, start = decided(state, Wishes(widths={"a": 2})).actions

    assert isinstance(stop, StopJob)
    assert isinstance(start, StartJob)
    assert stop.reason == "moves from 1 x gpu to 2 x gpu"
    assert (start.generation, start.reason) == (2, "2 x gpu planned, free on 1 node")


def test_the_reason_of_a_launch_counts_the_waiting_jobs_and_gpus() -> None:
    """Three jobs wait for seven GPUs on two nodes."""
    state = a_state(*(a_job(name) for name in "abc"))

    actions = decided(state, Wishes(widths={"a": 4, "b": 2, "c": 1})).actions

    assert [(action.id, action.count) for action in actions] == [("t1-launch-gpu-x4-0", 2)]  # type: ignore[union-attr]
    assert {action.reason for action in actions} == {"3 jobs wait for 7 GPUs of gpu: 2 more gpu-x4"}
    assert actions[0].for_jobs == (("a", 1), ("b", 1), ("c", 1))  # type: ignore[union-attr]


@pytest.mark.parametrize("idle_since", [100.0, 99.5])
def test_a_node_that_is_idle_since_this_tick_is_not_idle_for_0_seconds(idle_since: float) -> None:
    """Its last job has just left it."""
    state = a_state(nodes=[a_node("n1", idle_since=idle_since)], now=100.0)
    (action,) = diff(state, a_plan(releases=("n1",)))

    assert action.reason == "no job is left on it, and none needs it"


def test_the_reason_of_a_release_says_how_long_the_node_was_idle() -> None:
    """The node was idle for 90 s, which is 1.5 min."""
    state = a_state(nodes=[a_node("n1", idle_since=10.0)], now=100.0)

    (action,) = diff(state, a_plan(releases=("n1",)))

    assert action.reason == "idle for 1.5 min, and no job needs it"


def test_a_fixed_fleet_launches_missing_nodes_without_waiting_jobs() -> None:
    """The reason compares planned and present nodes."""
    actions = decided(a_state(), Wishes(widths={}, nodes={"gpu-x4": 2})).actions

    assert {action.reason for action in actions} == {"2 more gpu-x4 planned than present"}


def test_a_job_at_its_width_causes_no_action() -> None:
    """The job fills its node."""
    state = a_state(a_job("a"), nodes=[a_node("n1")], held={"a": some_slots("n1", 0, 1, 2, 3)})

    assert diff(state, a_plan(widths={"a": Width("gpu", 4)}, slots={})) == ()
    assert decide(state, allocator=Wishes(widths={"a": 4}), placer=FirstFit(), rules=rules()).actions == ()


def ordered(state: ClusterState, **changes: Any) -> list[LaunchNodes]:
    """Return the launches of a plan on nodes of four GPUs; assert that there are no other actions."""
    actions = diff(state, a_plan(instance_types={"gpu-x4": an_instance_type()}, **changes))
    assert all(isinstance(action, LaunchNodes) for action in actions)
    return [action for action in actions if isinstance(action, LaunchNodes)]


SPOT = Offer(instance_type="gpu-x4", zone="z", market="spot", usd_per_hour=1.0, nodes_left=3)
DEMAND = Offer(instance_type="gpu-x4", zone="z", usd_per_hour=2.0, nodes_left=2)
RESERVED = Offer(instance_type="gpu-x4", zone="z", market="reserved", usd_per_hour=3.0)
OFFERS = (RESERVED, DEMAND, SPOT)


@pytest.mark.parametrize(
    ("count", "gangs", "parts"),
    [
        (2, (), [(2, False, "spot")]),
        (4, (), [(3, False, "spot"), (1, False, "on-demand")]),
        (9, (), [(3, False, "spot"), (2, False, "on-demand"), (4, False, "reserved")]),
        (3, (3,), [(3, True, "spot")]),
        (4, (4,), [(4, True, "reserved")]),
        (4, (2,), [(2, True, "spot"), (1, False, "spot"), (1, False, "on-demand")]),
        (4, (2, 2), [(2, True, "spot"), (2, True, "on-demand")]),
    ],
)
def test_launches_fill_the_cheapest_quota_first_and_a_gang_goes_to_one_market(
    count: int, gangs: tuple[int, ...], parts: list[tuple[int, bool, str]]
) -> None:
    """The quotas are three nodes on spot, two on demand and any number reserved; gangs use them up too."""
    state = a_state(offers=OFFERS)
    orders = ordered(state, launches={"gpu-x4": count}, gangs={"gpu-x4": gangs} if gangs else {})
    assert [(one.count, one.is_gang, one.offer.market) for one in orders if one.offer] == parts
    assert [one.id for one in orders] == [f"t1-launch-gpu-x4-{number}" for number in range(len(parts))]


def test_without_offers_each_gang_and_the_rest_are_one_launch_each() -> None:
    """These launches have no offer: the cloud chooses the zone."""
    orders = ordered(a_state(), launches={"gpu-x4": 5}, gangs={"gpu-x4": (2,)})
    assert [(one.count, one.is_gang, one.offer) for one in orders] == [(2, True, None), (3, False, None)]


def test_an_offer_that_is_closed_to_two_nodes_together_still_gets_single_nodes() -> None:
    """The gang goes to the other offer."""
    rests = {"gpu-x4/z/spot/2": Cooldown(until=60.0)}
    state = a_state(offers=(SPOT, RESERVED), cooldowns=rests)
    gang, rest = ordered(state, launches={"gpu-x4": 4}, gangs={"gpu-x4": (2,)})
    assert (gang.offer, rest.offer) == (RESERVED, SPOT)


def test_a_job_with_a_firm_date_that_waits_for_the_type_gets_no_spot_node() -> None:
    """The launch is on spot if the date is not firm, or if its job waits for another type or not at all."""
    firm = DateNote(at=9.0, kept=1.0, usd=1.0, is_firm=True)
    state = a_state(a_job("a"), a_job("b"), offers=(SPOT, RESERVED))
    other = {"a": Width("new", 1), "b": Width("gpu", 1)}
    for widths, dates, waits, first in (
        (gpus(a=1, b=1), {"a": firm}, "ab", RESERVED),
        (gpus(a=1, b=1), {"a": firm}, "b", SPOT),
        (gpus(a=1, b=1), {"a": replace(firm, is_firm=False)}, "ab", SPOT),
        (other, {"a": firm}, "ab", SPOT),
        ({"b": Width("gpu", 1)}, {"a": firm}, "ab", SPOT),
    ):
        waiting = dict.fromkeys(waits, "nodes-to-come")
        (order,) = ordered(state, launches={"gpu-x4": 1}, widths=widths, dates=dates, waiting=waiting)
        assert order.offer == first


def test_a_launch_lists_the_first_four_jobs_that_wait_for_its_type_and_counts_all() -> None:
    """Each job is listed with the generation that would start."""
    state = a_state(*(a_job(name) for name in "abcdefg"))
    again = replace(state.jobs["b"], generation=3)
    state = replace(state, jobs={**state.jobs, "b": again})
    waiting = dict.fromkeys("abcdefg", "nodes-to-come")
    widths = gpus(b=1, c=1, d=1, e=1, f=2) | {"a": Width("new", 1)}
    (order,) = ordered(state, launches={"gpu-x4": 2}, widths=widths, waiting=waiting)
    assert order.for_jobs == (("b", 4), ("c", 1), ("d", 1), ("e", 1))
    assert order.reason == "5 jobs wait for 6 GPUs of gpu: 2 more gpu-x4"
    (order,) = ordered(state, launches={"gpu-x4": 1}, widths=gpus(b=1), waiting={"b": "nodes-to-come"})
    assert order.reason == "1 job waits for 1 GPU of gpu: 1 more gpu-x4"


def test_the_reason_of_a_release_says_why_the_node_goes() -> None:
    """A stopped node, an idle node for the warm pool, a node over a cap, and a node that was never idle."""
    nodes = [
        a_node("old", phase="stopped", launched_at=800.0),
        a_node("spare", idle_since=7940.0),
        a_node("dear", idle_since=7940.0),
        replace(a_node("new"), idle_since=None),
    ]
    held = Held(what="node dear", code="cap-day")
    plan = a_plan(releases=("old", "spare", "dear"), forced=("new",), stopping=("spare",), held=(held,))
    found = [
        (action.node, action.reason, action.stops)
        for action in diff(a_state(nodes=nodes, now=8000.0), plan)
        if isinstance(action, TerminateNode)
    ]
    assert found == [
        ("old", "stopped for 2.00 h, and not worth its disk", False),
        ("spare", "idle for 1.0 min, and no job needs it: stopped, for the warm pool", True),
        ("dear", held.why, False),
        ("new", "its jobs were told to stop, and a cap could break before they have", False),
    ]
    (kept,) = diff(
        a_state(nodes=nodes, now=8000.0), replace(plan, releases=("dear",), forced=(), stopping=("dear",))
    )
    assert isinstance(kept, TerminateNode)
    assert kept.stops


def test_the_reason_of_a_stop_is_a_note_of_the_plan_or_what_the_job_waits_for() -> None:
    """Jobs that are given up and jobs that hang come before the stops."""
    jobs = {name: some_slots("n1", number) for number, name in enumerate("abcd")}
    state = a_state(*(a_job(name) for name in "abcde"), nodes=[a_node("n1")], held=jobs)
    held = Held(what="job a", code="cap-day")
    plan = a_plan(
        stops=("a", "b", "c"),
        waiting={"b": "budget"},
        held=(held,),
        given_up={"e": GivenUp(code="failed", reason="it failed 4 times")},
        ends={"d": "hangs"},
    )
    actions = diff(state, plan)
    assert [(action.id, action.reason) for action in actions] == [
        ("t1-give-up-e", "it failed 4 times"),
        ("t1-end-d", "hangs"),
        ("t1-stop-a", held.why),
        ("t1-stop-b", WAIT_REASON_TEXTS["budget"]),
        ("t1-stop-c", "the plan gives it no GPUs now"),
    ]
