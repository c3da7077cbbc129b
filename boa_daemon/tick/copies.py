"""Copies of frozen values with some fields changed: `dataclasses.replace` in a third of the time.

A tick makes thirty copies of its draft. Nothing is checked anew, so this is for classes that check nothing
when they are made, and whose fields are all given: others are left to `dataclasses`.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable
from functools import cache
from itertools import repeat
from operator import attrgetter
from typing import Any, TypeVar

_Value = TypeVar("_Value")
_set = object.__setattr__


@cache
def _reader(kind: Any) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]] | None:
    """Return the fields of a class and what reads them all; None where a copy is not only its fields."""
    known = dataclasses.fields(kind)
    if hasattr(kind, "__post_init__") or len(known) < 2 or not all(field.init for field in known):
        return None
    names = tuple(field.name for field in known)
    return names, attrgetter(*names)


def replace(value: _Value, /, **changes: Any) -> _Value:
    """Return a copy with some fields changed."""
    kind: Any = type(value)
    reader = _reader(kind)
    if reader is None or not changes.keys() <= set(reader[0]):
        return dataclasses.replace(value, **changes)  # type: ignore[type-var]
    names, read = reader
    copy: _Value = object.__new__(kind)
    deque(map(_set, repeat(copy), names, read(value)), maxlen=0)
    for name, new in changes.items():
        _set(copy, name, new)
    return copy
