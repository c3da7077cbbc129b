"""Claims: what a job that was told to move keeps until it starts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from followers import Known

from boa_daemon.testing import a_job, a_node, a_state, rules, some_slots
from boa_daemon.tick.decide.decision import Decision, decide
from boa_daemon.tick.facts.actions import StartJob, StopJob
from boa_daemon.tick.facts.codec import dumps, loads
from boa_daemon.tick.facts.state import Claim, ClusterState, JobTerms
from policies.model import Width
from policies.placement.first_fit import FirstFit


def between(*others: str, claim: Claim, nodes: int = 1, **changes: Any) -> ClusterState:
    """Return job a, which was stopped to move, and younger jobs that wait, on empty nodes of four GPUs."""
    jobs = [a_job("a"), *(a_job(name, arrived_at=1.0) for name in others)]
    state = a_state(*jobs, nodes=[a_node(f"n{n}") for n in range(nodes)], now=10.0)
    moved = replace(state.jobs["a"], generation=1, terms=JobTerms(**changes))
    return replace(state, jobs={**state.jobs, "a": moved}, claims={"a": claim})


def starts(
    state: ClusterState, max_nodes: int | None = None, **widths: int
) -> dict[str, tuple[int, list[int]]]:
    """Return the width and the GPU numbers of each job that starts."""
    decision = decided(state, max_nodes, **widths)
    return {
        action.job: (action.width.gpus, [slot.index for slot in action.slots])
        for action in decision.actions
        if isinstance(action, StartJob)
    }


def decided(state: ClusterState, max_nodes: int | None = None, **widths: int) -> Decision:
    """Return the decision under these planned widths."""
    site = rules(max_nodes=max_nodes)
    return decide(state, allocator=Known(widths=widths), placer=FirstFit(), rules=site)


TWO = Claim(width=Width("gpu", 2), slots=some_slots("n0", 2, 3))


def test_a_job_starts_on_the_gpus_that_it_was_told_whatever_arrives() -> None:
    """The arrivals get the other two GPUs; without a claim one of them would take all four."""
    found = starts(between("b", "c", claim=TWO), 1, a=4, b=2, c=4)
    assert found["a"] == (2, [2, 3])
    assert all(not {2, 3} & set(slots) for name, (_, slots) in found.items() if name != "a")


def test_the_free_gpus_that_a_stopping_job_is_to_get_stay_free() -> None:
    """Job a still holds GPU 0, and is to have 0 to 2."""
    claim = Claim(width=Width("gpu", 3), slots=some_slots("n0", 0, 1, 2))
    state = a_state(a_job("a"), a_job("b"), nodes=[a_node("n0")], held={"a": some_slots("n0", 0)}, now=10.0)
    state = replace(state, jobs={**state.jobs, "a": replace(state.jobs["a"], is_stopping=True)})
    assert starts(state, 1, a=1, b=3)["b"] == (3, [1, 2, 3])
    assert starts(replace(state, claims={"a": claim}), 1, a=3, b=3) == {"b": (1, [3])}


def test_a_job_waits_for_gpus_that_another_job_is_about_to_leave() -> None:
    """Job c stops and holds GPU 3: job a keeps GPU 2 reserved, and starts once both are free."""
    state = between("b", claim=TWO)
    c = a_state(a_job("c"), nodes=[a_node("n0")], held={"c": some_slots("n0", 3)})
    jobs = {**state.jobs, "c": replace(c.jobs["c"], is_stopping=True)}
    held = replace(state, nodes=c.nodes, jobs=jobs)
    found = starts(held, 1, a=2, b=4, c=1)
    assert set(found) == {"b"}
    assert {0, 1}.issuperset(found["b"][1])


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"claims": {}}, "no claim"),
        ({"nodes": {"n1": a_node("n1")}}, "its node is gone"),
        ({"nodes": {"n0": replace(a_node("n0"), ends_by=500.0), "n1": a_node("n1")}}, "its node ends"),
    ],
)
def test_a_claim_on_gpus_that_are_gone_reserves_nothing_but_its_job_is_first(
    changes: dict[str, Any], why: str
) -> None:
    """Job b comes first in the order of arrival; job a lost its GPUs and is served before it."""
    state = between(claim=TWO)
    older = a_state(a_job("b", arrived_at=-5.0)).jobs["b"]
    state = replace(state, jobs={"b": older, **state.jobs}, **changes)
    first = list(starts(state, None, a=4, b=4))[:1]
    assert first == (["b"] if why == "no claim" else ["a"])


def test_a_job_that_may_not_start_claims_nothing() -> None:
    """Its file sets a later start by now; and a width that its user ordered since overrules the claim."""
    assert starts(between("b", claim=TWO, not_before=1e6), 1, a=4, b=4) == {"b": (4, [0, 1, 2, 3])}
    assert starts(between(claim=TWO, ordered_gpus=3), 1, a=3)["a"][0] == 3


def test_a_claim_takes_part_in_the_sharing_of_scarce_room_like_a_running_job() -> None:
    """One node for three jobs: job a keeps its two GPUs, and its reason says that it finishes a move."""
    decision = decided(between("b", "c", claim=TWO), 1, a=4, b=4, c=4)
    assert decision.plan.jobs.widths["a"] == Width("gpu", 2)
    assert "finishes that move" in decision.plan.jobs.reasons["a"]
    assert not [action for action in decision.actions if isinstance(action, StopJob)]


def test_claims_are_in_the_record_and_old_records_have_none() -> None:
    """A replay decides the same."""
    state = between("b", claim=TWO)
    again = loads(dumps(state))
    assert again.claims == state.claims
    assert decided(again, 1, a=4, b=4).actions == decided(state, 1, a=4, b=4).actions
    assert loads(dumps(replace(state, claims={}))).claims == {}
