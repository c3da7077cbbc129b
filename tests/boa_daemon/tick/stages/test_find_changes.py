"""Who is to move, start or stop, in which order, and on which nodes there is room for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from drafts import a_draft, gpus

from boa_daemon.testing import a_job, a_node, a_state, an_instance_type, some_slots
from boa_daemon.tick.draft import Changes, Draft
from boa_daemon.tick.stages.find_changes import find_changes
from boa_daemon.tick.state import ClusterState, NodePhase
from policies.model import Width

NOW = 1000.0


def running(*, ends_by: float | None = None, phase: NodePhase = "ready") -> ClusterState:
    """Return a on n1, which may end, b on n2, and c that waits."""
    nodes = [replace(a_node("n1"), ends_by=ends_by, phase=phase), a_node("n2")]
    held = {"a": some_slots("n1", 0, 1), "b": some_slots("n2", 0, 1)}
    return a_state(*map(a_job, "abc"), nodes=nodes, held=held, now=NOW)


def changed(state: ClusterState, widths: Mapping[str, Width], **changes: Any) -> Draft:
    """Return the draft after the stage."""
    return find_changes(state, a_draft(widths, **changes))


def test_a_job_that_holds_its_width_is_not_touched_and_one_without_a_width_stops() -> None:
    """c holds nothing and is to hold nothing: there is nothing to stop."""
    draft = a_draft(gpus(a=2, b=2))
    same = find_changes(running(), draft)
    assert (same.changes, same.room, same.plan.widths) == (Changes(), None, gpus(a=2, b=2))
    assert changed(running(), gpus(b=2)).changes == Changes(stops=("a",))


def test_those_that_shrink_come_first_then_the_order_of_service_then_of_arrival() -> None:
    """b gives one back; c starts before a grows only where the policy says so."""
    wishes = gpus(a=3, b=1, c=1)
    assert list(changed(running(), wishes).changes.wishes) == ["b", "a", "c"]
    ordered = changed(running(), wishes, policy={"order": ("c",)})
    assert list(ordered.changes.wishes) == ["b", "c", "a"]


def test_as_many_gpus_of_another_type_are_no_part_of_what_is_held() -> None:
    """b goes to another type: after a, which grows."""
    found = changed(running(), {**gpus(a=3), "b": Width("other", 1)})
    assert list(found.changes.wishes) == ["a", "b"]


def test_a_job_that_is_stopping_is_left_alone() -> None:
    """It neither stops again nor moves."""
    state = running()
    jobs = {name: replace(job, is_stopping=name != "c") for name, job in state.jobs.items()}
    assert changed(replace(state, jobs=jobs), gpus(a=4)).changes == Changes()


@pytest.mark.parametrize(
    ("left_seconds", "leaving", "wake_at"),
    [(121.0, (), NOW + 1.0), (120.0, ("a",), None), (119.0, ("a",), None), (300.0, (), NOW + 180.0)],
)
def test_jobs_move_off_a_node_that_ends_and_leave_it_two_minutes_before(
    left_seconds: float, leaving: tuple[str, ...], wake_at: float | None
) -> None:
    """The alarm is set for that instant."""
    found = changed(running(ends_by=NOW + left_seconds), gpus(a=2, b=2))
    assert found.changes == Changes(wishes=gpus(a=2), leaving=leaving)
    assert found.plan.wake_at == wake_at


def test_the_first_alarm_counts_and_none_that_is_past() -> None:
    """Ends in 100, 300 and 200 s: the next look is in 80 s."""
    nodes = [replace(a_node(f"n{at}"), ends_by=NOW + at) for at in (100.0, 300.0, 200.0)]
    state = a_state(a_job("c"), nodes=nodes, now=NOW)
    assert changed(state, gpus(c=1)).plan.wake_at == NOW + 80.0


def test_a_shrinking_job_on_a_node_that_ends_does_not_stay_there() -> None:
    """It moves in its turn, as one that grows does; b, which shrinks at home, comes first."""
    found = changed(running(ends_by=NOW + 500.0), gpus(a=1, b=1))
    assert list(found.changes.wishes) == ["b", "a"]
    assert changed(running(phase="terminating"), gpus(a=2, b=2)).changes.wishes == gpus(a=2)


def test_a_job_that_is_to_be_on_another_market_moves_at_its_width_and_its_node_is_closed() -> None:
    """b may not stay on n2, and nobody else is placed there; n1 has two free GPUs."""
    found = changed(running(), gpus(a=2, b=2), other_market=frozenset({"b"}))
    assert found.changes.wishes == gpus(b=2)
    assert found.room is not None
    assert found.room.place(gpus(b=2)) == {"b": some_slots("n1", 2, 3)}
    assert set(found.room.place(gpus(b=2, c=1))) == {"b"}


def test_what_is_lent_to_a_job_that_changes_anyway_is_no_loan() -> None:
    """a is to change: only b keeps its note. Those who were lent GPUs may be moved in the room."""
    found = changed(running(), gpus(a=4, b=2), lent=gpus(a=1, b=1))
    assert found.lent == gpus(b=1)
    assert found.room is not None
    assert found.room.place(gpus(b=1)) == {"b": some_slots("n2", 0)}


def test_gpus_of_jobs_that_stop_or_leave_are_free_in_the_room() -> None:
    """b stops: c gets all four of its node. Where a has to leave, its node is closed to everybody."""
    found = changed(running(), gpus(a=2, c=4))
    assert found.room is not None
    assert found.room.place(gpus(c=4)) == {"c": some_slots("n2", 0, 1, 2, 3)}
    leaving = changed(running(ends_by=NOW + 60.0), gpus(a=2, b=2, c=2))
    assert leaving.room is not None
    assert set(leaving.room.place(gpus(c=2, a=2))) == {"c"}


def test_a_plan_that_has_the_widths_already_is_the_same_plan() -> None:
    """Nothing is made anew where nothing changes; instance types are named where something does."""
    widths = gpus(a=2, b=2)
    draft = a_draft(widths)
    draft = replace(draft, plan=replace(draft.plan, widths=draft.allocation.widths))
    assert find_changes(running(), draft) is draft
    assert changed(running(), gpus(a=1)).plan.instance_types == {"gpu-x4": an_instance_type()}
    fleet = changed(running(), widths, policy={"nodes": {"gpu-x4": 2}})
    assert fleet.plan.instance_types == {"gpu-x4": an_instance_type()}
    assert fleet.room is None


def test_a_job_that_stops_already_keeps_no_later_one_from_its_change() -> None:
    """a stops, b keeps what it has, c widens."""
    state = a_state(*(a_job(name) for name in "abc"), nodes=[a_node("n1")], held={"a": some_slots("n1", 0)})
    stopping = replace(state.jobs["a"], is_stopping=True)
    found = find_changes(replace(state, jobs={**state.jobs, "a": stopping}), a_draft(gpus(a=2, c=2)))
    assert found.changes.wishes == gpus(c=2)


@pytest.mark.parametrize("phase", ["ready", "requested", "stopped"])
def test_only_nodes_that_end_have_their_jobs_placed_again(phase: Any) -> None:
    """A job at its width on another keeps it."""
    node = a_node("n1", phase=phase)
    state = a_state(a_job("a"), nodes=[node], held={"a": some_slots("n1", 0)})
    draft = a_draft(gpus(a=1))
    assert find_changes(state, draft).changes.wishes == {}
    ending = replace(state.nodes["n1"], phase="terminating")
    assert find_changes(replace(state, nodes={"n1": ending}), draft).changes.wishes == gpus(a=1)


def test_room_is_what_is_free_and_what_movers_those_that_stop_and_those_that_are_lent_to_hold() -> None:
    """a moves, b stops, c is lent GPUs; d stays, so its full node is no room."""
    jobs = {name: some_slots(f"n-{name}", 0, 1, 2, 3) for name in "abcd"}
    nodes = [a_node(f"n-{name}") for name in "abcd"]
    state = a_state(*(a_job(name) for name in jobs), nodes=nodes, held=jobs)
    draft = a_draft(gpus(a=3, c=4, d=4), lent=gpus(c=2))
    found = find_changes(state, draft)
    assert found.room is not None
    assert set(found.room._nodes) == {"n-a", "n-b", "n-c"}
