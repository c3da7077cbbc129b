"""A job keeps lent GPUs unless a node is held only for lent GPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from drafts import PRICES, a_draft, gpus
from followers import Known

from boa_daemon.testing import a_job, a_node, a_state, an_instance_type, rules, some_slots
from boa_daemon.tick.decide.decision import decide
from boa_daemon.tick.facts.state import ClusterState
from boa_daemon.tick.stages.widths.leave_lent import leave_lent
from policies.model import GpuSlot, Width
from policies.placement.first_fit import FirstFit

FOLLOWS = {"node_prices": PRICES}


def holding(**held: tuple[GpuSlot, ...]) -> ClusterState:
    """Return two nodes on which jobs hold GPUs."""
    return a_state(*map(a_job, held), nodes=[a_node("n1"), a_node("n2")], held=held)


def test_a_job_that_holds_more_gpus_than_planned_keeps_them_as_lent() -> None:
    """The job holds four GPUs, and the draft records the two that are planned."""
    state = holding(a=some_slots("n1", 0, 1, 2, 3), b=some_slots("n2", 0))
    found = leave_lent(state, a_draft(gpus(a=2, b=1), policy=FOLLOWS))

    assert found.allocation.widths == gpus(a=4, b=1)
    assert found.lent == gpus(a=2)


@pytest.mark.parametrize("planned", [Width("gpu", 2), Width("gpu", 3), Width("other", 1)])
def test_gpus_are_not_lent_if_as_many_or_more_or_another_type_are_planned(planned: Width) -> None:
    """The job holds two GPUs."""
    draft = a_draft({"a": planned}, policy=FOLLOWS)
    assert leave_lent(holding(a=some_slots("n1", 0, 1)), draft) is draft


def test_waiting_jobs_and_jobs_with_an_exact_width_have_no_lent_gpus() -> None:
    """Job a holds nothing, and the width of b is exact."""
    draft = a_draft(gpus(a=1, b=1), policy={**FOLLOWS, "exact": frozenset({"b"})})
    assert leave_lent(holding(a=(), b=some_slots("n1", 0, 1)), draft) is draft


def test_jobs_behind_waiting_jobs_and_exact_widths_keep_lent_gpus() -> None:
    """Job c, behind a and b, keeps its lent GPU."""
    state = holding(a=some_slots("n1", 0, 1), b=(), c=some_slots("n2", 0, 1))
    found = leave_lent(state, a_draft(gpus(a=1, b=1, c=1), policy={**FOLLOWS, "exact": frozenset({"a"})}))
    assert found.lent == gpus(c=1)


def test_without_node_prices_no_job_keeps_lent_gpus() -> None:
    """The stage returns the same draft."""
    draft = a_draft(gpus(a=1))
    assert leave_lent(holding(a=some_slots("n1", 0, 1)), draft) is draft


def test_gpus_of_a_job_that_must_stay_are_not_recorded_as_lent() -> None:
    """Both jobs keep two GPUs; only job b's can be called back."""
    state = holding(a=some_slots("n1", 0, 1), b=some_slots("n1", 2, 3))
    found = leave_lent(state, a_draft(gpus(a=1, b=1), policy={**FOLLOWS, "stay": frozenset({"a"})}))
    assert found.allocation.widths == gpus(a=2, b=2)
    assert found.lent == gpus(b=1)
    assert "another job needs" not in found.allocation.reasons["a"]
    assert found.allocation.reasons["a"] == (
        "it keeps 2 x gpu (1 x gpu are planned): its width may not change yet"
    )
    assert "until another job needs the GPUs" in found.allocation.reasons["b"]


def test_lent_gpus_are_kept_only_on_nodes_with_a_planned_gpu() -> None:
    """Both jobs return their GPUs on n2, unless job c has a planned GPU there."""
    a = some_slots("n1", 0, 1) + some_slots("n2", 0)
    b = some_slots("n1", 2, 3) + some_slots("n2", 1, 2)
    draft = a_draft(gpus(a=2, b=2), policy=FOLLOWS)
    assert leave_lent(holding(a=a, b=b), draft) is draft

    found = leave_lent(holding(a=a, b=b, c=some_slots("n2", 3)), draft)
    assert found.lent == gpus(a=2, b=2)


def test_lent_gpus_on_a_node_that_is_gone_are_not_kept() -> None:
    """The state has no node n2 any more."""
    state = holding(a=some_slots("n1", 0) + some_slots("n2", 0), b=some_slots("n2", 1))
    other = a_state(nodes=[a_node("n1", kind=an_instance_type())])
    draft = a_draft(gpus(a=1), policy=FOLLOWS)
    gone = type(state)(now=0.0, tick=1, nodes=other.nodes, jobs=state.jobs)
    assert leave_lent(gone, draft) is draft
    assert leave_lent(state, draft).lent == gpus(a=1)


@pytest.mark.parametrize("changes", [{"ends_by": 1060.0}, {"ends_by": 9000.0}, {"phase": "terminating"}])
@pytest.mark.parametrize("nodes", [1, 2])
def test_a_job_that_has_to_move_takes_no_lent_gpus_with_it(changes: dict[str, Any], nodes: int) -> None:
    """It holds four GPUs and one is planned, for which there is room beside job b: no node is rented."""
    held = {
        "a": some_slots("n1", 0, 1) + some_slots("n3", 0, 1) if nodes == 2 else some_slots("n1", 0, 1, 2, 3),
        "b": some_slots("n2", 0, 1),
        "c": some_slots("n3", 2),
    }
    state = a_state(
        *map(a_job, held),
        nodes=[a_node(f"n{number}", launched_at=900.0) for number in (1, 2, 3)],
        held=held,
        now=1000.0,
    )
    state = replace(state, nodes={**state.nodes, "n1": replace(state.nodes["n1"], **changes)})
    draft = a_draft(gpus(a=1, b=2, c=1), policy=FOLLOWS)
    assert leave_lent(state, draft) is draft

    decision = decide(
        state,
        allocator=Known(widths={"a": 1, "b": 2, "c": 1}),
        placer=FirstFit(),
        rules=rules(),
    )
    assert not decision.plan.launches
    assert decision.plan.jobs["a"].width == Width("gpu", 1)
    assert len(decision.plan.jobs["a"].slots or ()) == 1


def test_a_job_that_has_to_go_to_the_other_market_takes_no_lent_gpus_with_it() -> None:
    """Its date asks for another market than that of its node."""
    state = holding(a=some_slots("n1", 0, 1, 2, 3), b=some_slots("n2", 0))
    draft = a_draft(gpus(a=2, b=1), policy=FOLLOWS, other_market=frozenset({"a"}))
    assert leave_lent(state, draft) is draft
