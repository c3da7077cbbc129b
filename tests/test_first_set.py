"""Which rows of a long table the first set of tests tries, and which the exhaustive set."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sampling import leave_rows_to_the_exhaustive_set


@dataclass
class Row:
    """What the sets ask of a collected test."""

    name: str
    marks: dict[str, pytest.Mark] = field(default_factory=dict)
    path: Path = Path("test_a.py")

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        """Return the marker of that name."""
        return self.marks.get(name)

    def add_marker(self, name: str) -> None:
        """Add a marker without arguments."""
        self.marks[name] = getattr(pytest.mark, name).mark


def first(rows: list[Row]) -> list[str]:
    """Return what the first set tries."""
    items: list[Any] = rows
    leave_rows_to_the_exhaustive_set(items)
    return [row.name for row in rows if "exhaustive" not in row.marks]


@pytest.mark.parametrize(
    ("rows", "most", "kept"),
    [(9, 3, [0, 3, 6]), (10, 4, [0, 2, 5, 8]), (2, 1, [0]), (2, 5, [0, 1]), (1, 1, [0])],
)
def test_the_rows_that_stay_are_spread_over_the_table(rows: int, most: int, kept: list[int]) -> None:
    mark = pytest.mark.first_set(most).mark
    table = [Row(f"test_a[{number}]", {"first_set": mark}) for number in range(rows)]
    assert first(table) == [f"test_a[{number}]" for number in kept]


def test_only_rows_of_the_first_set_are_counted() -> None:
    """A test without the marker stays, and so does a row beside one that is exhaustive anyway."""
    mark, exhaustive = pytest.mark.first_set(1).mark, pytest.mark.exhaustive.mark
    table = [
        Row("test_a[0]", {"first_set": mark, "exhaustive": exhaustive}),
        Row("test_a[1]", {"first_set": mark}),
        Row("test_a[2]", {"first_set": mark}),
        Row("test_b[0]"),
        Row("test_b[1]"),
    ]
    assert first(table) == ["test_a[1]", "test_b[0]", "test_b[1]"]
