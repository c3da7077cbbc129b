"""What a task is, as a hash: the same values under the same code give the same answer, so it is kept by that.

Part of the hash is the source of both packages and the versions of numpy and scipy, whose last digits differ.
Mappings count in their order, because ties are broken by it; sets do not.
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
"""Hashes of traces and problems, long ones that many tasks share; each is held, so its id stays its own."""


def code_folders() -> tuple[Path, Path]:
    """Return where the two packages are."""
    return Path(policies.__path__[0]), Path(__file__).parents[1]


@cache
def code_hash() -> str:
    """Return a hash of the code that answers: both packages, numpy, scipy and Python."""
    digest = hashlib.sha256(repr((np.__version__, scipy.__version__, sys.version_info[:2])).encode())
    for root in code_folders():
        for path in sorted(root.rglob("*.py")):
            digest.update(path.relative_to(root).as_posix().encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def content_hash(*values: object) -> str:
    """Return a hash of values: dataclasses, containers, numbers, words and arrays."""
    digest = hashlib.sha256()
    for value in values:
        _feed(digest, value)
    return digest.hexdigest()[:40]


def _feed(digest: Any, value: object) -> None:
    """Add a value to a hash, with its kind and its length, so that no two values read alike."""
    if isinstance(value, Trace | Problem):
        known = _known.get(id(value))
        if known is None or known[0] is not value:
            known = value, _of_parts(value)
            if len(_known) >= _MOST_KNOWN:
                _known.clear()
            _known[id(value)] = known
        digest.update(known[1])
    elif isinstance(value, _PLAIN):
        # An enumeration of words is its word, which is all that code sees of it.
        digest.update(f"{type(value).__qualname__} {value!r};".encode())
    elif isinstance(value, Set):
        digest.update(f"set {sorted(content_hash(one) for one in value)};".encode())
    else:
        digest.update(_of_parts(value))


def _of_parts(value: object) -> bytes:
    """Return a hash of something that has parts."""
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
        # A curve of somebody's plug-in, say: what would be sent to a worker tells it from others.
        digest.update(pickle.dumps(value, protocol=5))
    return digest.digest()
