"""Advice for a date: which widths its programme considers, and for which size it is made."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.testing import a_job, a_node, a_state, an_instance_type, rules, some_slots
from boa_daemon.tick.facts.limits import Caps
from boa_daemon.tick.facts.offers import Cooldown, Offer
from boa_daemon.tick.facts.state import ClusterState, Due, JobTerms
from boa_daemon.tick.room.deadline_advice import (
    BOOT_HOURS,
    MOST_RUNGS,
    SPOT,
    Hours,
    _rung,
    _spot_price,
    _surest,
    _thinned,
    advice_of,
    base_width,
    boot_hours_of,
    look_hours_of,
    on_market,
    programme,
)
from policies.model import Width
from policies.online.deadlines import FAILURE_HOURS

ONES = rules(instance_types={"gpu": an_instance_type(gpus=1)})


def hours_at(*gpus: int, work: float = 8.0) -> Hours:
    """Return the run times of perfectly parallel work at these widths."""
    return tuple((Width("gpu", count), work / count) for count in gpus)


@given(gpus=st.sets(st.integers(1, 64), min_size=1), data=st.data())
def test_the_considered_widths_are_fastest_cheapest_held_and_each_half_of_the_price(
    gpus: set[int], data: st.DataObject
) -> None:
    """At most five widths are chosen by price; the cheapest and the held width are added.

    Half an hour more at every width makes the narrowest width the cheapest.
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


def test_widths_that_are_slower_at_the_same_or_a_higher_price_are_not_considered() -> None:
    """Four GPUs of the old type cost what two of the new type do and are slower; one old GPU is cheapest."""
    new, old = (lambda n: Width("new", n)), (lambda n: Width("old", n))
    hours = ((new(4), 1.0), (new(2), 2.0), (old(4), 3.0), (old(8), 1.5), (old(1), 8.0))
    prices = {new(4): 8.0, new(2): 4.0, old(4): 4.0, old(8): 8.0, old(1): 0.5}

    assert [width for width, _ in _thinned(hours, prices)] == [new(4), new(2), old(1)]


def with_due(due: Due) -> ClusterState:
    """Return a state in which job a has a date and holds a GPU."""
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
def test_the_probability_to_meet_a_date_covers_all_possible_sizes(
    hours_left: float, sizes: tuple[tuple[float, float], ...], kept: float
) -> None:
    """The work takes eight hours of twenty; a hundred times the work, or half an hour, cannot be met."""
    due = Due(at=1000.0 + 3600.0 * hours_left, hours=hours_at(1), sizes=sizes)
    state = with_due(due)
    found = advice_of(state, ONES, state.jobs["a"], due, boot_hours=BOOT_HOURS)
    assert found.kept == pytest.approx(kept, abs=0.01)


def test_the_boot_time_has_a_default_without_node_prices() -> None:
    """The default is `BOOT_HOURS`."""
    assert boot_hours_of(None) == BOOT_HOURS


def test_a_date_that_no_size_can_meet_has_probability_zero() -> None:
    """A waiting job has three minutes left, which is less than a boot."""
    due = Due(at=1180.0, hours=hours_at(1, 2))
    state = a_state(a_job("a"), now=1000.0)
    found = advice_of(state, ONES, state.jobs["a"], due, boot_hours=BOOT_HOURS)
    assert found.kept == 0.0


@pytest.mark.parametrize(
    ("hours_left", "usd"), [(20.0, 0.7 * 8.0 + 0.3 * 16.0), (12.0, 0.7 * 8.0 + 0.3 * 12.0)]
)
def test_the_expected_cost_is_the_mean_over_the_sizes_that_fit_before_the_date(
    hours_left: float, usd: float
) -> None:
    """The work takes 8 or 16 hours at 1 USD; with 12 hours left the larger size counts as 12 hours."""
    due = Due(at=1000.0 + 3600.0 * hours_left, hours=hours_at(1), sizes=((1.0, 0.7), (2.0, 0.3)))
    state = with_due(due)
    found = advice_of(state, ONES, state.jobs["a"], due, boot_hours=BOOT_HOURS)
    assert found.usd == pytest.approx(usd, rel=0.02)


RUNGS: Hours = ((Width("gpu", 1), 8.0), (Width("gpu", 2), 4.0))


@pytest.mark.parametrize(
    ("held", "is_spot", "boot", "hours_left", "found"),
    [
        (None, False, 0.5, 4.5, (2, 4.5 * 2.0, 4.5 / FAILURE_HOURS)),
        (None, False, 0.5, 4.49, None),
        (1, False, 0.5, 8.0, (2, 4.5 * 2.0, 4.5 / FAILURE_HOURS)),
        (1, False, 5.0, 8.0, (1, 8.0, 8.0 / FAILURE_HOURS)),
        (1, False, 5.0, 7.99, None),
        (1, True, 5.0, 8.0, (1, 8.0, 8.0 / SPOT.up_hours)),
        (2, False, 0.5, 9.0, (2, 4.0 * 2.0, 4.0 / FAILURE_HOURS)),
        (2, True, 0.5, 9.0, (2, 4.5 * 2.0, 4.5 / FAILURE_HOURS)),
        (3, False, 0.5, 4.5, (2, 4.5 * 2.0, 4.5 / FAILURE_HOURS)),
    ],
)
def test_the_surest_way_is_to_stay_or_to_take_the_fastest_width_on_demand(
    held: int | None, is_spot: bool, boot: float, hours_left: float, found: tuple[int, float, float] | None
) -> None:
    """The work takes 8 h on one GPU and 4 h on two, at 1 USD each; a held width needs no boot."""
    width = None if held is None else Width("gpu", held)
    surest = _surest(ONES, width, RUNGS, 1.0, hours_left=hours_left, boot=boot, is_spot=is_spot)
    assert (surest is None) is (found is None)
    if surest is not None and found is not None:
        gpus, usd, risk = found
        assert (surest.width, surest.is_firm) == (Width("gpu", gpus), True)
        assert (surest.usd, surest.kept) == (pytest.approx(usd), pytest.approx(exp(-risk)))
        half = _surest(ONES, width, RUNGS, 0.5, hours_left=hours_left, boot=boot, is_spot=is_spot)
        assert half is not None
        assert half.kept > surest.kept


@pytest.mark.parametrize(
    ("hours", "horizon"),
    [(0.01, 0.25), (0.25, 0.25), (0.26, 2.0**-1.75), (3.0, 2.0**1.75), (4.0, 4.0), (4.01, 2.0**2.25)],
)
def test_a_programmes_horizon_is_rounded_up_and_its_steps_are_at_least_a_tick_long(
    hours: float, horizon: float
) -> None:
    """Horizons grow by quarters of a doubling; there are 240 steps, or fewer of 30 s each."""
    due = Due(at=0.0, hours=hours_at(1, 2))
    plan, fastest = programme(a_state(), ONES, due, hours=hours, boot_hours=0.1)
    assert fastest == 4.0
    look = 30.0 / 3600.0
    assert plan.step_hours == pytest.approx(max(horizon / 240.0, look))
    assert (len(plan.best) - 1) * plan.step_hours == pytest.approx(horizon, abs=look)
    assert (len(plan.best) - 1) * plan.step_hours >= horizon * (1.0 - 1e-9)


def test_a_width_costs_its_part_of_a_node_and_its_speed_has_three_digits() -> None:
    """A very low speed is not rounded to zero; spot counts at its cheapest offer that has a price."""
    kind = an_instance_type(gpus=4)
    site, two = rules(instance_types={"gpu": kind}), Width("gpu", 2)
    found = _rung(a_state(), site, two, 0.12345)
    assert (found.speed, found.usd_per_hour, found.spot_usd_per_hour) == (0.123, 2.0, None)
    assert _rung(a_state(), site, two, 1e-5).speed == 1e-5
    spot = Offer(instance_type="gpu-x4", market="spot", usd_per_hour=1.2345)
    others = (
        replace(spot, zone="b", usd_per_hour=9.0),
        replace(spot, zone="c", usd_per_hour=None),
        replace(spot, instance_type="new-x4", usd_per_hour=0.1),
        replace(spot, market="on-demand", usd_per_hour=0.1),
    )
    assert _rung(a_state(offers=(*others, spot)), site, two, 1.0).spot_usd_per_hour == 0.617
    closed = a_state(offers=(spot,), cooldowns={spot.key: Cooldown(until=9.0)})
    assert _spot_price(closed, site, two, is_open=False) == 1.2345
    assert _spot_price(closed, site, two, is_open=True) is None


def test_sizes_with_a_very_low_probability_are_ignored() -> None:
    """Ten times the work has a probability of 0.5 %: only the other two sizes count."""
    due = Due(at=1000.0 + 360_000.0, hours=hours_at(1), sizes=((1.0, 0.5), (1.5, 0.495), (10.0, 0.005)))
    state = with_due(due)
    found = advice_of(state, ONES, state.jobs["a"], due, boot_hours=BOOT_HOURS)
    assert found.usd == pytest.approx(0.5 * 8.0 + 0.5 * 12.0, rel=0.01)


def test_a_date_names_the_spot_type_if_spot_is_planned_as_its_own_type() -> None:
    """The base width has no market in its type; the length of a tick comes from the caps."""
    kinds = {"gpu": an_instance_type(gpus=1), "gpu@spot": an_instance_type(gpus=1)}
    apart, one = rules(instance_types=kinds), Width("gpu", 1)
    assert on_market(apart, one, is_firm=False) == Width("gpu@spot", 1)
    assert on_market(apart, one, is_firm=True) == on_market(ONES, one, is_firm=False) == one
    assert base_width(Width("gpu@spot", 3)) == Width("gpu", 3)
    assert base_width(None) is None
    assert look_hours_of(rules(caps=Caps(tick_seconds=90.0))) == 90.0 / 3600.0
    assert look_hours_of(rules()) == 30.0 / 3600.0
