"""Launches are cut to what is allowed, and nodes that belong together come whole or not at all."""

from __future__ import annotations

from dataclasses import replace

import pytest
from drafts import a_plan
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.testing import a_node, a_state, an_instance_type, rules, some_slots
from boa_daemon.tick.room.launches import (
    blank_nodes,
    coming_nodes,
    count_by_type,
    cut_launches,
    gangs_of,
    launches_left,
    within_node_limit,
    without_gangs,
)


@given(
    gangs=st.lists(st.integers(2, 5), max_size=4).map(tuple),
    loose=st.integers(0, 5),
    allowed=st.integers(0, 30),
)
def test_gangs_are_cut_as_a_whole_and_single_nodes_one_by_one(
    gangs: tuple[int, ...], loose: int, allowed: int
) -> None:
    """Gangs that fit are kept in order, then single nodes; types without a limit stay."""
    count = sum(gangs) + loose
    plan = a_plan(launches={"m": count, "other": 3}, gangs={"m": gangs, "other": (2,)})
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


def test_the_node_limit_counts_ready_and_requested_nodes() -> None:
    """With one ready and one requested node, a limit of five leaves three launches, in their order."""
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
def test_new_nodes_that_a_chain_of_jobs_spans_are_one_gang(
    jobs: list[tuple[int, ...]], gangs: dict[str, tuple[int, ...]]
) -> None:
    """A present node does not join new nodes into a gang."""
    new = [node.id for node in blank_nodes(an_instance_type(), 0, 4)]
    assert new == [f"new-gpu-x4-{number}" for number in range(4)]
    placed = {
        str(job): tuple(slot for number in numbers for slot in some_slots(new[number], job))
        for job, numbers in enumerate(jobs)
    }
    placed["old"] = some_slots("n1", 0) + some_slots(new[0], 3)
    assert gangs_of(placed, dict.fromkeys(new, "gpu-x4")) == gangs
    assert gangs_of(placed, {}) == {}


@pytest.mark.parametrize(
    ("nodes", "gangs"), [((0,), {}), ((0, 1), {"gpu-x4": (2,)}), ((2, 0, 3), {"gpu-x4": (3,)})]
)
def test_a_job_alone_makes_the_same_gang_as_beside_a_job_on_an_old_node(
    nodes: tuple[int, ...], gangs: dict[str, tuple[int, ...]]
) -> None:
    """Its new nodes are one gang; an old node is not part of it."""
    new = [node.id for node in blank_nodes(an_instance_type(), 0, 4)]
    job = some_slots("n1", 0) + tuple(slot for number in nodes for slot in some_slots(new[number], 0, 1))
    blank = dict.fromkeys(new, "gpu-x4")
    assert gangs_of({"a": job}, blank) == gangs
    assert gangs_of({"a": job, "b": some_slots("n1", 1)}, blank) == gangs


def test_gangs_of_a_closed_size_are_not_launched() -> None:
    """Both gangs of two nodes are dropped; the gang of three and a single node stay."""
    gangs = {"m": (2, 3, 2), "other": (2,)}
    plan = a_plan(launches={"m": 8, "other": 2, "plain": 1}, gangs=gangs)
    left = without_gangs(plan, {("m", 2), ("other", 2), ("plain", 2)})
    assert (left.launches, left.gangs) == ({"m": 1 + 3, "plain": 1}, {"m": (3,)})
    assert without_gangs(plan, {("m", 5)}) is plan


def test_coming_and_new_nodes_count_as_ready_for_a_placer() -> None:
    """So a placer may use them."""
    (coming,) = coming_nodes(a_state(nodes=[a_node("n2", phase="requested")]))
    assert (coming.id, coming.is_ready) == ("n2", True)
    assert all(node.is_ready for node in blank_nodes(an_instance_type(), 0, 2))
