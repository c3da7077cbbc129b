"""The widths that a date's programme weighs, and the size that it is made for."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.testing import a_job, a_node, a_state, an_instance_type, rules, some_slots
from boa_daemon.tick.dates import BOOT_HOURS, MOST_RUNGS, Hours, _thinned, advice_of, boot_hours_of
from boa_daemon.tick.state import ClusterState, Due, JobTerms
from policies.model import Width

ONES = rules(instance_types={"gpu": an_instance_type(gpus=1)})


def hours_at(*gpus: int, work: float = 8.0) -> Hours:
    """Return perfectly parallel hours at some widths."""
    return tuple((Width("gpu", count), work / count) for count in gpus)


@given(gpus=st.sets(st.integers(1, 64), min_size=1), data=st.data())
def test_the_fastest_width_and_halves_of_its_price_are_weighed_the_cheapest_and_what_is_held(
    gpus: set[int], data: st.DataObject
) -> None:
    """Each at most half of the one before, five at the most; what a job holds is always among them.

    Half an hour more at every width makes the narrowest the cheapest.
    """
    hours = tuple((width, took + 0.5) for width, took in hours_at(*sorted(gpus)))
    prices = {width: float(width.gpus) for width, _ in hours}
    held = data.draw(st.sampled_from(sorted(gpus)))
    found = [width.gpus for width, _ in _thinned(hours, prices, held=Width("gpu", held))]
    assert len(found) == len(set(found)) <= MOST_RUNGS + 2
    assert {max(gpus), min(gpus), held} <= set(found) <= gpus
    halves = [count for count in found if count not in (min(gpus), held) or count == max(gpus)]
    assert all(later * 2 <= first for first, later in pairwise(halves))
    left_out = gpus.difference(found)
    is_near = (any(count <= taken < 2 * count for taken in found) for count in left_out)
    assert all(is_near) or len(found) >= MOST_RUNGS


def test_of_what_costs_the_same_the_faster_is_weighed_and_no_dearer_one_that_is_slower() -> None:
    """Four of the old type cost what two of the new do, and are slower; one of the old is the cheapest."""
    new, old = (lambda n: Width("new", n)), (lambda n: Width("old", n))
    hours = ((new(4), 1.0), (new(2), 2.0), (old(4), 3.0), (old(8), 1.5), (old(1), 8.0))
    prices = {new(4): 8.0, new(2): 4.0, old(4): 4.0, old(8): 8.0, old(1): 0.5}

    assert [width for width, _ in _thinned(hours, prices)] == [new(4), new(2), old(1)]


def with_due(due: Due) -> ClusterState:
    """Return a state in which job "a" has a date and holds a GPU."""
    state = a_state(a_job("a"), nodes=[a_node("n1", gpus=1)], held={"a": some_slots("n1", 0)}, now=1000.0)
    return replace(state, jobs={"a": replace(state.jobs["a"], terms=JobTerms(due=due))})


@pytest.mark.parametrize(
    ("hours_left", "sizes", "kept"),
    [
        (20.0, ((1.0, 1.0),), 1.0),
        (20.0, ((1.0, 0.7), (100.0, 0.3)), 0.7),
        (0.5, ((1.0, 1.0),), 0.0),
    ],
)
def test_the_probability_is_over_all_sizes_that_the_work_may_have(
    hours_left: float, sizes: tuple[tuple[float, float], ...], kept: float
) -> None:
    """Eight hours on one GPU in twenty; a size of a hundred times that, or half an hour, is hopeless."""
    due = Due(at=1000.0 + 3600.0 * hours_left, hours=hours_at(1), sizes=sizes)
    state = with_due(due)
    found = advice_of(state, ONES, state.jobs["a"], due, boot_hours=BOOT_HOURS)
    assert found.kept == pytest.approx(kept, abs=0.01)


def test_a_boot_takes_what_the_policy_knows() -> None:
    """Else six minutes."""
    assert boot_hours_of(None) == BOOT_HOURS


def test_what_no_size_can_keep_is_advised_on_for_the_smallest() -> None:
    """A job that waits has three minutes, which is less than a boot."""
    due = Due(at=1180.0, hours=hours_at(1, 2))
    state = a_state(a_job("a"), now=1000.0)
    found = advice_of(state, ONES, state.jobs["a"], due, boot_hours=BOOT_HOURS)
    assert found.kept == 0.0


@pytest.mark.parametrize(
    ("hours_left", "usd"), [(20.0, 0.7 * 8.0 + 0.3 * 16.0), (12.0, 0.7 * 8.0 + 0.3 * 12.0)]
)
def test_the_dollars_are_the_mean_over_the_sizes_up_to_the_largest_that_can_be_met(
    hours_left: float, usd: float
) -> None:
    """Eight hours on one GPU at a dollar, or sixteen: in twelve hours as much of the second as fits."""
    due = Due(at=1000.0 + 3600.0 * hours_left, hours=hours_at(1), sizes=((1.0, 0.7), (2.0, 0.3)))
    state = with_due(due)
    found = advice_of(state, ONES, state.jobs["a"], due, boot_hours=BOOT_HOURS)
    assert found.usd == pytest.approx(usd, rel=0.02)
