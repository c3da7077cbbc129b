"""Points of death for the crash suites: which points differ, and which test takes which points.

Some points are tried in every run of the tests, the others only in exhaustive runs.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest


def shares(of_each: int, *, parts: int) -> list[Any]:
    """Return (first point, step) of each test; together the tests take every point once.

    The first class, every `of_each`-th point, is split into `parts` tests that can run in parallel; only the
    first of these runs always, all other tests are exhaustive.
    """
    first, *more = ((of_each * part, of_each * parts) for part in range(parts))
    others = [*more, *((begin, of_each) for begin in range(1, of_each))]
    return [first, *(pytest.param(*share, marks=pytest.mark.exhaustive) for share in others)]


def what_is_left(folder: Path) -> str:
    """Return a digest of the files that a process would leave in a folder if it died now.

    SQLite's -shm file is ignored, because the next process that opens the database makes it anew.
    """
    found = sha256()
    for file in sorted(folder.rglob("*")):
        if file.is_file() and not file.name.endswith("-shm"):
            found.update(f"{file.relative_to(folder)}:{file.stat().st_size}\n".encode() + file.read_bytes())
    return found.hexdigest()
