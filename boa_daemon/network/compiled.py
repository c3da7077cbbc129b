"""The kernel compiled by numba, where numba is installed: the same source, the same bits, 30 times faster.

Functions are registered with numba rather than decorated, so `boa_daemon.network.kernel` stays plain Python
and importing it costs nothing. Machine code is kept in a folder named after the source's digest, because
numba alone would not notice a change in a helper's file; a folder that cannot be written only costs compiling
again.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from boa_daemon.network import kernel, state
from policies import adadual, contention

Run = Callable[[state.Rules, state.State, float], None]


@functools.cache
def compiled_run() -> Run | None:
    """Return `kernel.run` as machine code, or None where numba is missing or does not import."""
    try:
        # Half a second, and only for large cases.
        numba: Any = importlib.import_module("numba")
        extending: Any = importlib.import_module("numba.extending")
    except ImportError:
        return None
    # Nothing is allocated, and counting references to fifty sequences at every call costs a factor of 40.
    options = {"_nrt": False}
    for function in _helpers():
        extending.register_jitable(**options)(function)
    before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, str(_cache_folder())
    try:
        run: Run = numba.njit(cache=True, **options)(kernel.run)
    except (RuntimeError, OSError):
        run = numba.njit(**options)(kernel.run)
    finally:
        numba.config.CACHE_DIR = before
    return run


def _helpers() -> list[Callable[..., Any]]:
    """Return every function that `kernel.run` reaches."""
    own = [f for module in (state, kernel) for _, f in inspect.getmembers(module, inspect.isfunction)]
    home = (state.__name__, kernel.__name__)
    rules = (adadual.overlap_pays, adadual.threshold, contention.pace)
    return [*rules, *(f for f in dict.fromkeys(own) if f.__module__ in home and f is not kernel.run)]


def _cache_folder() -> Path:
    """Return where machine code of exactly this source is kept."""
    digest = hashlib.sha256()
    for source in (adadual.__file__, contention.__file__, state.__file__, kernel.__file__, __file__):
        digest.update(Path(source).read_bytes())
    home = os.environ.get("XDG_CACHE_HOME", "") or os.path.expanduser("~/.cache")
    return Path(home) / "boa" / "kernels" / digest.hexdigest()[:16]
