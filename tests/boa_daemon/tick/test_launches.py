"""Cutting launches: never more than allowed, and what belongs together comes whole or not at all."""

from __future__ import annotations

from dataclasses import replace

import pytest
from drafts import a_plan
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.testing import a_node, a_state, an_instance_type, rules, some_slots
from boa_daemon.tick.launches import (
    blank_nodes,
    coming_nodes,
    count_by_type,
    cut_launches,
    gangs_of,
    launches_left,
    within_node_limit,
    without_gangs,
)
from boa_daemon.tick.state import Plan


@given(
    gangs=st.lists(st.integers(2, 5), max_size=4).map(tuple),
    loose=st.integers(0, 5),
    allowed=st.integers(0, 30),
)
def test_gangs_are_cut_as_a_whole_and_the_rest_by_the_node(
    gangs: tuple[int, ...], loose: int, allowed: int
) -> None:
    """In order, each gang that fits, then single nodes; types that nobody named stay."""
    count = sum(gangs) + loose
    plan = Plan(widths={}, slots={}, launches={"m": count, "other": 3}, gangs={"m": gangs, "other": (2,)})
    found = cut_launches(
        replace(plan, launches={"other": 3} if count == 0 else plan.launches), {"m": allowed}
    )
    left, kept = found.launches.get("m", 0), found.gangs.get("m", ())
    assert found.launches["other"] == 3
    assert found.gangs["other"] == (2,)
    assert 0 <= left <= min(count, allowed)
    assert sum(kept) <= left <= sum(kept) + loose
    assert "m" not in found.launches or found.launches["m"] > 0
    rest, expected = allowed, []
    for size in gangs:
        if size <= rest:
            expected.append(size)
            rest -= size
    assert kept == tuple(expected)
    assert left == sum(expected) + min(loose, rest)
    if count:
        assert launches_left(plan, "m", allowed) == left


def test_a_limit_on_nodes_counts_those_that_are_there_or_come() -> None:
    """One ready and one requested of five leave three, first come first served; stopped ones do not count."""
    nodes = [
        a_node("n1"),
        a_node("n2", phase="requested"),
        a_node("n3", phase="stopped"),
        a_node("n4", phase="terminating"),
    ]
    state = a_state(nodes=nodes)
    wanted = {"a": 2, "b": 4, "c": 1}
    assert count_by_type(nodes) == {"gpu-x4": 2}
    assert within_node_limit(state, wanted, rules()) == wanted
    assert within_node_limit(state, wanted, rules(max_nodes=5)) == {"a": 2, "b": 1}
    assert within_node_limit(state, wanted, rules(max_nodes=2)) == {}
    leaving = replace(nodes[1], id="n5", ends_by=9.0)
    assert [node.id for node in coming_nodes(a_state(nodes=[*nodes, leaving]))] == ["n2"]


@pytest.mark.parametrize(
    ("jobs", "gangs"),
    [
        ([(0,), (1,)], {}),
        ([(0, 1), (2,)], {"gpu-x4": (2,)}),
        ([(0, 1), (2, 3)], {"gpu-x4": (2, 2)}),
        ([(0, 1), (1, 2)], {"gpu-x4": (3,)}),
        ([(0, 1), (2, 3), (1, 3)], {"gpu-x4": (4,)}),
    ],
)
def test_jobs_tie_new_nodes_together(jobs: list[tuple[int, ...]], gangs: dict[str, tuple[int, ...]]) -> None:
    """Nodes that a chain of jobs spans are one gang; a node that is there ties nothing."""
    new = [node.id for node in blank_nodes(an_instance_type(), 0, 4)]
    assert new == [f"new-gpu-x4-{number}" for number in range(4)]
    placed = {
        str(job): tuple(slot for number in numbers for slot in some_slots(new[number], job))
        for job, numbers in enumerate(jobs)
    }
    placed["old"] = some_slots("n1", 0) + some_slots(new[0], 3)
    assert gangs_of(placed, dict.fromkeys(new, "gpu-x4")) == gangs
    assert gangs_of(placed, {}) == {}


def test_gangs_of_a_size_that_is_closed_are_not_launched() -> None:
    """Two of two nodes go, one of three and one loose node stay; a type without any launch is left out."""
    gangs = {"m": (2, 3, 2), "other": (2,)}
    plan = a_plan(launches={"m": 8, "other": 2, "plain": 1}, gangs=gangs)
    left = without_gangs(plan, {("m", 2), ("other", 2), ("plain", 2)})
    assert (left.launches, left.gangs) == ({"m": 1 + 3, "plain": 1}, {"m": (3,)})
    assert without_gangs(plan, {("m", 5)}) is plan


def test_nodes_that_come_and_new_ones_are_as_if_they_were_here() -> None:
    """A placer may use them."""
    (coming,) = coming_nodes(a_state(nodes=[a_node("n2", phase="requested")]))
    assert (coming.id, coming.is_ready) == ("n2", True)
    assert all(node.is_ready for node in blank_nodes(an_instance_type(), 0, 2))
