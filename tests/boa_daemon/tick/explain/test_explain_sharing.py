"""What a job shares with others is said with its reason: nodes, GPUs, links, and who sends first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from boa_daemon.testing import a_job, a_node, a_state, an_instance_type, some_slots
from boa_daemon.tick.explain.explain_sharing import explain_links, explain_neighbours, explain_span
from boa_daemon.tick.facts.plan import Plan, PlannedJobs
from boa_daemon.tick.facts.state import ClusterState, GatedJob, GatedLink, GateView
from policies.model import GpuSlot


def on_nodes(*tiers: tuple[str, ...]) -> ClusterState:
    """Return nodes of four GPUs with these network tiers."""
    nodes = [replace(a_node(f"n{number}"), tiers=one) for number, one in enumerate(tiers)]
    return a_state(a_job("a"), nodes=nodes)


@pytest.mark.parametrize(
    ("slots", "is_to_come", "said"),
    [
        ((3, 2), False, "It is on 2 nodes because 5 GPUs are more than the 4 of one node."),
        ((2, 2), False, "It is on 2 nodes because no one node had 4 GPUs free when it was placed."),
        ((4, 4), True, "It is to be on 2 nodes because 8 GPUs are more than the 4 of one node."),
    ],
)
def test_why_a_job_is_on_several_nodes(slots: tuple[int, int], is_to_come: bool, said: str) -> None:
    """Because it must be, or because nothing better was free."""
    held = [*some_slots("n0", *range(slots[0])), *some_slots("n1", *range(slots[1]))]
    assert explain_span(on_nodes((), ()), held, is_to_come=is_to_come) == said


@pytest.mark.parametrize(
    ("tiers", "said"),
    [
        ((("z", "s1", "r1"), ("z", "s1", "r2")), " All are under s1, tier 2 of 3 of the network."),
        ((("z", "s1"), ("z", "s1")), " All are under s1, tier 2 of 2 of the network."),
        ((("x", "s1"), ("y", "s1")), " All are under s1, tier 1 of 2 of the network."),
        ((("x",), ("y",)), " They share no part of the network below their zone."),
        ((("x",), ()), ""),
    ],
)
def test_how_near_the_nodes_are(tiers: tuple[tuple[str, ...], ...], said: str) -> None:
    """Unless a node is gone, or its place is not known."""
    state = on_nodes(*tiers)
    held = [*some_slots("n0", 0, 1, 2, 3), *some_slots("n1", 0)]
    if tiers[0][0] != "x" or len(tiers[0]) == 1:
        assert explain_span(state, held, is_to_come=False).endswith(f"of one node.{said}")
    gone = replace(state, nodes={"n0": state.nodes["n0"]})
    assert "network" not in explain_span(gone, held, is_to_come=False)


SHARED = replace(an_instance_type(gpus=4), gpus=8, places_per_gpu=2)


def neighbours(*jobs: str, kind: Any = SHARED, **plan: Any) -> list[str]:
    """Return who shares GPUs with job a, which is on the first places of GPUs 0 and 1; b is on the second."""
    held = {"a": some_slots("n1", 0, 1), "b": some_slots("n1", 4), "c": some_slots("n1", 2, 3)}
    state = a_state(
        *(a_job(name) for name in ("a", *jobs)),
        nodes=[a_node("n1", kind=kind)],
        held={name: slots for name, slots in held.items() if name in ("a", *jobs)},
    )
    return explain_neighbours(state, Plan(jobs=PlannedJobs(**plan)), "a", held["a"])


def test_two_jobs_on_places_of_one_gpu_share_it() -> None:
    """Place 4 of eight is the second of GPU 0."""
    assert neighbours("b", "c") == ["It shares GPU 0 of n1 with job b."]
    assert neighbours("c") == []
    assert neighbours("b", kind=an_instance_type(gpus=8)) == []


def test_what_counts_is_the_plan() -> None:
    """A job that stops shares nothing, and one that moves shares where it will be."""
    assert neighbours("b", stops=("b",)) == []
    moved = {"b": (GpuSlot("n1", 5), GpuSlot("n1", 4))}
    assert neighbours("b", slots=moved) == ["It shares GPU 1 of n1, GPU 0 of n1 with job b."]


def linked(gate: GateView | None = None, order: tuple[str, ...] = ()) -> list[str]:
    """Return what is said of the links of job a, which shares n1 with b; both are on two nodes."""
    held = {
        "a": (*some_slots("n1", 0), *some_slots("n2", 0)),
        "b": (*some_slots("n1", 1), *some_slots("n3", 0)),
    }
    jobs = a_job("a", remaining_gpu_hours=8.0, weight=2.0), a_job("b", remaining_gpu_hours=6.0)
    state = a_state(*jobs, nodes=[a_node(name) for name in ("n1", "n2", "n3")], held=held, gate=gate)
    return explain_links(state, Plan(link_order={"n1": order} if order else {}), "a", ["n1", "n2"])


def gate(*jobs: str, why: str = "", **a: Any) -> GateView:
    """Return the view of a gate that knows these jobs."""
    known = {job: GatedJob(ranked_by_hours=3.0) for job in jobs}
    if a:
        known["a"] = GatedJob(ranked_by_hours=5.0, **a)
    links = {"n1": GatedLink(jobs=jobs, is_ordered=False, why=why, gain_fraction=None)} if why else {}
    return GateView(links=links, jobs=known)


def test_the_job_with_less_left_over_its_weight_sends_first() -> None:
    """Eight GPU-hours over a weight of two are four, against six."""
    said = (
        "It shares the link of n1 with job b; {} sends first, because less of {} is left: "
        "4 against 6 GPU-hours over weight."
    )
    assert linked(order=("a", "b")) == [said.format("it", "it")]
    assert linked(order=("b", "a")) == [said.format("b", "b")]


def test_the_gates_own_rank_comes_before_that_of_the_tick() -> None:
    """It may know more jobs."""
    (line,) = linked(gate("a", "b"), ("a", "b"))
    assert "3 against 3 GPU-hours over weight" in line


@pytest.mark.parametrize(
    ("view", "why"),
    [
        (None, "no gate runs"),
        (gate("b"), "a does not ask the gate"),
        (gate(), "a and b do not ask the gate"),
        (gate("a", "b"), "they do not send through it"),
        (gate("a", "b", why="ordering cannot pay"), "ordering cannot pay"),
    ],
)
def test_why_messages_are_not_ordered(view: GateView | None, why: str) -> None:
    """A node on which nobody else sends is not named."""
    assert linked(view) == [f"It shares the link of n1 with job b; neither sends first: {why}."]


def test_what_was_measured_is_said_first() -> None:
    """A job that yields loses a little by it; without a measurement nothing is said."""
    first = linked(gate("b", exposed_fraction=0.25, gain_fraction=-0.01))[0]
    said = "It waits for messages 25% of its time"
    assert first == f"{said}; ordering its links should change its remaining time by +1.0%."
    assert linked(gate("b", exposed_fraction=0.25))[0] == f"{said}."
    assert "waits" not in linked(gate("b", gain_fraction=0.2))[0]
