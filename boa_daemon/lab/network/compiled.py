"""The kernel compiled by numba, if numba is installed: same source, bit-identical results, much faster.

Functions are registered with numba instead of decorated, so `boa_daemon.lab.network.kernel` stays plain
Python and its import needs no numba. Machine code is cached in a folder that is named after the source's
digest, because numba alone would not notice a change in a helper's file. If the folder cannot be written,
each process compiles.
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

from boa_daemon.lab.network import admission, kernel, messages, state, watchers
from policies.links import ada_srsf, adadual, contention

KernelFunction = Callable[[state.LinkRules, state.State, float], None]


@functools.cache
def compiled_run() -> KernelFunction | None:
    """Return `kernel.run` as machine code, or None if numba is missing or would not help."""
    try:
        # Imported here, because it takes half a second and only large cases need it.
        numba: Any = importlib.import_module("numba")
        extending: Any = importlib.import_module("numba.extending")
    except ImportError:
        return None
    # No reference counting: nothing is allocated, and counting fifty sequences per call costs a factor of 40.
    options = {"_nrt": False}
    # Inline all calls: a call that is not inlined copies the descriptors of all sequences.
    for function in _helpers():
        extending.register_jitable(**options, forceinline=True)(function)
    folder = _cache_folder()
    before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, str(folder)
    try:
        run: KernelFunction = numba.njit(cache=_is_writable(folder), **options)(kernel.run)
    except KeyError:
        # This numba does not know the private option `_nrt`; without it, plain Python is faster.
        return None
    finally:
        numba.config.CACHE_DIR = before
    return run


def _is_writable(folder: Path) -> bool:
    """Create the cache folder; return whether it is writable (if not, numba would choose another)."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def _helpers() -> list[Callable[..., Any]]:
    """Return every function that `kernel.run` reaches."""
    own: list[Callable[..., Any]] = [adadual.overlap_pays, adadual.threshold, contention.pace]
    for module in (state, messages, watchers, admission, kernel):
        members = inspect.getmembers(module, inspect.isfunction)
        own.extend(function for _, function in members if function.__module__ == module.__name__)
    return [function for function in own if function is not kernel.run]


def _cache_folder() -> Path:
    """Return the cache folder for machine code of exactly this source."""
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for module in (adadual, ada_srsf, contention, state, messages, watchers, admission, kernel):
        digest.update(Path(inspect.getfile(module)).read_bytes())
    home = os.environ.get("XDG_CACHE_HOME", "") or os.path.expanduser("~/.cache")
    return Path(home) / "boa" / "kernels" / digest.hexdigest()[:16]
