"""The number of examples of a property: all in exhaustive runs, else an eighth."""

from __future__ import annotations

from hypothesis import settings

EXAMPLES, SAMPLED = 50, 8
"""Of a property that does not say, with the exhaustive tests and without."""


def sampled(most: int) -> int:
    """Return the number of examples for a property that asks for `most`."""
    return most if settings.default.max_examples >= EXAMPLES else max(4, most // 8)
