"""Keep what a solver prints by itself away from standard output.

HiGHS prints a line in rare cases, when it repairs an answer, whatever its options say. On standard output
that would spoil a JSON document, so it goes to standard error. The line comes from C, whose buffer outlives
the call; therefore both buffers are flushed on the way in and out.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_C = ctypes.CDLL(None)


@contextmanager
def on_stderr() -> Iterator[None]:
    """Send standard output of C code to standard error meanwhile; nothing where one of them is closed."""
    try:
        sys.stdout.flush()
        _C.fflush(None)
        kept = os.dup(1)
    except (OSError, ValueError):
        yield
        return
    try:
        with suppress(OSError):  # Standard error is closed: what is printed stays where it is.
            os.dup2(2, 1)
        yield
    finally:
        _C.fflush(None)
        os.dup2(kept, 1)
        os.close(kept)
