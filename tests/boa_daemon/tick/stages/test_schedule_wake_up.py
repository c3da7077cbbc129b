"""When the next decision is due: at the next round, or soon after a node falls empty."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from drafts import a_draft, a_plan

from boa_daemon.testing import a_job, a_node, a_state, rules, some_slots
from boa_daemon.tick.limits import Held, HeldCode
from boa_daemon.tick.stages.schedule_wake_up import schedule_wake_up
from boa_daemon.tick.state import ClusterState

NOW = 1000.0
ROUNDS = rules(round_seconds=60.0)


def a_wake(state: ClusterState, **changes: Any) -> float | None:
    """Return when a policy with rounds of a minute is asked again."""
    aside = changes.pop("set_aside", {})
    return schedule_wake_up(state, a_draft(site=ROUNDS, set_aside=aside, plan=a_plan(**changes))).plan.wake_at


def test_a_round_lasts_since_the_policy_last_changed_its_mind() -> None:
    """Now, where it has just done so or never has; 20 s ago otherwise."""
    never = a_state(a_job("a"), now=NOW)
    remembers = replace(never, memory=((1.0,), NOW - 20.0))
    assert a_wake(never) == NOW + 60.0
    assert a_wake(remembers) == NOW + 40.0
    assert a_wake(remembers, memory=(2.0,)) == NOW + 60.0
    assert a_wake(remembers, wake_at=NOW + 30.0) == NOW + 30.0


def test_no_round_comes_while_every_job_is_set_aside() -> None:
    """One of two has a part in it: that suffices."""
    state = a_state(a_job("a"), a_job("b"), now=NOW)
    assert a_wake(state, set_aside={"a": "resting", "b": "resting"}) is None
    assert a_wake(state, set_aside={"a": "resting"}) == NOW + 60.0
    assert a_wake(a_state(now=NOW)) is None


def held(code: HeldCode) -> tuple[Held, ...]:
    """Return one thing that is held back."""
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
def test_without_a_node_and_with_none_allowed_only_the_cap_is_waited_for(
    changes: dict[str, Any], wake_at: float
) -> None:
    """What holds back some people alone does not hold back the site."""
    values = {"held": held("cap-day"), "wake_at": NOW + 500.0, **changes}
    assert a_wake(a_state(a_job("a"), now=NOW), **values) == wake_at


def test_with_a_node_rounds_go_on_at_a_cap() -> None:
    """Its GPUs may change hands."""
    state = a_state(a_job("a"), nodes=[a_node()], now=NOW)
    assert a_wake(state, held=held("cap-day"), wake_at=NOW + 500.0) == NOW + 60.0


def moving(*, b: str = "n2") -> ClusterState:
    """Return job a on n1, and b on a node."""
    held = {"a": some_slots("n1", 0, 1), "b": some_slots(b, 2)}
    return a_state(a_job("a"), a_job("b"), nodes=[a_node("n1"), a_node("n2")], held=held, now=NOW)


def test_a_node_that_falls_empty_is_looked_at_in_a_second() -> None:
    """Job a moves from n1 to n2; not so if b is on n1 too, or a stays there with one GPU."""
    plan = a_plan(slots={"a": some_slots("n2", 0, 1)})
    found = schedule_wake_up(moving(), a_draft(plan=plan))
    assert found.plan.wake_at == NOW + 1.0

    shared = a_draft(plan=plan)
    assert schedule_wake_up(moving(b="n1"), shared) is shared
    stays = a_draft(plan=a_plan(slots={"a": some_slots("n2", 0) + some_slots("n1", 0)}))
    assert schedule_wake_up(moving(), stays) is stays
    both = a_plan(slots={"a": some_slots("n2", 0, 1), "b": some_slots("n2", 2)})
    assert schedule_wake_up(moving(b="n1"), a_draft(plan=both)).plan.wake_at == NOW + 1.0


def test_a_node_that_another_job_takes_is_not_empty() -> None:
    """They swap."""
    draft = a_draft(plan=a_plan(slots={"a": some_slots("n2", 0, 1), "b": some_slots("n1", 3)}))
    assert schedule_wake_up(moving(), draft) is draft


def test_a_job_that_is_stopping_empties_nothing_yet_and_a_start_nothing_at_all() -> None:
    """Its GPUs fall free when it has let go."""
    state = moving()
    stopping = replace(state, jobs={**state.jobs, "a": replace(state.jobs["a"], is_stopping=True)})
    draft = a_draft(plan=a_plan(slots={"a": some_slots("n2", 0, 1)}))
    assert schedule_wake_up(stopping, draft) is draft
    starts = a_draft(plan=a_plan(slots={"a": some_slots("n1", 0)}))
    assert schedule_wake_up(a_state(a_job("a"), nodes=[a_node()]), starts) is starts
