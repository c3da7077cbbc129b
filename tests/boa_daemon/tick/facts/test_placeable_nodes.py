"""Placeable nodes: which GPUs are free, which jobs may move, and what a placer is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from drafts import gpus
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.testing import (
    Wishes,
    a_job,
    a_node,
    a_policy_node,
    a_state,
    an_instance_type,
    some_slots,
    states,
)
from boa_daemon.tick.facts.offers import Offer
from boa_daemon.tick.facts.placeable_nodes import LatestRoom, PlaceableNodes
from boa_daemon.tick.facts.state import ClusterState, NodeState
from policies.answer import Placement
from policies.model import GpuSlot, JobId, Node, Width
from policies.placement.first_fit import FirstFit
from policies.placement.lwf import LeastWorkloadFirst


@dataclass
class Asked:
    """First fit that records its arguments."""

    seen: list[tuple[dict[JobId, Width], list[str], dict[JobId, tuple[GpuSlot, ...]]]] = field(
        default_factory=list
    )

    def place(
        self,
        widths: Mapping[JobId, Width],
        *,
        nodes: Sequence[Node],
        held: Mapping[JobId, tuple[GpuSlot, ...]],
    ) -> Placement:
        """Record the arguments and return the answer of first fit."""
        self.seen.append((dict(widths), [node.id for node in nodes], dict(held)))
        return FirstFit().place(widths, nodes=nodes, held=held)


def a_room(state: ClusterState, leaving: str = "", **changes: Any) -> PlaceableNodes:
    """Return the placeable nodes of a state in which the jobs in `leaving` may move."""
    values: dict[str, Any] = {"stopped": frozenset(), "placer": FirstFit()}
    return PlaceableNodes(state, leaving=set(leaving), **(values | changes))


def two(**changes: Any) -> ClusterState:
    """Return job a on n1 (three GPUs), b on n2 (two), f on all of n3, and the waiting jobs c and d."""
    held = {"a": some_slots("n1", 0, 1, 2), "b": some_slots("n2", 0, 1), "f": some_slots("n3", 0, 1, 2, 3)}
    nodes = [a_node("n1"), a_node("n2"), a_node("n3")]
    return a_state(*map(a_job, "abcdf"), nodes=nodes, held=held, **changes)


def test_the_placer_gets_nodes_with_a_free_gpu_or_a_job_that_may_move() -> None:
    """The full node n3 is included only if its job may move; staying jobs hold their GPUs."""
    placer = Asked()
    a_room(two(), placer=placer).place(gpus(c=1))
    widths, nodes, held = placer.seen[0]
    assert (widths, nodes) == (gpus(a=3, b=2, c=1), ["n1", "n2"])
    assert held == {"a": some_slots("n1", 0, 1, 2), "b": some_slots("n2", 0, 1)}
    a_room(two(), "f", placer=placer).place(gpus(c=1))
    assert placer.seen[1][1] == ["n1", "n2", "n3"]


@pytest.mark.parametrize(
    "changes", [{"phase": "requested"}, {"phase": "terminating"}, {"phase": "stopped"}, {"ends_by": 9.0}]
)
def test_no_job_is_placed_on_a_node_that_is_not_ready_or_ends_or_is_closed(changes: dict[str, Any]) -> None:
    """Only the one free GPU of n1 is left."""
    state = two()
    ends = replace(state, nodes={**state.nodes, "n2": replace(state.nodes["n2"], **changes)})
    for room in (a_room(ends, "b"), a_room(state, "b", closed={"n2"})):
        assert room.free_gpus() == {"gpu": 1}
        assert room.place(gpus(c=2)) == {}


def test_gpus_of_stopped_jobs_are_free_and_those_of_movable_jobs_are_their_own() -> None:
    """Job b may move: its two GPUs are its own until it does."""
    assert a_room(two()).free_gpus() == {"gpu": 3}
    assert a_room(two(), "b").free_gpus() == {"gpu": 3}
    assert a_room(two(), "b", stopped=frozenset("b")).free_gpus() == {"gpu": 5}
    room = a_room(two(), "b")
    assert room.place(gpus(c=4)) == {}
    assert room.place(gpus(b=4)) == {"b": some_slots("n2", 0, 1, 2, 3)}


def test_a_running_job_that_does_not_fit_keeps_its_gpus() -> None:
    """Job b wants nine GPUs and keeps two, so c (four GPUs) does not fit, and d (two) fits beside b."""
    room = a_room(two(), "b")
    wishes = gpus(b=9, c=4, d=2)
    assert room.place(wishes) == {"d": some_slots("n2", 2, 3)}
    assert room.place(gpus(b=1, c=4)) == {
        "b": some_slots("n2", 0),
        "c": some_slots("n2", 1, 2, 3) + some_slots("n1", 3),
    }
    assert wishes == gpus(b=9, c=4, d=2)


def test_the_placer_is_not_asked_about_wishes_that_are_surely_too_wide() -> None:
    """Three GPUs are free: c (four GPUs) is left out, and d is placed; without free GPUs it is not called."""
    placer = Asked()
    room = a_room(two(), placer=placer)
    assert set(room.place(gpus(c=4, d=2))) == {"d"}
    assert "c" not in placer.seen[0][0]
    full = room.after({"d": some_slots("n2", 2, 3), "c": some_slots("n1", 3)})
    assert full.free_gpus() == {"gpu": 0}
    assert full.place({"x": Width("gpu", 1)}) == {}
    assert len(placer.seen) == 1
    assert room.place({}) == {}


def test_the_placer_is_called_once_for_the_same_wishes_and_nodes() -> None:
    """Another order, another width or another node calls it again."""
    placer = Asked()
    room = a_room(two(), placer=placer)
    extra = [a_policy_node("new")]
    first = room.place(gpus(c=1, d=1))
    assert room.place(gpus(c=1, d=1)) == first
    assert len(placer.seen) == 1
    for number, (wishes, more) in enumerate(
        (
            (gpus(d=1, c=1), []),
            (gpus(d=1, c=2), []),
            (gpus(d=1), []),
            (gpus(d=1), extra),
            (gpus(d=1), [a_policy_node("other")]),
            (gpus(d=1), [*extra, a_policy_node("other")]),
        )
    ):
        room.place(wishes, extra=more)
        assert len(placer.seen) == 2 + number
    room.place(gpus(d=1), extra=[*extra, a_policy_node("other")])
    assert len(placer.seen) == 7
    room.after({}).place(gpus(d=1))
    assert len(placer.seen) == 8


def test_a_caller_cannot_change_a_cached_placement() -> None:
    """The first answer is emptied, and the second one is complete."""
    room = a_room(two())
    room.place(gpus(c=1)).clear()
    assert room.place(gpus(c=1)) == {"c": some_slots("n1", 3)}


def test_after_a_placement_its_gpus_are_taken_and_the_old_ones_are_free() -> None:
    """Job b moves to the last GPU of n1; the original object does not change."""
    room = a_room(two(), "b")
    left = room.after({"b": some_slots("n1", 3)})
    assert left.free_gpus() == {"gpu": 4}
    assert left.place(gpus(c=4)) == {"c": some_slots("n2", 0, 1, 2, 3)}
    assert room.free_gpus() == {"gpu": 3}
    same = room.after({})
    assert same is not room
    assert same.free_gpus() == {"gpu": 3}


def test_a_job_that_was_placed_does_not_move_again() -> None:
    """Job b no longer keeps c from its node."""
    left = a_room(two(), "b").after({"b": some_slots("n2", 0)})
    assert left.place(gpus(b=9, c=3)) == {"c": some_slots("n2", 1, 2, 3)}


def test_gpus_of_jobs_that_end_soon_are_free_unless_their_node_ends() -> None:
    """Job f frees n3 and job a frees n1; the original object does not change."""
    room = a_room(two())
    assert room.without(frozenset(), two()) is room
    assert room.without(frozenset("f"), two()).free_gpus() == {"gpu": 7}
    assert room.without(frozenset("fa"), two()).free_gpus() == {"gpu": 10}
    assert room.free_gpus() == {"gpu": 3}
    state = two()
    for changes in ({"ends_by": 9.0}, {"phase": "terminating"}):
        nodes = {**state.nodes, "n3": replace(state.nodes["n3"], **changes)}
        ending = replace(state, nodes=nodes)
        assert a_room(ending).without(frozenset("f"), ending).free_gpus() == {"gpu": 3}


def test_the_shortfall_is_what_the_wishes_need_beyond_the_free_gpus() -> None:
    """Three GPUs are free; GPUs of a job with a wish or a placement count for that job alone."""
    room = a_room(two(), "b")
    assert room.shortfall(gpus(c=8), {}) == {"gpu": 5}
    assert room.shortfall(gpus(c=3), {}) == {"gpu": 0}
    assert room.shortfall(gpus(c=1, d=1), {}) == {"gpu": -1}
    assert room.shortfall(gpus(c=8, b=2), {}) == {"gpu": 5}
    assert room.shortfall(gpus(c=8), {}, extra=[a_policy_node("new")]) == {"gpu": 1}
    assert room.shortfall(gpus(c=8, d=1), {"d": some_slots("n1", 3)}) == {"gpu": 6}
    assert room.shortfall(gpus(d=1), {"d": some_slots("n1", 3)}) == {}
    other = a_policy_node("new", gpu_type="other")
    assert room.shortfall(gpus(c=8), {}, extra=[other]) == {"gpu": 5}
    wishes = {"c": Width("other", 5), "d": Width("gpu", 1)}
    assert room.shortfall(wishes, {"d": some_slots("n1", 3)}, extra=[other]) == {"other": 1}


def zoned() -> ClusterState:
    """Return the state with n2 in another zone."""
    state = two()
    nodes = {name: replace(node, zone="b" if name == "n2" else "a") for name, node in state.nodes.items()}
    return replace(state, nodes=nodes)


def test_a_job_is_placed_in_one_zone() -> None:
    """One GPU is free in zone a and two in zone b: c on three GPUs waits; c on two goes to zone b."""
    assert not a_room(two()).has_zones
    room = a_room(zoned())
    assert room.has_zones
    assert a_room(two()).place(gpus(c=3)) != {}
    assert room.place(gpus(c=3)) == {}
    assert room.place(gpus(c=2, d=1)) == {"c": some_slots("n2", 2, 3), "d": some_slots("n1", 3)}


def test_offers_in_several_zones_count_as_zones() -> None:
    """The nodes themselves are in no named zone."""
    offers = tuple(Offer(instance_type="gpu-x4", zone=zone, usd_per_hour=4.0) for zone in ("a", "b"))
    assert a_room(two(offers=offers)).has_zones
    assert not a_room(two(offers=(Offer(instance_type="gpu-x4", usd_per_hour=4.0),))).has_zones


def test_new_nodes_count_as_a_zone_of_their_own() -> None:
    """Job c on six GPUs takes both new nodes and none of the free GPUs."""
    extra = [a_policy_node("new-1"), a_policy_node("new-2")]
    placed = a_room(zoned()).place(gpus(c=6, d=1), extra=extra)
    assert {slot.node for slot in placed["c"]} == {"new-1", "new-2"}
    assert {slot.node for slot in placed["d"]} == {"n1"}
    assert a_room(zoned()).place(gpus(c=6), extra=extra[:1]) == {}


def test_with_zones_only_new_nodes_reduce_the_shortfall() -> None:
    """Free GPUs may be in the wrong zone; with `across_zones` they count too."""
    room, extra = a_room(zoned()), [a_policy_node("new")]
    assert room.shortfall(gpus(c=8), {}) == {"gpu": 8}
    assert room.shortfall(gpus(c=8), {}, across_zones=True) == {"gpu": 5}
    assert room.shortfall(gpus(c=8), {}, extra=extra) == {"gpu": 4}
    assert room.shortfall(gpus(c=8, d=1), {"d": some_slots("new", 0)}, extra=extra) == {"gpu": 5}
    booting = [a_policy_node("n2")]
    assert room.shortfall(gpus(c=8), {}, extra=booting) == {"gpu": 8}
    other = [a_policy_node("new", gpu_type="other")]
    assert room.shortfall(gpus(c=8), {}, extra=other) == {"gpu": 8}


def test_a_compact_job_is_placed_on_as_few_nodes_as_possible_or_waits() -> None:
    """Job c on three GPUs waits instead of using n1 and n2; on five GPUs it may use two nodes."""
    assert set(a_room(two()).place(gpus(c=3))) == {"c"}
    assert a_room(two(), compact=frozenset("c")).place(gpus(c=3)) == {}
    extra = [a_policy_node("new")]
    room = a_room(two(), compact=frozenset("c"))
    assert set(room.place(gpus(c=5), extra=extra)) == {"c"}
    assert set(a_room(two(), compact=frozenset("d")).place(gpus(c=3))) == {"c"}
    small = [a_policy_node("s1", gpus=2), a_policy_node("s2", gpus=2)]
    four = a_state(a_job("c"), nodes=[])
    assert set(a_room(four, compact=frozenset("c")).place(gpus(c=3), extra=small)) == {"c"}


def test_free_gpus_are_counted_for_each_type() -> None:
    """A job of type `other` is placed only on the node of that type."""
    state = two()
    other = a_node("o1", kind=an_instance_type(gpu_type="other"))
    room = a_room(replace(state, nodes={**state.nodes, "o1": other}))
    assert room.free_gpus() == {"gpu": 3, "other": 4}
    assert room.place({"c": Width("other", 5)}) == {}
    assert room.place({"c": Width("other", 4)}) == {"c": some_slots("o1", 0, 1, 2, 3)}
    assert set(room.place({"c": Width("other", 4), "d": Width("gpu", 3)})) == {"c", "d"}


@given(case=states())
def test_no_job_gets_a_gpu_that_another_job_holds(case: tuple[ClusterState, Wishes]) -> None:
    """A placed job gets its whole width on free GPUs or its own, and so many fewer are free afterwards."""
    state, wishes = case
    widths = {job: Width("gpu", count) for job, count in wishes.widths.items()}
    room = PlaceableNodes(state, leaving=set(state.jobs), stopped=frozenset(), placer=FirstFit())
    placed = room.place(widths)
    taken = [slot for slots in placed.values() for slot in slots]
    stay = {slot for job, entry in state.jobs.items() if job not in placed for slot in entry.slots}

    assert len(set(taken)) == len(taken)
    assert stay.isdisjoint(taken)
    assert {job: len(slots) for job, slots in placed.items()} == {job: widths[job].gpus for job in placed}
    there = sum(len(node.gpus) for node in state.nodes.values() if node.phase == "ready")
    assert sum(room.after(placed).free_gpus().values()) == there - len(stay) - len(taken)


@given(
    cases=st.lists(states(), min_size=1, max_size=2),
    ticks=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 3), st.booleans(), st.booleans()), max_size=8),
)
def test_the_latest_room_answers_as_a_new_one(
    cases: list[tuple[ClusterState, Wishes]], ticks: list[tuple[int, int, bool, bool]]
) -> None:
    """Between ticks the state, the wishes, the leaving and the ending jobs change, or one mapping of nodes.

    A tick that finds everything as before asks the same room.
    """
    latest, mapping = LatestRoom(), dict[str, NodeState]()
    for number, first, are_stopped, are_ending in ticks:
        state, wishes = cases[number % len(cases)]
        mapping.clear()
        mapping.update(state.nodes)
        state = replace(state, nodes=mapping)
        widths = {job: Width("gpu", count) for job, count in list(wishes.widths.items())[first:]}
        running = frozenset(job for job, entry in state.jobs.items() if entry.slots)
        question: dict[str, Any] = {
            "leaving": list(widths),
            "stopped": running & widths.keys() if are_stopped else frozenset(),
            "placer": LeastWorkloadFirst(),
            "compact": frozenset(),
            "closed": frozenset(),
        }
        room, new = latest.of(state, **question), PlaceableNodes(state, **question)
        assert latest.of(state, **question) is room
        ending = running - widths.keys() if are_ending else frozenset()
        assert room.place(widths) == new.place(widths)
        later = [found.without(ending, state).after(new.place(widths)) for found in (room, new)]
        blank = [a_policy_node("new", gpus=4)]
        assert later[0].free_gpus() == later[1].free_gpus()
        assert later[0].place(widths, extra=blank) == later[1].place(widths, extra=blank)


def test_a_room_is_new_when_a_node_a_job_an_offer_or_the_question_changes() -> None:
    """An equal node that is another object counts as a change."""
    latest, state = LatestRoom(), two()
    question: dict[str, Any] = {
        "leaving": ["b", "c"],
        "stopped": frozenset(),
        "placer": FirstFit(),
        "compact": frozenset(),
        "closed": frozenset(),
    }
    jobs = {**state.jobs, "b": replace(state.jobs["b"], slots=some_slots("n2", 0))}
    for changed in (
        replace(state, nodes={**state.nodes, "n2": replace(state.nodes["n2"])}),
        replace(state, nodes={**state.nodes, "n4": a_node("n4")}),
        replace(state, nodes=dict(reversed(state.nodes.items()))),
        replace(state, jobs=jobs),
        replace(state, offers=(Offer(instance_type="gpu-x4", zone="z"),)),
    ):
        room = latest.of(state, **question)
        assert latest.of(replace(state, now=state.now + 1.0), **question) is room
        assert latest.of(changed, **question) is not room
    for name, value in {
        "leaving": ["c", "b"],
        "stopped": frozenset("b"),
        "placer": LeastWorkloadFirst(),
        "compact": frozenset("c"),
        "closed": frozenset({"n1"}),
    }.items():
        room = latest.of(state, **question)
        assert latest.of(state, **(question | {name: value})) is not room
