"""What later stages read from a draft."""

from __future__ import annotations

import pytest
from drafts import a_draft, a_plan, gpus

from boa_daemon.testing import some_slots
from boa_daemon.tick.facts.draft import SOON_SECONDS, Changes, shrinks
from policies.model import Width


@pytest.mark.parametrize(
    ("holds", "width", "does"),
    [
        (Width("gpu", 4), Width("gpu", 3), True),
        (Width("gpu", 4), Width("gpu", 4), True),
        (Width("gpu", 4), Width("gpu", 5), False),
        (Width("gpu", 4), Width("other", 3), False),
        (Width("other", 4), Width("gpu", 3), False),
        (None, Width("gpu", 1), False),
    ],
)
def test_a_job_shrinks_to_an_equal_or_smaller_width_of_the_same_type(
    holds: Width | None, width: Width, does: bool
) -> None:
    """Another type or a larger width is not a shrink."""
    assert shrinks(holds, width) == does


def test_jobs_that_return_gpus_come_before_other_wishes() -> None:
    """Their planned widths replace their old ones in the allocation and in the wishes."""
    draft = a_draft(gpus(a=4, b=4), changes=Changes(wishes=gpus(b=4), stops=("c",)))
    found = draft.giving_back(gpus(a=1))
    assert found.allocation.widths == gpus(a=1, b=4)
    assert list(found.changes.wishes.items()) == [*gpus(a=1).items(), *gpus(b=4).items()]
    assert found.changes.stops == ("c",)


def test_an_existing_wish_is_not_overwritten() -> None:
    """Job a already wants two GPUs."""
    draft = a_draft(gpus(a=2), changes=Changes(wishes=gpus(a=2)))
    assert draft.giving_back(gpus(a=1)).changes.wishes == gpus(a=2)


def test_wishes_without_slots_are_unplaced_in_their_order() -> None:
    """Job b has slots, so only c and a are unplaced."""
    plan = a_plan(slots={"b": some_slots("n1", 0)})
    draft = a_draft(changes=Changes(wishes=gpus(c=1, b=1, a=1)), plan=plan)
    assert list(draft.unplaced.items()) == list(gpus(c=1, a=1).items())


@pytest.mark.parametrize(
    ("limit", "nodes", "may", "fixed"),
    [(False, None, True, False), (True, None, False, False), (False, {}, False, True)],
)
def test_moves_that_only_improve_need_no_node_limit_and_no_fixed_fleet(
    limit: bool, nodes: dict[str, int] | None, may: bool, fixed: bool
) -> None:
    """A fleet of zero nodes is also fixed."""
    draft = a_draft(policy={"nodes": nodes}, is_at_node_limit=limit)
    assert (draft.may_improve, draft.has_fixed_fleet) == (may, fixed)


def test_an_empty_draft_has_its_defaults() -> None:
    """It is not at the node limit, has no lent GPUs, and "soon" means one second."""
    draft = a_draft()
    assert (SOON_SECONDS, draft.is_at_node_limit, draft.room, draft.lent) == (1.0, False, None, {})
    assert draft.unplaced == {}
