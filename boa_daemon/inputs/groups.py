"""Many jobs in one job file: `matrix` and `count` make a group with one name, one budget and one cancel.

Each member gets its matrix values as environment variables, and `BOA_INDEX`, `BOA_GROUP_SIZE` and
`BOA_GROUP`. The variable written last changes fastest; `count` repeats each combination.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

MOST_MEMBERS = 10_000
_OWN_KEYS = ("matrix", "count")


def size_of(content: Mapping[str, Any]) -> int:
    """Return the number of jobs that a checked job file makes."""
    values = content.get("matrix") or {}
    return math.prod(len(choices) for choices in values.values()) * int(content.get("count") or 1)


def is_group(content: Mapping[str, Any]) -> bool:
    """Return whether a checked job file makes a group, which may have one member."""
    return bool(content.get("matrix")) or content.get("count") is not None


def members(content: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the jobs of a checked job file: the job itself, or the members of its group in order."""
    base = {key: value for key, value in content.items() if key not in _OWN_KEYS}
    if not is_group(content):
        yield base
        return
    matrix: Mapping[str, Sequence[Any]] = content.get("matrix") or {}
    size, repeats = size_of(content), range(int(content.get("count") or 1))
    index = 0
    for values in itertools.product(*matrix.values()):
        chosen = dict(zip(matrix, values, strict=True))
        environment = {**base["environment"], **{name: text_of(value) for name, value in chosen.items()}}
        for _ in repeats:
            group = {"index": index, "size": size, "matrix": chosen}
            yield {**base, "environment": environment, "group": group}
            index += 1


def text_of(value: str | float | bool) -> str:
    """Return a matrix value as the text of a variable: text unchanged, numbers and booleans as in JSON."""
    return value if isinstance(value, str) else json.dumps(value)
