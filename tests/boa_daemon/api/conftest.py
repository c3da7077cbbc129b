"""What the tests of the page share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from browsers import a_browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Yield a browser for the tests of a module."""
    with a_browser() as found:
        yield found
