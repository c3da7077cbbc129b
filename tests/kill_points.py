"""Which test takes which points of death: some in any run of the tests, the others where all is tested."""

from __future__ import annotations

from typing import Any

import pytest


def shares(of_each: int, *, parts: int) -> list[Any]:
    """Return (first point, step) of each test, which together take every point once.

    Every `of_each`-th point is taken in so many parts that can be side by side, the first of them by any run
    of the tests; all others are exhaustive.
    """
    first, *more = ((of_each * part, of_each * parts) for part in range(parts))
    others = [*more, *((begin, of_each) for begin in range(1, of_each))]
    return [first, *(pytest.param(*share, marks=pytest.mark.exhaustive) for share in others)]
