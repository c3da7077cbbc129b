"""What the first set of tests tries of a property and of a long table; exhaustive runs try all of it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import settings

EXAMPLES, SAMPLED = 50, 8
"""Of a property that does not say, with the exhaustive tests and without."""


def sampled(most: int) -> int:
    """Return the number of examples for a property that asks for `most`."""
    return most if settings.default.max_examples >= EXAMPLES else max(4, most // 8)


def leave_rows_to_the_exhaustive_set(tests: Sequence[pytest.Item]) -> None:
    """Mark rows as exhaustive, except those that `first_set(n)` keeps, spread evenly over their table.

    Rows that belong to another set anyway are not counted.
    """
    tables: dict[tuple[str, str], list[pytest.Item]] = {}
    for test in tests:
        is_elsewhere = any(test.get_closest_marker(name) for name in OTHER_SETS)
        if test.get_closest_marker("first_set") and not is_elsewhere:
            tables.setdefault((str(test.path), test.name.partition("[")[0]), []).append(test)
    for rows in tables.values():
        (most,) = rows[0].get_closest_marker("first_set").args
        kept = {round(number * len(rows) / most) for number in range(most)}
        for number, row in enumerate(rows):
            if number not in kept:
                row.add_marker("exhaustive")


OTHER_SETS = ("exhaustive", "frameworks", "lab")
"""Markers of tests that the first set leaves out."""
