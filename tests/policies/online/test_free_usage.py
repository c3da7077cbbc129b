"""Committed usage: the part that is free, and the part of its price at which jobs fill it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.online.free_usage import (
    PRICE_FRACTIONS,
    FreeUsage,
    price_fractions_at,
    step_that_fills,
    usage_to_pay,
)

LEVELS: FreeUsage = ((frozenset({"a10g"}), 2.0), (frozenset({"a10g", "l4"}), 3.0))


@pytest.mark.parametrize(
    ("taken", "left"),
    [
        ({}, {}),
        ({"h100": 99.0}, {"h100": 99.0}),
        ({"a10g": 5.0}, {"a10g": 0.0}),
        ({"a10g": 6.0}, {"a10g": 1.0}),
        ({"l4": 3.0, "a10g": 2.0}, {"l4": 0.0, "a10g": 0.0}),
        ({"l4": 4.0}, {"l4": 1.0}),
    ],
)
def test_commitments_for_few_types_are_used_before_those_for_many(
    taken: dict[str, float], left: dict[str, float]
) -> None:
    """A level of 2 covers one type and a level of 3 covers both; other usage is paid in full."""
    assert usage_to_pay(LEVELS, taken) == left


@given(base=st.floats(0.0, 8.0), slope=st.floats(0.0, 1.0))
def test_the_price_falls_until_committed_usage_is_filled(base: float, slope: float) -> None:
    """The step is the last one that is free, and -1 where usage at the whole price is more."""
    step = step_that_fills(LEVELS, lambda at: {"a10g": base + slope * at})

    assert step == -1 or base + slope * step <= 5.0
    assert step == len(PRICE_FRACTIONS) - 1 or base + slope * (step + 1) > 5.0
    assert step_that_fills((), lambda at: {}) == -1


def test_only_covered_types_get_a_lower_price() -> None:
    assert price_fractions_at(LEVELS, 4) == {"a10g": 0.5, "l4": 0.5}
    assert PRICE_FRACTIONS[0] == 1.0
