"""The jobs of a node move to other nodes if giving the node back is worth twice what the moves lose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
from drafts import a_draft, a_plan, gpus
from followers import Known

from boa_daemon.testing import a_job, a_node, a_state, an_instance_type, rules, some_slots
from boa_daemon.tick.facts.plan import Plan
from boa_daemon.tick.facts.state import ClusterState
from boa_daemon.tick.stages.nodes.empty_nodes import empty_nodes
from policies.model import GpuSlot, Job, JobId, Width


@dataclass(frozen=True, slots=True, kw_only=True)
class Losing(Known):
    """Node prices with a fixed loss for each job, or one loss for all."""

    losses: Mapping[JobId, float] | None = None

    def hours_lost(self, job: Job, then: Width, *, hours_left: float, back_in_hours: float) -> float:
        """Return the fixed loss; a job without one is a KeyError."""
        return self.loses if self.losses is None else self.losses[job.id]


def placed(*spots: int, **held: tuple[GpuSlot, ...]) -> ClusterState:
    """Return jobs on nodes n0, n1, ... with the given numbers of GPUs."""
    nodes = [a_node(f"n{at}", kind=an_instance_type(gpus=count)) for at, count in enumerate(spots)]
    return a_state(*map(a_job, held), nodes=nodes, held=held)


def emptied(state: ClusterState, prices: Known | None = None, **changes: Any) -> Plan:
    """Return the plan after the stage; by default a node is worth 10 per hour, and a move costs 1."""
    known = prices or Known(widths={}, worth=10.0)
    policy = {"node_prices": known, **changes.pop("policy", {})}
    return empty_nodes(state, a_draft(policy=policy, **changes)).plan


PAIR = {"a": some_slots("n0", 0), "b": some_slots("n1", 0, 1)}


def test_the_node_with_the_fewest_planned_gpus_is_emptied() -> None:
    """Job a (one GPU) moves beside b (two GPUs), and the plan has its width."""
    plan = emptied(placed(4, 4, **PAIR))
    assert plan.jobs.slots == {"a": some_slots("n1", 2)}
    assert plan.jobs.widths == gpus(a=1)


@pytest.mark.parametrize(("worth", "moves"), [(1.9, False), (2.0, False), (2.1, True)])
def test_a_node_is_emptied_if_it_is_worth_more_than_twice_what_the_move_loses(
    worth: float, moves: bool
) -> None:
    """Both jobs have one hour left, and the move loses one."""
    assert bool(emptied(placed(4, 4, **PAIR), Known(widths={}, worth=worth)).jobs.slots) == moves


@pytest.mark.parametrize(
    ("left", "moves"),
    [({"a": 1.0, "b": 9.0}, False), ({"a": 9.0, "b": 1.0}, False), ({"a": 1.1, "b": 1.1}, True)],
)
def test_the_saving_lasts_as_long_as_the_moving_job_and_the_jobs_on_its_new_node(
    left: Mapping[str, float], moves: bool
) -> None:
    """One hour left of either job is too little, at a worth of 2 per hour against a loss of 1."""
    prices = Known(widths={}, worth=2.0, left_hours=left)
    assert bool(emptied(placed(4, 4, **PAIR), prices).jobs.slots) == moves


def test_the_saving_counts_the_longest_job_and_the_loss_counts_all_moving_jobs() -> None:
    """Job c has 2 h left: the node is worth 2 h times 2.1, against a loss of 1 for each of two jobs."""
    held = {"a": some_slots("n0", 0), "c": some_slots("n0", 1), "b": some_slots("n1", 0, 1)}
    left = {"a": 0.25, "c": 2.0, "b": 3.0}
    for worth, moves in ((2.1, True), (2.0, False)):
        prices = Known(widths={}, worth=worth, left_hours=left)
        plan = emptied(placed(4, 4, **held), prices, policy={"stay": frozenset({"b"})})
        assert bool(plan.jobs.slots) == moves
    assert set(emptied(placed(4, 4, **held), Known(widths={}, worth=9.0)).jobs.slots) == {"a", "c"}


def test_a_job_moves_to_the_fullest_node_with_room() -> None:
    """Node n2 has one free GPU and n1 two; a job of two GPUs goes to n1, a job of one to n2."""
    others = {"b": some_slots("n1", 0, 1), "c": some_slots("n2", 0, 1, 2)}
    one = emptied(placed(4, 4, 4, a=some_slots("n0", 1), **others))
    assert one.jobs.slots == {"a": some_slots("n2", 3)}
    two = emptied(placed(4, 4, 4, a=some_slots("n0", 1), d=some_slots("n0", 2, 3), **others))
    assert two.jobs.slots == {"a": some_slots("n2", 3), "d": some_slots("n1", 2, 3)}


def test_a_node_stays_if_its_jobs_fit_nowhere_else() -> None:
    """No other node has enough free GPUs for the node's job."""
    held = {"a": some_slots("n0", 0, 1), "b": some_slots("n1", 0, 1, 2), "c": some_slots("n2", 0, 1, 2)}
    assert emptied(placed(4, 4, 4, **held)).jobs.slots == {}
    tight = {"b": some_slots("n1", *range(8)), "a": some_slots("n0", *range(5))}
    assert emptied(placed(8, 9, **tight)).jobs.slots == {}


@pytest.mark.parametrize(("number", "moves"), [(2, True), (3, False)])
def test_only_the_three_nodes_with_the_fewest_planned_gpus_are_examined(number: int, moves: bool) -> None:
    """Behind two nodes that must stay a node is emptied; behind three it is not."""
    stuck = {f"s{at}": some_slots(f"n{at}", 0) for at in range(number)}
    free = {"a": some_slots(f"n{number}", 0, 1), "b": some_slots(f"n{number + 1}", 0, 1, 2)}
    state = placed(*[4] * (number + 2), **stuck, **free)
    plan = emptied(state, policy={"stay": frozenset({*stuck, "b"})})
    assert bool(plan.jobs.slots) == moves


def test_nothing_moves_if_fewer_gpus_are_free_than_a_node_has() -> None:
    """Three free GPUs on nodes of four are too few; four suffice."""
    a, b = some_slots("n0", 0, 1), some_slots("n1", 0, 1, 2)
    assert emptied(placed(4, 4, a=a, b=b)).jobs.slots == {}
    assert emptied(placed(4, 4, a=a, b=b[:2])).jobs.slots != {}
    assert emptied(placed(4, a=some_slots("n0", 0))).jobs.slots == {}


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
def test_no_node_is_emptied_if_other_changes_are_planned_or_nodes_are_limited(
    changes: dict[str, Any],
) -> None:
    """The same holds without node prices, in a fixed fleet, for claimed nodes and for jobs that must stay."""
    state = placed(4, 4, **PAIR)
    policy = {"node_prices": Known(widths={}, worth=10.0), "stay": frozenset({"b"})}
    assert empty_nodes(state, a_draft(policy=policy)).plan.jobs.slots
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
def test_ending_idle_and_unready_nodes_are_not_emptied(changes: dict[str, Any]) -> None:
    """Job a on n0 does not move."""
    state = placed(4, 4, **PAIR)
    node = replace(state.nodes["n0"], **changes)
    assert emptied(replace(state, nodes={**state.nodes, "n0": node})).jobs.slots == {}


def test_stopping_jobs_are_not_moved() -> None:
    """Both jobs are stopping, and neither moves."""
    state = placed(4, 4, **PAIR)
    jobs = {name: replace(job, is_stopping=True) for name, job in state.jobs.items()}
    assert emptied(replace(state, jobs=jobs)).jobs.slots == {}


def test_a_job_on_two_nodes_moves_its_gpus_of_one_node_within_its_zone() -> None:
    """Job b leaves n0 for n2; if n2 is in another zone, b goes to n1."""
    b = some_slots("n0", 0) + some_slots("n1", 0, 1)
    state = placed(4, 4, 4, b=b, c=some_slots("n2", 0, 1, 2))
    assert emptied(state).jobs.slots == {"b": some_slots("n1", 0, 1) + some_slots("n2", 3)}
    zoned = {**state.nodes, "n2": replace(state.nodes["n2"], zone="other")}
    there = emptied(replace(state, nodes=zoned))
    assert there.jobs.slots == {"b": some_slots("n1", 0, 1, 2)}
    assert there.jobs.widths == gpus(b=3)


def test_lent_gpus_are_returned_to_make_room_for_a_job_that_moves() -> None:
    """Job b holds all of n1 and is planned on two GPUs, so job a takes its third."""
    state = placed(4, 4, a=some_slots("n0", 0), b=some_slots("n1", 0, 1, 2, 3))
    plan = emptied(state, lent=gpus(b=2))
    assert plan.jobs.slots == {"b": some_slots("n1", 0, 1), "a": some_slots("n1", 2)}
    assert plan.jobs.widths == gpus(a=1, b=2)
    assert emptied(state).jobs.slots == {}


def test_a_job_moves_at_its_planned_width() -> None:
    """Job a holds two GPUs, one of them lent, and moves on one."""
    state = placed(4, 4, a=some_slots("n0", 0, 1), b=some_slots("n1", 0, 1, 2))
    kept = "it keeps the 2 x gpu that it holds until another job needs the GPUs"
    plan = emptied(
        state, lent=gpus(a=1), planned_reasons={"a": "as planned"}, plan=a_plan(reasons={"a": kept})
    )
    assert plan.jobs.slots == {"a": some_slots("n1", 3)}
    assert plan.jobs.reasons["a"].startswith("it makes room")
    assert plan.jobs.reasons["a"].endswith(": as planned")
    assert emptied(state).jobs.slots == {}


def test_a_job_leaves_the_emptied_node_if_it_holds_only_lent_gpus_there() -> None:
    """Job a keeps its two planned GPUs on n1, and job c moves beside it."""
    a = some_slots("n1", 0, 1) + some_slots("n0", 0, 1)
    state = placed(4, 4, a=a, c=some_slots("n0", 2))
    plan = emptied(state, lent=gpus(a=2))
    assert plan.jobs.slots == {"a": some_slots("n1", 0, 1), "c": some_slots("n1", 2)}


def test_a_type_that_the_settings_do_not_name_is_not_emptied() -> None:
    """Each type has two nodes; only a node of type `gpu` is emptied."""
    other = an_instance_type(gpu_type="other")
    nodes = [*(a_node(f"n{at}") for at in range(2)), *(a_node(f"o{at}", kind=other) for at in range(2))]
    held = {**PAIR, "c": some_slots("o0", 0), "d": some_slots("o1", 0, 1)}
    state = a_state(*map(a_job, held), nodes=nodes, held=held)
    assert emptied(state).jobs.slots == {"a": some_slots("n1", 2)}


def test_each_moving_job_counts_with_its_own_loss() -> None:
    """Job a loses 0.4 h and c 0.5 h, so the node must be worth more than twice 0.9 h."""
    held = {"a": some_slots("n0", 0), "c": some_slots("n0", 1), "b": some_slots("n1", 0, 1)}
    for worth, moves in ((1.79, False), (1.81, True)):
        prices = Losing(widths={}, worth=worth, losses={"a": 0.4, "c": 0.5})
        plan = emptied(placed(4, 4, **held), prices, policy={"stay": frozenset({"b"})})
        assert bool(plan.jobs.slots) == moves


@pytest.mark.parametrize("how", ["stops", "moves", "is stopping"])
def test_no_job_moves_to_a_node_that_becomes_empty_anyway(how: str) -> None:
    """Job a leaves n0, so b stays on n1; if job c stays on n0, b moves beside c."""
    state = placed(4, 4, 4, **PAIR)
    beside = placed(4, 4, 4, c=some_slots("n0", 3), **PAIR)
    slots = {"a": some_slots("n2", 0)} if how == "moves" else {}
    plan = a_plan(stops=("a",) if how == "stops" else (), slots=slots)
    if how == "is stopping":
        state, beside = (
            replace(each, jobs={**each.jobs, "a": replace(each.jobs["a"], is_stopping=True)})
            for each in (state, beside)
        )
    assert emptied(state, plan=plan).jobs.slots == slots
    assert emptied(beside, plan=plan).jobs.slots == {**slots, "b": some_slots("n0", 1, 2)}


def test_a_type_that_cannot_be_emptied_does_not_stop_the_next_type() -> None:
    """A type that the settings do not name and a type with too few free GPUs come first."""
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
    assert emptied(state, site=site).jobs.slots == {"a": some_slots("n1", 2)}


def test_lent_gpus_on_the_emptied_node_are_given_up_and_do_not_move() -> None:
    """Job w gives up its lent GPU on n0, and job a moves beside w's own GPU on n1."""
    held = {
        "w": some_slots("n1", 0) + some_slots("n0", 0),
        "a": some_slots("n0", 1),
        "b": some_slots("n1", 1),
    }
    plan = emptied(placed(4, 4, **held), lent=gpus(w=1))
    assert plan.jobs.slots == {"w": some_slots("n1", 0), "a": some_slots("n1", 2)}
    assert plan.jobs.widths == gpus(w=1, a=1)


def test_a_job_over_two_nodes_stays_in_its_zone() -> None:
    """The fuller nodes n2 and n3 are in another zone, so job a goes to n1."""
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
        assert plan.jobs.slots == {"a": some_slots("n1", 0, 1) + some_slots("n1", 2)}


def test_a_job_that_moves_counts_as_back_when_the_other_job_ends() -> None:
    """The policy is asked about job a for the 2 h that job b has left."""
    seen: list[tuple[JobId, float]] = []

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Noting(Known):
        """Node prices that record the time until each job is back."""

        def hours_lost(self, job: Job, then: Width, *, hours_left: float, back_in_hours: float) -> float:
            """Record the question and return a small loss."""
            seen.append((job.id, back_in_hours))
            return 0.01

    prices = Noting(widths={}, worth=10.0, left_hours={"a": 5.0, "b": 2.0})
    assert emptied(placed(4, 4, **PAIR), prices, policy={"stay": frozenset("b")}).jobs.slots
    assert seen == [("a", 2.0)]
