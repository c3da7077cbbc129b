"""The draw of the multiplier by the chance of leaving the band: bounded, monotone, none in the middle."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.online.money_band import MoneyBand

LIMIT = math.log(4.0)
money = st.floats(-1e6, 1e6)


def band(*, spread: float, outer: float = -1e9) -> MoneyBand:
    """Return a band from -100 to 100."""
    return MoneyBand(least=-100.0, most=100.0, outer=outer, spread=spread, limit=LIMIT)


@given(left=money, more=st.floats(0.0, 1e6), spread=st.floats(0.0, 1e6), outer=st.floats(-1e6, -100.0))
def test_the_draw_is_bounded_and_does_not_rise_with_the_money(
    left: float, more: float, spread: float, outer: float
) -> None:
    """Whatever the noise."""
    found = band(spread=spread, outer=outer)
    assert LIMIT >= found.draw(left) >= found.draw(left + more) >= -LIMIT


@pytest.mark.parametrize(("left", "draw"), [(-101.0, LIMIT), (-99.0, 0.0), (99.0, 0.0), (101.0, -LIMIT)])
def test_without_noise_the_edges_are_sharp(left: float, draw: float) -> None:
    """Inside the band nothing is drawn."""
    assert band(spread=0.0).draw(left) == draw


@given(spread=st.floats(0.0, 1e6))
def test_in_the_middle_of_the_band_nothing_is_drawn(spread: float) -> None:
    """Neither side is likelier."""
    assert band(spread=spread).draw(0.0) == 0.0


def test_more_noise_draws_less() -> None:
    """The same debt of three times the band: chance may make up for it."""
    draws = [band(spread=spread).draw(-300.0) for spread in (0.0, 100.0, 300.0, 1000.0, 1e5)]
    assert draws == sorted(draws, reverse=True)
    assert draws[0] == LIMIT
    assert draws[-1] < 0.01


def test_beyond_the_outer_edge_chance_does_not_count() -> None:
    """There the multiplier rises to its limit."""
    found = band(spread=1e5, outer=-250.0)
    assert found.draw(-249.0) < 0.01
    assert found.draw(-251.0) == LIMIT


@pytest.mark.parametrize(("left", "beyond"), [(-130.0, 30.0), (0.0, 0.0), (130.0, 30.0)])
def test_what_is_outside_the_band_is_counted(left: float, beyond: float) -> None:
    """On both sides."""
    assert band(spread=1.0).beyond(left) == beyond
