"""Lent GPUs go back to waiting jobs that can then start; jobs that give most are asked first."""

from __future__ import annotations

from typing import Any

import pytest
from drafts import asking, gpus

from boa_daemon.testing import a_job, a_node, a_state, some_slots
from boa_daemon.tick.facts.draft import Draft
from boa_daemon.tick.facts.placeable_nodes import PlaceableNodes
from boa_daemon.tick.facts.state import ClusterState
from boa_daemon.tick.stages.places.call_back import _givers, call_back
from policies.answer import Allocation
from policies.model import Width
from policies.placement.first_fit import FirstFit

LENT = gpus(a=1, b=1)


def lending() -> ClusterState:
    """Return jobs a (three GPUs) and b (two GPUs), both planned on one GPU, and three waiting jobs."""
    held = {"a": some_slots("n1", 0, 1, 2), "b": some_slots("n2", 0, 1)}
    jobs = map(a_job, ("a", "b", "x", "y", "z"))
    return a_state(*jobs, nodes=[a_node("n1"), a_node("n2")], held=held)


@pytest.mark.parametrize(
    ("waiting", "free", "givers"),
    [
        ((1,), 0, "a"),
        ((2,), 0, "a"),
        ((3,), 0, "ab"),
        ((4,), 0, ""),
        ((4,), 1, "ab"),
        ((3,), 1, "a"),
        ((3,), 3, ""),
        ((1,), 1, ""),
        ((1, 1), 0, "a"),
        ((2, 1), 0, "ab"),
        ((9, 2), 0, "a"),
        ((3, 1), 0, "ab"),
        ((1, 2), 0, "ab"),
        ((1, 1, 1), 0, "ab"),
        ((2, 2), 0, "a"),
    ],
)
def test_lent_gpus_are_called_back_from_as_few_jobs_as_the_waiting_jobs_need(
    waiting: tuple[int, ...], free: int, givers: str
) -> None:
    """Job a gives two GPUs and b one; no job gives GPUs if the waiting job still would not fit."""
    widths = [Width("gpu", count) for count in waiting]
    found = _givers(lending(), LENT, widths, {"gpu": free} if free else {})
    assert "".join(found) == givers
    assert found == {job: LENT[job] for job in givers}


def test_gpus_of_another_type_are_not_called_back() -> None:
    """Neither lent nor free GPUs of another type help the waiting job."""
    assert _givers(lending(), LENT, [Width("other", 1)], {"gpu": 4}) == {}


def test_the_first_of_two_jobs_that_give_the_same_is_asked() -> None:
    """Both jobs would give one GPU."""
    assert list(_givers(lending(), gpus(a=2, b=1), [Width("gpu", 1)], {})) == ["a"]


def a_wish(**changes: Any) -> Draft:
    """Return a draft in which job x needs two GPUs and jobs a and b hold lent GPUs."""
    state = lending()
    room = PlaceableNodes(state, leaving=LENT.keys() | {"x"}, stopped=frozenset(), placer=FirstFit())
    return asking(state, gpus(x=2), **({"lent": LENT, "room": room} | changes))


def test_gpus_that_are_called_back_are_placed_in_the_same_tick() -> None:
    """Three GPUs are free: job x on two calls nothing back; on four it starts as job a shrinks to one."""
    state = lending()
    draft = a_wish()
    assert call_back(state, draft) is draft
    more = asking(state, gpus(x=4), lent=gpus(a=1), room=draft.room)
    found = call_back(state, more)
    assert found.plan.jobs.widths == gpus(x=4, a=1)
    assert {job: len(slots) for job, slots in found.plan.jobs.slots.items()} == {"a": 1, "x": 4}


@pytest.mark.parametrize(
    "changes", [{"lent": {}}, {"room": None}, {"allocation": Allocation(widths={}, nodes={"gpu-x4": 2})}]
)
def test_nothing_is_called_back_without_lent_gpus_or_placeable_nodes_or_in_a_fixed_fleet(
    changes: dict[str, Any],
) -> None:
    """The stage returns the same draft although job x does not fit."""
    state = lending()
    draft = asking(state, gpus(x=4), **({"lent": LENT, "room": a_wish().room} | changes))
    assert call_back(state, draft) is draft
