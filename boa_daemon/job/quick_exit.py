"""A quick end of a process that was stopped: the GPUs that it holds are waited for.

Python takes a process of a large framework apart object by object, which takes seconds, and nobody needs it:
the last checkpoint is whole. What others registered for the end is done, Python's and C's, and files are
flushed; the taking apart is left out.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import io
import sys
import threading
from contextlib import suppress

_FLUSHED = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)


def exit_quickly() -> None:
    """Have this process end quickly once its script is over."""
    # Called when the script is over, so that ours is the last handler that is registered: the first to run.
    at_the_end = getattr(threading, "_register_atexit", None)
    if at_the_end is not None:
        at_the_end(atexit.register, _leave)


def _leave() -> None:
    """Do what is registered for the end, flush all files, and end."""
    atexit.unregister(_leave)
    atexit._run_exitfuncs()
    # A file that the script left open is flushed when Python takes it apart; text lies above bytes.
    files = [one for one in gc.get_objects() if type(one) in _FLUSHED]
    for file in sorted(files, key=lambda one: _FLUSHED.index(type(one))):
        with suppress(OSError, ValueError):
            file.flush()
    ctypes.PyDLL(None).exit(1 if getattr(sys, "last_value", None) is not None else 0)
