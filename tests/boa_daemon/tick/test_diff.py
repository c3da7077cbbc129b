"""Observed against planned: applying the actions leaves nothing to do."""

from __future__ import annotations

import pytest
from hypothesis import given

from boa_daemon.testing import Ideal, Wishes, a_job, a_node, a_state, rules, some_slots, states
from boa_daemon.tick.actions import LaunchNodes, StartJob, StopJob, TerminateNode
from boa_daemon.tick.decision import Decision, decide
from boa_daemon.tick.diff import diff
from boa_daemon.tick.state import ClusterState, Plan
from policies.model import Width
from policies.placement.first_fit import FirstFit
from policies.registry import PLACERS, find_placer

ORDER = (StopJob, TerminateNode, StartJob, LaunchNodes)
MOST_ROUNDS = 8
"""Jobs in a random state; each round settles at least one of those that block each other."""


def decided(state: ClusterState, wishes: Wishes, placer: str = "first-fit") -> Decision:
    """Return the decision on four-GPU nodes."""
    return decide(state, allocator=wishes, placer=find_placer(placer), rules=rules())


def seen(world: Ideal, tick: int) -> ClusterState:
    """Return what a tick would see of a world."""
    return ClusterState(
        now=world.clock.now(), tick=tick, nodes=dict(world.nodes_by_id), jobs=dict(world.jobs_by_id)
    )


@pytest.mark.parametrize("placer", PLACERS)
@given(case=states())
def test_applying_the_actions_leaves_nothing_to_do(placer: str, case: tuple[ClusterState, Wishes]) -> None:
    """In an ideal world, ticks come to rest with every job at its width, and no action is ever a fault."""
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
def test_stops_then_releases_then_starts_then_launches(case: tuple[ClusterState, Wishes]) -> None:
    """Releases never wait for launches, and GPUs are free before their next job."""
    kinds = [ORDER.index(type(action)) for action in decided(*case).actions]

    assert kinds == sorted(kinds)


@given(case=states())
def test_every_action_has_its_own_id_and_a_reason(case: tuple[ClusterState, Wishes]) -> None:
    """Ids name the tick and the target, so the same decision twice is the same request."""
    first, second = decided(*case).actions, decided(*case).actions

    assert first == second
    assert len({action.id for action in first}) == len(first)
    assert all(action.id.startswith("t1-") and action.reason for action in first)


@given(case=states())
def test_no_node_that_a_running_job_holds_is_touched(case: tuple[ClusterState, Wishes]) -> None:
    """Only idle nodes are terminated."""
    state, _ = case
    for action in decided(*case).actions:
        if isinstance(action, TerminateNode):
            assert set(state.nodes[action.node].gpus) == {None}


def test_a_move_is_a_stop_and_the_next_generation() -> None:
    """Reasons carry the numbers: from which width, to which, and where."""
    state = a_state(a_job("a"), nodes=[a_node("n1")], held={"a": some_slots("n1", 0)})

    stop, start = decided(state, Wishes(widths={"a": 2})).actions

    assert isinstance(stop, StopJob)
    assert isinstance(start, StartJob)
    assert stop.reason == "moves from 1 x gpu to 2 x gpu"
    assert (start.generation, start.reason) == (2, "2 x gpu planned, free on 1 node")


def test_a_launch_says_who_waits_for_how_much() -> None:
    """Three jobs, seven GPUs, two nodes."""
    state = a_state(*(a_job(name) for name in "abc"))

    actions = decided(state, Wishes(widths={"a": 4, "b": 2, "c": 1})).actions

    assert [(action.id, action.count) for action in actions] == [("t1-launch-gpu-x4-0", 2)]  # type: ignore[union-attr]
    assert {action.reason for action in actions} == {"3 jobs wait for 7 GPUs of gpu: 2 more gpu-x4"}
    assert actions[0].for_jobs == (("a", 1), ("b", 1), ("c", 1))  # type: ignore[union-attr]


def test_a_release_says_how_long_the_node_was_idle() -> None:
    """90 s are 1.5 minutes."""
    state = a_state(nodes=[a_node("n1", idle_since=10.0)], now=100.0)

    (action,) = diff(state, Plan(widths={}, slots={}, releases=("n1",)))

    assert action.reason == "idle for 1.5 min, and no job needs it"


def test_a_fixed_fleet_launches_what_is_missing() -> None:
    """Nobody waits, yet nodes are planned."""
    actions = decided(a_state(), Wishes(widths={}, nodes={"gpu-x4": 2})).actions

    assert {action.reason for action in actions} == {"2 more gpu-x4 planned than present"}


def test_nothing_to_do_is_no_action() -> None:
    """A job at its width on a full node."""
    state = a_state(a_job("a"), nodes=[a_node("n1")], held={"a": some_slots("n1", 0, 1, 2, 3)})

    assert diff(state, Plan(widths={"a": Width("gpu", 4)}, slots={})) == ()
    assert decide(state, allocator=Wishes(widths={"a": 4}), placer=FirstFit(), rules=rules()).actions == ()
