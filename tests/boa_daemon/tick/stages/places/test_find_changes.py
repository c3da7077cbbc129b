"""The stage finds the jobs that must move, start or stop, their order, and the nodes with room for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from drafts import a_draft, gpus, with_columns

from boa_daemon.testing import a_job, a_node, a_state, an_instance_type, some_slots
from boa_daemon.tick.facts.draft import Changes, Draft
from boa_daemon.tick.facts.state import ClusterState, NodePhase
from boa_daemon.tick.stages.places.find_changes import find_changes
from policies.model import Width

NOW = 1000.0


def running(*, ends_by: float | None = None, phase: NodePhase = "ready") -> ClusterState:
    """Return job a on n1, which may end, job b on n2, and the waiting job c."""
    nodes = [replace(a_node("n1"), ends_by=ends_by, phase=phase), a_node("n2")]
    held = {"a": some_slots("n1", 0, 1), "b": some_slots("n2", 0, 1)}
    return a_state(*map(a_job, "abc"), nodes=nodes, held=held, now=NOW)


def changed(state: ClusterState, widths: Mapping[str, Width], **changes: Any) -> Draft:
    """Return the draft after the stage."""
    return find_changes(state, a_draft(widths, **changes))


def test_a_job_that_holds_its_width_does_not_change_and_one_without_a_width_stops() -> None:
    """Job c holds nothing and has no width, so there is nothing to stop."""
    draft = a_draft(gpus(a=2, b=2))
    same = find_changes(running(), draft)
    assert (same.changes, same.room, same.plan.jobs.widths) == (Changes(), None, gpus(a=2, b=2))
    assert changed(running(), gpus(b=2)).changes == Changes(stops=("a",))


def test_shrinking_jobs_come_first_then_the_order_of_service_then_of_arrival() -> None:
    """Job c starts before a grows only if the policy's order says so."""
    wishes = gpus(a=3, b=1, c=1)
    assert list(changed(running(), wishes).changes.wishes) == ["b", "a", "c"]
    ordered = changed(running(), wishes, policy={"order": ("c",)})
    assert list(ordered.changes.wishes) == ["b", "c", "a"]


def test_a_job_that_changes_its_gpu_type_is_not_treated_as_shrinking() -> None:
    """Job b moves to another type after job a, which grows."""
    found = changed(running(), {**gpus(a=3), "b": Width("other", 1)})
    assert list(found.changes.wishes) == ["a", "b"]


def test_a_stopping_job_neither_stops_again_nor_moves() -> None:
    """No change is found for stopping jobs."""
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
    """If the end is further off, the plan wakes up two minutes before it."""
    found = changed(running(ends_by=NOW + left_seconds), gpus(a=2, b=2))
    assert found.changes == Changes(wishes=gpus(a=2), leaving=leaving)
    assert found.plan.wake_at == wake_at


def test_the_plan_wakes_up_for_the_first_node_end_that_is_still_to_come() -> None:
    """Nodes end in 100, 200 and 300 s: the next tick is in 80 s, two minutes before the second end."""
    nodes = [replace(a_node(f"n{at}"), ends_by=NOW + at) for at in (100.0, 300.0, 200.0)]
    state = a_state(a_job("c"), nodes=nodes, now=NOW)
    assert changed(state, gpus(c=1)).plan.wake_at == NOW + 80.0


def test_a_shrinking_job_on_an_ending_node_moves_in_its_turn() -> None:
    """Job b, which shrinks on its own node, comes before it."""
    found = changed(running(ends_by=NOW + 500.0), gpus(a=1, b=1))
    assert list(found.changes.wishes) == ["b", "a"]
    assert changed(running(phase="terminating"), gpus(a=2, b=2)).changes.wishes == gpus(a=2)


def test_a_job_that_changes_its_market_moves_and_its_node_takes_no_job() -> None:
    """Job b moves to the two free GPUs of n1, and job c finds no room on n2."""
    found = changed(running(), gpus(a=2, b=2), other_market=frozenset({"b"}))
    assert found.changes.wishes == gpus(b=2)
    assert found.room is not None
    assert found.room.place(gpus(b=2)) == {"b": some_slots("n1", 2, 3)}
    assert set(found.room.place(gpus(b=2, c=1))) == {"b"}


def test_lent_gpus_of_a_job_that_changes_anyway_are_no_longer_recorded() -> None:
    """Only job b keeps its lent GPUs, and b can be placed on the nodes with room."""
    found = changed(running(), gpus(a=4, b=2), lent=gpus(a=1, b=1))
    assert found.lent == gpus(b=1)
    assert found.room is not None
    assert found.room.place(gpus(b=1)) == {"b": some_slots("n2", 0)}


def test_gpus_of_stopping_jobs_can_be_planned_and_leaving_jobs_close_their_node() -> None:
    """Job b stops, so c gets all four GPUs of n2; the node that job a must leave takes no job."""
    found = changed(running(), gpus(a=2, c=4))
    assert found.room is not None
    assert found.room.place(gpus(c=4)) == {"c": some_slots("n2", 0, 1, 2, 3)}
    leaving = changed(running(ends_by=NOW + 60.0), gpus(a=2, b=2, c=2))
    assert leaving.room is not None
    assert set(leaving.room.place(gpus(c=2, a=2))) == {"c"}


def test_an_unchanged_plan_is_returned_as_the_same_object() -> None:
    """Where something changes, or the fleet is fixed, the plan lists the instance types."""
    widths = gpus(a=2, b=2)
    draft = a_draft(widths)
    draft = replace(draft, plan=with_columns(draft.plan, widths=draft.allocation.widths))
    assert find_changes(running(), draft) is draft
    assert changed(running(), gpus(a=1)).plan.instance_types == {"gpu-x4": an_instance_type()}
    fleet = changed(running(), widths, policy={"nodes": {"gpu-x4": 2}})
    assert fleet.plan.instance_types == {"gpu-x4": an_instance_type()}
    assert fleet.room is None


def test_jobs_behind_a_stopping_job_still_change() -> None:
    """Job a is stopping; c still gets two GPUs."""
    state = a_state(*(a_job(name) for name in "abc"), nodes=[a_node("n1")], held={"a": some_slots("n1", 0)})
    stopping = replace(state.jobs["a"], is_stopping=True)
    found = find_changes(replace(state, jobs={**state.jobs, "a": stopping}), a_draft(gpus(a=2, c=2)))
    assert found.changes.wishes == gpus(c=2)


@pytest.mark.parametrize("phase", ["ready", "requested", "stopped"])
def test_jobs_are_placed_again_only_from_nodes_that_end(phase: Any) -> None:
    """On a node in another phase a job at its width keeps it."""
    node = a_node("n1", phase=phase)
    state = a_state(a_job("a"), nodes=[node], held={"a": some_slots("n1", 0)})
    draft = a_draft(gpus(a=1))
    assert find_changes(state, draft).changes.wishes == {}
    ending = replace(state.nodes["n1"], phase="terminating")
    assert find_changes(replace(state, nodes={"n1": ending}), draft).changes.wishes == gpus(a=1)


def test_nodes_with_room_are_those_of_moving_and_stopping_jobs_and_of_lent_gpus() -> None:
    """Job a moves, b stops, c holds lent GPUs; d stays, so its full node has no room."""
    jobs = {name: some_slots(f"n-{name}", 0, 1, 2, 3) for name in "abcd"}
    nodes = [a_node(f"n-{name}") for name in "abcd"]
    state = a_state(*(a_job(name) for name in jobs), nodes=nodes, held=jobs)
    draft = a_draft(gpus(a=3, c=4, d=4), lent=gpus(c=2))
    found = find_changes(state, draft)
    assert found.room is not None
    assert set(found.room._nodes) == {"n-a", "n-b", "n-c"}
