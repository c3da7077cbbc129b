"""Usage that is paid for: what is free, and at which part of its price jobs fill it."""

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
def test_what_covers_few_types_is_used_before_what_covers_many(
    taken: dict[str, float], left: dict[str, float]
) -> None:
    """A level of 2 for one type and one of 3 for both; others are paid in full."""
    assert usage_to_pay(LEVELS, taken) == left


@given(base=st.floats(0.0, 8.0), slope=st.floats(0.0, 1.0))
def test_the_price_falls_until_what_is_paid_for_is_taken(base: float, slope: float) -> None:
    """The step is the last that is free, and none where even the whole price takes more."""
    step = step_that_fills(LEVELS, lambda at: {"a10g": base + slope * at})

    assert step == -1 or base + slope * step <= 5.0
    assert step == len(PRICE_FRACTIONS) - 1 or base + slope * (step + 1) > 5.0
    assert step_that_fills((), lambda at: {}) == -1


def test_only_types_that_are_covered_count_less() -> None:
    assert price_fractions_at(LEVELS, 4) == {"a10g": 0.5, "l4": 0.5}
    assert PRICE_FRACTIONS[0] == 1.0
