"""Lent GPUs go back to jobs that wait, if those can then start; who gives most is asked first."""

from __future__ import annotations

from typing import Any

import pytest
from drafts import asking, gpus

from boa_daemon.testing import a_job, a_node, a_state, some_slots
from boa_daemon.tick.draft import Draft
from boa_daemon.tick.placeable_nodes import PlaceableNodes
from boa_daemon.tick.stages.call_back import _givers, call_back
from boa_daemon.tick.state import ClusterState
from policies.answer import Allocation
from policies.model import Width
from policies.placement.first_fit import FirstFit

LENT = gpus(a=1, b=1)


def lending() -> ClusterState:
    """Return a state in which a holds three GPUs, b two, each is planned on one, and three wait."""
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
def test_as_few_are_asked_as_those_who_wait_need_in_their_order(
    waiting: tuple[int, ...], free: int, givers: str
) -> None:
    """a gives two and b one: what is not needed is left for the next, and nobody is asked in vain."""
    widths = [Width("gpu", count) for count in waiting]
    found = _givers(lending(), LENT, widths, {"gpu": free} if free else {})
    assert "".join(found) == givers
    assert found == {job: LENT[job] for job in givers}


def test_gpus_of_another_type_help_nobody() -> None:
    """Neither free ones nor lent ones."""
    assert _givers(lending(), LENT, [Width("other", 1)], {"gpu": 4}) == {}


def test_among_equals_the_first_is_asked() -> None:
    """Both give one."""
    assert list(_givers(lending(), gpus(a=2, b=1), [Width("gpu", 1)], {})) == ["a"]


def a_wish(**changes: Any) -> Draft:
    """Return a draft in which x wishes for two GPUs, and a, b may be asked for theirs."""
    state = lending()
    room = PlaceableNodes(state, leaving=LENT.keys() | {"x"}, stopped=frozenset(), placer=FirstFit())
    return asking(state, gpus(x=2), **({"lent": LENT, "room": room} | changes))


def test_what_is_given_back_is_placed_at_once() -> None:
    """Three GPUs are free: x of two needs nobody; x of four gets them where a lets go of two."""
    state = lending()
    draft = a_wish()
    assert call_back(state, draft) is draft
    more = asking(state, gpus(x=4), lent=gpus(a=1), room=draft.room)
    found = call_back(state, more)
    assert found.plan.widths == gpus(x=4, a=1)
    assert {job: len(slots) for job, slots in found.plan.slots.items()} == {"a": 1, "x": 4}


@pytest.mark.parametrize(
    "changes", [{"lent": {}}, {"room": None}, {"allocation": Allocation(widths={}, nodes={"gpu-x4": 2})}]
)
def test_nobody_is_asked_without_a_loan_a_room_or_where_the_fleet_is_fixed(changes: dict[str, Any]) -> None:
    """Four GPUs would not fit without."""
    state = lending()
    draft = asking(state, gpus(x=4), **({"lent": LENT, "room": a_wish().room} | changes))
    assert call_back(state, draft) is draft
