"""Which test takes which points of death: some in any run of the tests, the others where all is tested."""

from __future__ import annotations

from typing import Any

import pytest


def shares(of_each: int, *, parts: int) -> list[Any]:
    """Return (first point, step) of each test, which together take every point once.

    Every `of_each`-th point is taken by any run of the tests, in so many parts that can be side by side; the
    others are exhaustive.
    """
    always = [(of_each * part, of_each * parts) for part in range(parts)]
    others = [pytest.param(first, of_each, marks=pytest.mark.exhaustive) for first in range(1, of_each)]
    return [*always, *others]
