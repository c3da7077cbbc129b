"""A job keeps lent GPUs unless a node is held only for lent GPUs."""

from __future__ import annotations

import pytest
from drafts import PRICES, a_draft, gpus

from boa_daemon.testing import a_job, a_node, a_state, an_instance_type, some_slots
from boa_daemon.tick.facts.state import ClusterState
from boa_daemon.tick.stages.widths.leave_lent import leave_lent
from policies.model import GpuSlot, Width

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
