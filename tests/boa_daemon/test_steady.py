"""Against flapping: minimum hold, starts per hour, and an end to loops."""

from __future__ import annotations

from dataclasses import replace

from boa_daemon.actions import StartJob
from boa_daemon.limits import Steady
from boa_daemon.state import ClusterState, Plan
from boa_daemon.steady import without_loops
from boa_daemon.testing import Wishes, a_job, a_node, a_state, an_instance_type, rules, some_slots
from boa_daemon.tick import Decision, decide
from policies.registry import find_placer

STEADY = Steady(minimum_hold_seconds=300.0, starts_per_hour=4, loop_starts=6, loop_nodes=3)


def decided(state: ClusterState, gpus: int) -> Decision:
    return decide(
        state,
        allocator=Wishes(widths={"a": gpus}),
        placer=find_placer("lwf"),
        rules=rules(steady=STEADY),
    )


def running(*, started_at: float, starts: int = 1) -> ClusterState:
    """A job on two of four GPUs at 1000 s."""
    state = a_state(a_job("a"), nodes=[a_node()], held={"a": some_slots("n1", 0, 1)}, now=1000.0)
    job = replace(state.jobs["a"], started_at=started_at, recent_starts=starts)
    return replace(state, jobs={"a": job})


def test_a_job_that_has_just_started_is_left_alone() -> None:
    """After 200 of 300 s it does not move, and the decision says so; after 300 s it does."""
    held = decided(running(started_at=800.0), 4)
    assert held.actions == ()
    assert [one.code for one in held.plan.held] == ["minimum-hold"]
    assert "started too recently" in held.explain("a")
    assert [action.id for action in decided(running(started_at=700.0), 4).actions] == [
        "t1-stop-a",
        "t1-start-a",
    ]


def test_a_job_moves_only_so_often_in_an_hour() -> None:
    """Four starts, and it stays where it is."""
    assert [one.code for one in decided(running(started_at=0.0, starts=4), 4).plan.held] == ["moves-per-hour"]


def test_a_job_on_a_node_that_ends_may_always_move() -> None:
    """However young it is."""
    state = running(started_at=990.0)
    state = replace(state, nodes={"n1": replace(state.nodes["n1"], ends_by=1100.0)})
    assert decided(state, 4).plan.held == ()


def test_a_job_that_was_started_too_often_rests() -> None:
    """The same start six times in an hour is a loop: it waits, and the decision says why."""
    state = a_state(a_job("a"), nodes=[a_node()], now=1000.0)
    state = replace(state, jobs={"a": replace(state.jobs["a"], recent_starts=6)})
    decision = decided(state, 2)
    assert not any(isinstance(action, StartJob) for action in decision.actions)
    assert [one.code for one in decision.plan.held] == ["loop"]


def test_a_type_whose_nodes_keep_ending_unused_is_not_rented() -> None:
    """Three within the hour are enough."""
    kind = an_instance_type()
    plan = Plan(widths={}, slots={}, launches={kind.name: 2}, instance_types={kind.name: kind})
    state = replace(a_state(), short_lived={kind.name: 3})
    assert without_loops(state, plan, rules(steady=STEADY)).launches == {}
    state = replace(a_state(), short_lived={kind.name: 2})
    assert without_loops(state, plan, rules(steady=STEADY)).launches == {kind.name: 2}
