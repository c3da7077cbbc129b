"""Points of death: which are deaths of their own, and which test takes which.

Some are taken in any run of the tests, the others where all is tested.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
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


def what_is_left(folder: Path) -> str:
    """Return a digest of what a process that dies now leaves in a folder.

    SQLite's index of its log is no part of it: whoever opens the database next makes it anew.
    """
    found = sha256()
    for file in sorted(folder.rglob("*")):
        if file.is_file() and not file.name.endswith("-shm"):
            found.update(f"{file.relative_to(folder)}:{file.stat().st_size}\n".encode() + file.read_bytes())
    return found.hexdigest()
