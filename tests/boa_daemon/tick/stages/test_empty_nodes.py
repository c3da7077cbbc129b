"""The jobs of a node move into gaps on others where giving it back is worth twice what they lose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
from drafts import a_draft, a_plan, gpus
from followers import Known

from boa_daemon.testing import a_job, a_node, a_state, an_instance_type, rules, some_slots
from boa_daemon.tick.stages.empty_nodes import empty_nodes
from boa_daemon.tick.state import ClusterState, Plan
from policies.model import GpuSlot, Job, JobId, Width


@dataclass(frozen=True, slots=True, kw_only=True)
class Losing(Known):
    """Node prices under which a move loses what is told of the job, or else of all."""

    losses: Mapping[JobId, float] | None = None

    def hours_lost(self, job: Job, then: Width, *, hours_left: float, back_in_hours: float) -> float:
        """Return what was told; nobody is asked about a job that ended."""
        return self.loses if self.losses is None else self.losses[job.id]


def placed(*spots: int, **held: tuple[GpuSlot, ...]) -> ClusterState:
    """Return jobs on nodes n0, n1, ... of as many GPUs as said."""
    nodes = [a_node(f"n{at}", kind=an_instance_type(gpus=count)) for at, count in enumerate(spots)]
    return a_state(*map(a_job, held), nodes=nodes, held=held)


def emptied(state: ClusterState, prices: Known | None = None, **changes: Any) -> Plan:
    """Return the plan where a node is worth ten hours an hour, and a move costs one."""
    known = prices or Known(widths={}, worth=10.0)
    policy = {"node_prices": known, **changes.pop("policy", {})}
    return empty_nodes(state, a_draft(policy=policy, **changes)).plan


PAIR = {"a": some_slots("n0", 0), "b": some_slots("n1", 0, 1)}


def test_the_node_with_the_fewest_planned_gpus_is_emptied() -> None:
    """a of one moves to b of two, beside it; its width is said with it."""
    plan = emptied(placed(4, 4, **PAIR))
    assert plan.slots == {"a": some_slots("n1", 2)}
    assert plan.widths == gpus(a=1)


@pytest.mark.parametrize(("worth", "moves"), [(1.9, False), (2.0, False), (2.1, True)])
def test_a_node_is_emptied_where_it_is_worth_more_than_twice_what_is_lost(worth: float, moves: bool) -> None:
    """One hour is left of both, and one is lost."""
    assert bool(emptied(placed(4, 4, **PAIR), Known(widths={}, worth=worth)).slots) == moves


@pytest.mark.parametrize(
    ("left", "moves"),
    [({"a": 1.0, "b": 9.0}, False), ({"a": 9.0, "b": 1.0}, False), ({"a": 1.1, "b": 1.1}, True)],
)
def test_what_is_saved_ends_with_the_last_job_here_or_with_those_who_take_it_in(
    left: Mapping[str, float], moves: bool
) -> None:
    """At two hours' worth an hour, one hour left of either is too little against one lost."""
    prices = Known(widths={}, worth=2.0, left_hours=left)
    assert bool(emptied(placed(4, 4, **PAIR), prices).slots) == moves


def test_the_longest_job_of_a_node_counts_and_all_that_move_lose() -> None:
    """a has a quarter of an hour and c two hours: the node is worth 2 h times 2.1 against 1 + 1 lost."""
    held = {"a": some_slots("n0", 0), "c": some_slots("n0", 1), "b": some_slots("n1", 0, 1)}
    left = {"a": 0.25, "c": 2.0, "b": 3.0}
    for worth, moves in ((2.1, True), (2.0, False)):
        prices = Known(widths={}, worth=worth, left_hours=left)
        plan = emptied(placed(4, 4, **held), prices, policy={"stay": frozenset({"b"})})
        assert bool(plan.slots) == moves
    assert set(emptied(placed(4, 4, **held), Known(widths={}, worth=9.0)).slots) == {"a", "c"}


def test_the_fullest_node_with_room_takes_a_job_in() -> None:
    """n2 has one gap, n1 two; two GPUs go to n1, one to n2."""
    others = {"b": some_slots("n1", 0, 1), "c": some_slots("n2", 0, 1, 2)}
    one = emptied(placed(4, 4, 4, a=some_slots("n0", 1), **others))
    assert one.slots == {"a": some_slots("n2", 3)}
    two = emptied(placed(4, 4, 4, a=some_slots("n0", 1), d=some_slots("n0", 2, 3), **others))
    assert two.slots == {"a": some_slots("n2", 3), "d": some_slots("n1", 2, 3)}


def test_a_node_whose_jobs_have_nowhere_to_go_stays_and_another_is_tried() -> None:
    """a of two has no gap of two elsewhere; the three nodes with the fewest GPUs used are looked at."""
    held = {"a": some_slots("n0", 0, 1), "b": some_slots("n1", 0, 1, 2), "c": some_slots("n2", 0, 1, 2)}
    assert emptied(placed(4, 4, 4, **held)).slots == {}
    tight = {"b": some_slots("n1", *range(8)), "a": some_slots("n0", *range(5))}
    assert emptied(placed(8, 9, **tight)).slots == {}


@pytest.mark.parametrize(("number", "moves"), [(2, True), (3, False)])
def test_three_nodes_are_looked_at_more_closely(number: int, moves: bool) -> None:
    """One or two before it may not be emptied; as the fourth it is not reached."""
    stuck = {f"s{at}": some_slots(f"n{at}", 0) for at in range(number)}
    free = {"a": some_slots(f"n{number}", 0, 1), "b": some_slots(f"n{number + 1}", 0, 1, 2)}
    state = placed(*[4] * (number + 2), **stuck, **free)
    plan = emptied(state, policy={"stay": frozenset({*stuck, "b"})})
    assert bool(plan.slots) == moves


def test_too_few_gaps_for_a_whole_node_are_not_looked_at() -> None:
    """Three gaps in all on nodes of four; four do."""
    a, b = some_slots("n0", 0, 1), some_slots("n1", 0, 1, 2)
    assert emptied(placed(4, 4, a=a, b=b)).slots == {}
    assert emptied(placed(4, 4, a=a, b=b[:2])).slots != {}
    assert emptied(placed(4, a=some_slots("n0", 0))).slots == {}


@pytest.mark.parametrize(
    "changes",
    [
        {"policy": {"node_prices": None}},
        {"policy": {"nodes": {"gpu-x4": 2}}},
        {"is_at_node_limit": True},
        {"plan": a_plan(launches={"gpu-x4": 1})},
        {"plan": a_plan(waiting={"a": "budget"})},
        {"plan": a_plan(stops=("a",))},
        {"claimed": frozenset({"n0"})},
        {"claimed": frozenset({"n1"})},
        {"policy": {"stay": frozenset({"a", "b"})}},
    ],
)
def test_nothing_is_moved_that_something_else_is_planned_for(changes: dict[str, Any]) -> None:
    """Nor where nodes are limited, fixed, rented or claimed; b stays where it is anyway."""
    state = placed(4, 4, **PAIR)
    policy = {"node_prices": Known(widths={}, worth=10.0), "stay": frozenset({"b"})}
    assert empty_nodes(state, a_draft(policy=policy)).plan.slots
    policy |= changes.get("policy", {})
    draft = a_draft(**{**changes, "policy": policy})
    assert empty_nodes(state, draft) is draft


@pytest.mark.parametrize(
    "changes",
    [
        {"phase": "terminating"},
        {"phase": "requested"},
        {"phase": "a"},
        {"ends_by": 99.0},
        {"idle_since": 0.0},
    ],
)
def test_nodes_that_go_or_are_idle_are_neither_emptied_nor_filled(changes: dict[str, Any]) -> None:
    """n0 is one of those."""
    state = placed(4, 4, **PAIR)
    node = replace(state.nodes["n0"], **changes)
    assert emptied(replace(state, nodes={**state.nodes, "n0": node})).slots == {}


def test_a_job_that_is_stopping_is_not_moved() -> None:
    """It lets go of what it has; b goes nowhere either, because its node is not touched by that."""
    state = placed(4, 4, **PAIR)
    jobs = {name: replace(job, is_stopping=True) for name, job in state.jobs.items()}
    assert emptied(replace(state, jobs=jobs)).slots == {}


def test_a_job_on_two_nodes_moves_what_it_has_on_one_and_keeps_to_its_zone() -> None:
    """b has one GPU on n0 and two on n1; to n2 in another zone it does not go."""
    b = some_slots("n0", 0) + some_slots("n1", 0, 1)
    state = placed(4, 4, 4, b=b, c=some_slots("n2", 0, 1, 2))
    assert emptied(state).slots == {"b": some_slots("n1", 0, 1) + some_slots("n2", 3)}
    zoned = {**state.nodes, "n2": replace(state.nodes["n2"], zone="other")}
    there = emptied(replace(state, nodes=zoned))
    assert there.slots == {"b": some_slots("n1", 0, 1, 2)}
    assert there.widths == gpus(b=3)


def test_those_who_were_lent_gpus_let_go_of_them_for_a_job_that_comes() -> None:
    """b holds all of n1 and is planned on two: a takes its third, and b keeps its first two."""
    state = placed(4, 4, a=some_slots("n0", 0), b=some_slots("n1", 0, 1, 2, 3))
    plan = emptied(state, lent=gpus(b=2))
    assert plan.slots == {"b": some_slots("n1", 0, 1), "a": some_slots("n1", 2)}
    assert plan.widths == gpus(a=1, b=2)
    assert emptied(state).slots == {}


def test_a_job_moves_at_its_planned_width() -> None:
    """a holds two by loan and is planned on one; b, planned on three of four, has to make room for it."""
    state = placed(4, 4, a=some_slots("n0", 0, 1), b=some_slots("n1", 0, 1, 2))
    assert emptied(state, lent=gpus(a=1)).slots == {"a": some_slots("n1", 3)}
    assert emptied(state).slots == {}


def test_a_job_with_nothing_but_a_loan_on_the_node_lets_go_of_it() -> None:
    """Two of its four GPUs are planned, both on n1: it goes back to those, and c moves beside it."""
    a = some_slots("n1", 0, 1) + some_slots("n0", 0, 1)
    state = placed(4, 4, a=a, c=some_slots("n0", 2))
    plan = emptied(state, lent=gpus(a=2))
    assert plan.slots == {"a": some_slots("n1", 0, 1), "c": some_slots("n1", 2)}


def test_types_are_emptied_apart_and_one_that_the_settings_do_not_name_is_left() -> None:
    """Two nodes of each type: one of "gpu" is emptied."""
    other = an_instance_type(gpu_type="other")
    nodes = [*(a_node(f"n{at}") for at in range(2)), *(a_node(f"o{at}", kind=other) for at in range(2))]
    held = {**PAIR, "c": some_slots("o0", 0), "d": some_slots("o1", 0, 1)}
    state = a_state(*map(a_job, held), nodes=nodes, held=held)
    assert emptied(state).slots == {"a": some_slots("n1", 2)}


def test_the_losses_are_those_of_each_job_that_moves() -> None:
    """a loses 0.4 and c 0.5 of an hour against a node worth 2 x 0.9; b does not move."""
    held = {"a": some_slots("n0", 0), "c": some_slots("n0", 1), "b": some_slots("n1", 0, 1)}
    for worth, moves in ((1.79, False), (1.81, True)):
        prices = Losing(widths={}, worth=worth, losses={"a": 0.4, "c": 0.5})
        plan = emptied(placed(4, 4, **held), prices, policy={"stay": frozenset({"b"})})
        assert bool(plan.slots) == moves


@pytest.mark.parametrize("how", ["stops", "moves", "is stopping"])
def test_nobody_moves_to_a_node_that_is_empty_soon(how: str) -> None:
    """a goes, so n0 falls empty by itself: b on n1 would start again for nothing. Beside c it may come."""
    state = placed(4, 4, 4, **PAIR)
    beside = placed(4, 4, 4, c=some_slots("n0", 3), **PAIR)
    slots = {"a": some_slots("n2", 0)} if how == "moves" else {}
    plan = a_plan(stops=("a",) if how == "stops" else (), slots=slots)
    if how == "is stopping":
        state, beside = (
            replace(each, jobs={**each.jobs, "a": replace(each.jobs["a"], is_stopping=True)})
            for each in (state, beside)
        )
    assert emptied(state, plan=plan).slots == slots
    assert emptied(beside, plan=plan).slots == {**slots, "b": some_slots("n0", 1, 2)}


def test_types_that_cannot_be_looked_at_keep_no_other_from_it() -> None:
    """A type that the settings no longer name, then one with too few gaps; the third is emptied."""
    kinds = {name: an_instance_type(gpu_type=name) for name in ("gone", "full", "gpu")}
    held = {
        "g": some_slots("g0", 0),
        "f": some_slots("f0", 0, 1, 2),
        "a": some_slots("n0", 0),
        "b": some_slots("n1", 0, 1),
    }
    names = {"g0": "gone", "g1": "gone", "f0": "full", "n0": "gpu", "n1": "gpu"}
    nodes = [a_node(name, kind=kinds[kind]) for name, kind in names.items()]
    state = a_state(*map(a_job, held), nodes=nodes, held=held)
    site = rules(instance_types={name: kinds[name] for name in ("full", "gpu")})
    assert emptied(state, site=site).slots == {"a": some_slots("n1", 2)}


def test_lent_gpus_alone_move_nowhere_and_keep_nobody_from_moving() -> None:
    """w has its own GPU on n1 and a lent one on n0; it is given up there, and a moves beside w."""
    held = {
        "w": some_slots("n1", 0) + some_slots("n0", 0),
        "a": some_slots("n0", 1),
        "b": some_slots("n1", 1),
    }
    plan = emptied(placed(4, 4, **held), lent=gpus(w=1))
    assert plan.slots == {"w": some_slots("n1", 0), "a": some_slots("n1", 2)}
    assert plan.widths == gpus(w=1, a=1)


def test_a_job_over_two_nodes_stays_in_its_zone() -> None:
    """The other half of a is in zone b: the fuller node in zone c, or in a, is none for it."""
    held = {
        "a": some_slots("n0", 0) + some_slots("n1", 0, 1),
        "c": some_slots("n2", 0, 1, 2),
        "d": some_slots("n3", 0, 1),
    }
    state = placed(4, 4, 4, 4, **held)
    for zone in ("a", "c"):
        zones = {"n0": "b", "n1": "b", "n2": zone, "n3": zone}
        nodes = {name: replace(node, zone=zones[name]) for name, node in state.nodes.items()}
        plan = emptied(replace(state, nodes=nodes), policy={"stay": frozenset("cd")})
        assert plan.slots == {"a": some_slots("n1", 0, 1) + some_slots("n1", 2)}


def test_who_makes_way_is_back_when_the_longest_of_the_others_ends() -> None:
    """a has one hour left, b two: a waits for b's two, and where it is alone for nothing."""
    seen: list[tuple[JobId, float]] = []

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Noting(Known):
        """Node prices that note for how long a job is asked about."""

        def hours_lost(self, job: Job, then: Width, *, hours_left: float, back_in_hours: float) -> float:
            """Return next to nothing."""
            seen.append((job.id, back_in_hours))
            return 0.01

    prices = Noting(widths={}, worth=10.0, left_hours={"a": 5.0, "b": 2.0})
    assert emptied(placed(4, 4, **PAIR), prices, policy={"stay": frozenset("b")}).slots
    assert seen == [("a", 2.0)]
