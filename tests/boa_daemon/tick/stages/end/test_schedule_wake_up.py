"""The plan wakes up at the next round of the policy, or soon after a node becomes empty."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from drafts import a_draft, a_plan

from boa_daemon.testing import a_job, a_node, a_state, rules, some_slots
from boa_daemon.tick.facts.limits import Held
from boa_daemon.tick.facts.reasons import HeldCode
from boa_daemon.tick.facts.state import ClusterState
from boa_daemon.tick.stages.end.schedule_wake_up import schedule_wake_up

NOW = 1000.0
ROUNDS = rules(round_seconds=60.0)


def a_wake(state: ClusterState, **changes: Any) -> float | None:
    """Return the wake-up under a policy with rounds of 60 s."""
    aside = changes.pop("set_aside", {})
    return schedule_wake_up(state, a_draft(site=ROUNDS, set_aside=aside, plan=a_plan(**changes))).plan.wake_at


def test_a_round_starts_when_the_policys_memory_last_changed() -> None:
    """If the memory changes now or never has, the round starts now; an earlier wake-up stays."""
    never = a_state(a_job("a"), now=NOW)
    remembers = replace(never, memory=((1.0,), NOW - 20.0))
    assert a_wake(never) == NOW + 60.0
    assert a_wake(remembers) == NOW + 40.0
    assert a_wake(remembers, memory=(2.0,)) == NOW + 60.0
    assert a_wake(remembers, wake_at=NOW + 30.0) == NOW + 30.0


def test_no_round_is_scheduled_while_every_job_is_set_aside() -> None:
    """One job that is not set aside suffices for a round."""
    state = a_state(a_job("a"), a_job("b"), now=NOW)
    assert a_wake(state, set_aside={"a": "resting", "b": "resting"}) is None
    assert a_wake(state, set_aside={"a": "resting"}) == NOW + 60.0
    assert a_wake(a_state(now=NOW)) is None


def held(code: HeldCode) -> tuple[Held, ...]:
    """Return one note about something that is held back."""
    return (Held(what="a node", code=code),)


@pytest.mark.parametrize(
    ("changes", "wake_at"),
    [
        ({}, NOW + 500.0),
        ({"held": ()}, NOW + 60.0),
        ({"launches": {"gpu-x4": 1}}, NOW + 60.0),
        ({"wake_at": None}, NOW + 60.0),
        *(({"held": held(c)}, NOW + 60.0) for c in ("user-day-cap", "team-day-cap", "team-month-cap")),
        ({"held": held("team-share")}, NOW + 60.0),
        ({"held": (*held("team-share"), *held("cap-hour"))}, NOW + 500.0),
    ],
)
def test_rounds_pause_while_a_cap_allows_no_node_and_none_is_here(
    changes: dict[str, Any], wake_at: float
) -> None:
    """A cap of a user or of a team alone does not pause the rounds."""
    values = {"held": held("cap-day"), "wake_at": NOW + 500.0, **changes}
    assert a_wake(a_state(a_job("a"), now=NOW), **values) == wake_at


def test_rounds_continue_at_a_cap_while_a_node_is_here() -> None:
    """The node's GPUs may change between jobs."""
    state = a_state(a_job("a"), nodes=[a_node()], now=NOW)
    assert a_wake(state, held=held("cap-day"), wake_at=NOW + 500.0) == NOW + 60.0


def moving(*, b: str = "n2") -> ClusterState:
    """Return job a on n1, and job b on the node `b`."""
    held = {"a": some_slots("n1", 0, 1), "b": some_slots(b, 2)}
    return a_state(a_job("a"), a_job("b"), nodes=[a_node("n1"), a_node("n2")], held=held, now=NOW)


def test_the_plan_wakes_up_a_second_after_a_move_empties_a_node() -> None:
    """It does not if job b or a GPU of job a stays on the node."""
    plan = a_plan(slots={"a": some_slots("n2", 0, 1)})
    found = schedule_wake_up(moving(), a_draft(plan=plan))
    assert found.plan.wake_at == NOW + 1.0

    shared = a_draft(plan=plan)
    assert schedule_wake_up(moving(b="n1"), shared) is shared
    stays = a_draft(plan=a_plan(slots={"a": some_slots("n2", 0) + some_slots("n1", 0)}))
    assert schedule_wake_up(moving(), stays) is stays
    both = a_plan(slots={"a": some_slots("n2", 0, 1), "b": some_slots("n2", 2)})
    assert schedule_wake_up(moving(b="n1"), a_draft(plan=both)).plan.wake_at == NOW + 1.0


def test_a_node_that_another_job_moves_to_does_not_count_as_empty() -> None:
    """Jobs a and b swap their nodes."""
    draft = a_draft(plan=a_plan(slots={"a": some_slots("n2", 0, 1), "b": some_slots("n1", 3)}))
    assert schedule_wake_up(moving(), draft) is draft


def test_stopping_jobs_and_starting_jobs_empty_no_node() -> None:
    """The draft stays the same in both cases."""
    state = moving()
    stopping = replace(state, jobs={**state.jobs, "a": replace(state.jobs["a"], is_stopping=True)})
    draft = a_draft(plan=a_plan(slots={"a": some_slots("n2", 0, 1)}))
    assert schedule_wake_up(stopping, draft) is draft
    starts = a_draft(plan=a_plan(slots={"a": some_slots("n1", 0)}))
    assert schedule_wake_up(a_state(a_job("a"), nodes=[a_node()]), starts) is starts
