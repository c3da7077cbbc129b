"""Hashes of tasks: cache keys, because the same values and code give the same answer.

The hash includes the source of both packages and the versions of numpy and scipy, because versions may differ
in the last digits. The order of mappings counts, because it breaks ties; that of sets does not.
"""

from __future__ import annotations

import hashlib
import pickle
import sys
from collections.abc import Mapping, Set
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy

import policies
from boa_daemon.traces.reader import Trace
from policies.model import Problem

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_MOST_KNOWN = 64
_known: dict[int, tuple[Trace | Problem, bytes]] = {}
"""Hashes of traces and problems by id. The objects are kept, so that an id is not reused."""


def code_folders() -> tuple[Path, Path]:
    """Return the folders of both packages."""
    return Path(policies.__path__[0]), Path(__file__).parents[1]


@cache
def code_hash() -> str:
    """Return a hash of the code: both packages, and the versions of numpy, scipy and Python."""
    digest = hashlib.sha256(repr((np.__version__, scipy.__version__, sys.version_info[:2])).encode())
    for root in code_folders():
        for path in sorted(root.rglob("*.py")):
            digest.update(path.relative_to(root).as_posix().encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def content_hash(*values: object) -> str:
    """Return a hash of values: dataclasses, containers, numbers, strings and arrays."""
    digest = hashlib.sha256()
    for value in values:
        _feed(digest, value)
    return digest.hexdigest()[:40]


def _feed(digest: Any, value: object) -> None:
    """Add a value to a hash, with its type, so that different values never give the same bytes."""
    if isinstance(value, Trace | Problem):
        known = _known.get(id(value))
        if known is None or known[0] is not value:
            known = value, _of_parts(value)
            if len(_known) >= _MOST_KNOWN:
                _known.clear()
            _known[id(value)] = known
        digest.update(known[1])
    elif isinstance(value, _PLAIN):
        # A string enumeration is hashed by its value.
        digest.update(f"{type(value).__qualname__} {value!r};".encode())
    elif isinstance(value, Set):
        digest.update(f"set {sorted(content_hash(one) for one in value)};".encode())
    else:
        digest.update(_of_parts(value))


def _of_parts(value: object) -> bytes:
    """Return a hash of a value that has parts."""
    digest = hashlib.sha256(type(value).__qualname__.encode())
    if is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            digest.update(f"{field.name}=".encode())
            _feed(digest, getattr(value, field.name))
    elif isinstance(value, Mapping):
        for key, one in value.items():
            _feed(digest, key)
            _feed(digest, one)
    elif isinstance(value, list | tuple):
        for one in value:
            _feed(digest, one)
    elif isinstance(value, np.ndarray):
        digest.update(f"{value.dtype.str} {value.shape};".encode() + value.tobytes())
    elif callable(value) and hasattr(value, "__qualname__"):
        digest.update(f"{value.__module__}.{value.__qualname__}".encode())
    else:
        # Such as a curve of a plug-in: hash the bytes that would be sent to a worker.
        digest.update(pickle.dumps(value, protocol=5))
    return digest.digest()
