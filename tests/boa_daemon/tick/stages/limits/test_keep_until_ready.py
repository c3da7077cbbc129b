"""A move waits while the next nodes do not have what the job needs, and the record says so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from boa_daemon.testing import Wishes, a_job, a_node, a_state, rules, some_slots
from boa_daemon.tick.decide.decision import decide
from boa_daemon.tick.facts.actions import StartJob, StopJob
from boa_daemon.tick.facts.codec import dumps, loads
from boa_daemon.tick.facts.state import ClusterState
from policies.placement.first_fit import FirstFit
from policies.registry import find_placer


def widened(state: ClusterState) -> tuple[list[object], list[str], str, float | None]:
    """Return actions, held codes, explanation and wake-up of a decision that gives job a two GPUs."""
    found = decide(state, allocator=Wishes(widths={"a": 2}), placer=FirstFit(), rules=rules())
    kinds: list[object] = [type(action) for action in found.actions if isinstance(action, StartJob | StopJob)]
    return kinds, [held.code for held in found.plan.held], found.explain("a"), found.wake_at


def test_a_job_stays_on_its_gpus_until_its_next_nodes_are_ready() -> None:
    """There is no stop and no start, the explanation says why, and the plan wakes up a second later."""
    state = a_state(a_job("a"), nodes=[a_node("n")], held={"a": some_slots("n", 0)}, now=50.0)
    assert widened(state)[:2] == ([StopJob, StartJob], [])
    waits = replace(state, not_ready=frozenset({"a"}))
    kinds, held, text, wake_at = widened(waits)
    assert (kinds, held, wake_at) == ([], ["not-ready"], 51.0)
    assert "It starts now" not in text
    assert "Held back: its next nodes do not have what it needs yet" in text
    assert widened(loads(dumps(waits))) == (kinds, held, text, wake_at), "a replay decides the same"


@pytest.mark.parametrize("name", ["b", "nobody"])
def test_a_waiting_or_unknown_job_that_is_not_ready_changes_nothing(name: str) -> None:
    """Only a running job that moves is held back."""
    state = a_state(a_job("a"), a_job("b"), nodes=[a_node("n")], held={"a": some_slots("n", 0)})
    assert widened(replace(state, not_ready=frozenset({name}))) == widened(state)


def test_a_job_on_an_ending_node_is_stopped_even_if_its_next_nodes_are_not_ready() -> None:
    """It moves to the other node."""
    node = replace(a_node("n"), ends_by=500.0)
    state = a_state(a_job("a"), nodes=[node, a_node("m")], held={"a": some_slots("n", 0)})
    assert widened(replace(state, not_ready=frozenset({"a"})))[:2] == ([StopJob, StartJob], [])


def decided(state: ClusterState, **gpus: int) -> tuple[list[tuple[str, str]], dict[str, str]]:
    """Return the orders to stop and start, and what is held back, under these widths."""
    found = decide(state, allocator=Wishes(widths=gpus), placer=find_placer("lwf"), rules=rules())
    orders = [
        ("stop" if isinstance(action, StopJob) else "start", action.job)
        for action in found.actions
        if isinstance(action, StartJob | StopJob)
    ]
    return orders, {held.what: held.code for held in found.plan.held}


def test_a_postponed_job_keeps_its_gpus_and_the_next_job_waits_for_them() -> None:
    """Job a stays on n instead of moving to m, so job b does not start on n."""
    nodes = [a_node("n", gpus=1), a_node("m", gpus=4)]
    state = a_state(a_job("a"), a_job("b"), nodes=nodes, held={"a": some_slots("n", 0)})
    assert decided(state, a=4, b=1)[0] == [("stop", "a"), ("start", "a"), ("start", "b")]
    orders, held = decided(replace(state, not_ready=frozenset({"a"})), a=4, b=1)
    assert (orders, held) == ([], {"job a": "not-ready", "job b": "not-free"})


def test_jobs_that_need_the_gpus_of_postponed_jobs_are_postponed_too() -> None:
    """Job b waits for a's GPUs and c for b's; if b's node ends, b stops without a new start."""
    nodes = [a_node("n", gpus=2), a_node("m", gpus=1), a_node("o", gpus=4)]
    holds = {"a": some_slots("n", 0, 1), "b": some_slots("m", 0)}
    state = a_state(a_job("a"), a_job("b"), a_job("c"), nodes=nodes, held=holds)
    assert len(decided(state, a=4, b=2, c=1)[0]) == 5
    waits = replace(state, not_ready=frozenset({"a"}))
    orders, held = decided(waits, a=4, b=2, c=1)
    assert (orders, held) == ([], {"job a": "not-ready", "job b": "not-free", "job c": "not-free"})
    ends = {**waits.nodes, "m": replace(waits.nodes["m"], ends_by=100.0)}
    orders, held = decided(replace(waits, nodes=ends), a=4, b=2)
    assert orders == [("stop", "b")], "it has to leave, and what it is to have is not free yet"
    assert held == {"job a": "not-ready", "job b": "not-free"}


def test_a_shrinking_job_keeps_all_its_gpus_until_it_is_ready() -> None:
    """Job b, which needs three of them, waits."""
    state = a_state(a_job("a"), a_job("b"), nodes=[a_node("m")], held={"a": some_slots("m", 0, 1, 2, 3)})
    assert decided(state, a=1, b=3)[0] == [("stop", "a"), ("start", "a"), ("start", "b")]
    orders, held = decided(replace(state, not_ready=frozenset({"a"})), a=1, b=3)
    assert (orders, held) == ([], {"job a": "not-ready", "job b": "not-free"})
