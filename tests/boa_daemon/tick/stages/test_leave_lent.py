"""What was lent stays with the job that has it, as long as no node is held for that."""

from __future__ import annotations

import pytest
from drafts import PRICES, a_draft, gpus

from boa_daemon.testing import a_job, a_node, a_state, an_instance_type, some_slots
from boa_daemon.tick.stages.leave_lent import leave_lent
from boa_daemon.tick.state import ClusterState
from policies.model import GpuSlot, Width

FOLLOWS = {"node_prices": PRICES}


def holding(**held: tuple[GpuSlot, ...]) -> ClusterState:
    """Return a state of two nodes in which jobs hold GPUs."""
    return a_state(*map(a_job, held), nodes=[a_node("n1"), a_node("n2")], held=held)


def test_a_job_that_holds_more_than_planned_keeps_it_and_the_plan_is_noted() -> None:
    """Four held on its own node, two planned."""
    state = holding(a=some_slots("n1", 0, 1, 2, 3), b=some_slots("n2", 0))
    found = leave_lent(state, a_draft(gpus(a=2, b=1), policy=FOLLOWS))

    assert found.allocation.widths == gpus(a=4, b=1)
    assert found.lent == gpus(a=2)


@pytest.mark.parametrize("planned", [Width("gpu", 2), Width("gpu", 3), Width("other", 1)])
def test_as_many_or_more_or_others_are_as_planned(planned: Width) -> None:
    """Two held: two or three planned, or one of another type, is not a loan."""
    draft = a_draft({"a": planned}, policy=FOLLOWS)
    assert leave_lent(holding(a=some_slots("n1", 0, 1)), draft) is draft


def test_a_job_that_waits_and_one_that_gets_just_its_width_keep_nothing() -> None:
    """Nothing is lent to the first; the policy wants exactly one GPU for the second."""
    draft = a_draft(gpus(a=1, b=1), policy={**FOLLOWS, "exact": frozenset({"b"})})
    assert leave_lent(holding(a=(), b=some_slots("n1", 0, 1)), draft) is draft


def test_one_that_gets_just_its_width_hides_nobody_behind_it() -> None:
    """Jobs a and b are passed over, for their own reasons; c after them keeps what it has."""
    state = holding(a=some_slots("n1", 0, 1), b=(), c=some_slots("n2", 0, 1))
    found = leave_lent(state, a_draft(gpus(a=1, b=1, c=1), policy={**FOLLOWS, "exact": frozenset({"a"})}))
    assert found.lent == gpus(c=1)


def test_without_node_prices_nothing_is_lent() -> None:
    """The site's rules hold."""
    draft = a_draft(gpus(a=1))
    assert leave_lent(holding(a=some_slots("n1", 0, 1)), draft) is draft


def test_a_job_that_stays_keeps_its_width_and_is_not_asked_for_it_later() -> None:
    """It is no lender."""
    state = holding(a=some_slots("n1", 0, 1), b=some_slots("n1", 2, 3))
    found = leave_lent(state, a_draft(gpus(a=1, b=1), policy={**FOLLOWS, "stay": frozenset({"a"})}))
    assert found.allocation.widths == gpus(a=2, b=2)
    assert found.lent == gpus(b=1)


def test_no_node_is_held_for_what_was_lent() -> None:
    """On n2 there is nothing but loans: both jobs go back; with a planned GPU on it both keep theirs."""
    a = some_slots("n1", 0, 1) + some_slots("n2", 0)
    b = some_slots("n1", 2, 3) + some_slots("n2", 1, 2)
    draft = a_draft(gpus(a=2, b=2), policy=FOLLOWS)
    assert leave_lent(holding(a=a, b=b), draft) is draft

    found = leave_lent(holding(a=a, b=b, c=some_slots("n2", 3)), draft)
    assert found.lent == gpus(a=2, b=2)


def test_a_loan_on_a_node_that_is_gone_is_over() -> None:
    """The state no longer knows n2."""
    state = holding(a=some_slots("n1", 0) + some_slots("n2", 0), b=some_slots("n2", 1))
    other = a_state(nodes=[a_node("n1", kind=an_instance_type())])
    draft = a_draft(gpus(a=1), policy=FOLLOWS)
    gone = type(state)(now=0.0, tick=1, nodes=other.nodes, jobs=state.jobs)
    assert leave_lent(gone, draft) is draft
    assert leave_lent(state, draft).lent == gpus(a=1)
