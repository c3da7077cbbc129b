"""A quick exit for a process that was stopped, because other jobs wait for its GPUs.

At exit, Python destroys the objects of a large framework one by one, which takes seconds and is useless: the
last checkpoint is complete. This module skips that step. It still runs the exit handlers of Python and C, and
flushes open files. If a library crashes in its own exit handler, which some do while a thread of theirs still
runs, the exit code stays what it was: a launcher would end the other ranks for it, and one may still save.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import io
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

C_EXIT_SECONDS = 30.0
"""Time limit for the exit handlers of C; what they had to do by then is lost."""
_FLUSHED = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)


def exit_quickly(at_last: Callable[[], object] = lambda: None) -> None:
    """Make this process exit quickly once its script is over; `at_last` is called when all else is done."""
    # The handler is registered only when the script is over: the last one registered runs first.
    at_the_end = getattr(threading, "_register_atexit", None)
    if at_the_end is not None:
        at_the_end(atexit.register, _leave, at_last)


def _leave(at_last: Callable[[], object]) -> None:
    """Run the exit handlers, flush all files, and exit."""
    atexit.unregister(_leave)
    atexit._run_exitfuncs()
    # Normally, destroying a file object flushes it. Text files go first: they write into byte buffers.
    files = [one for one in gc.get_objects() if type(one) in _FLUSHED]
    for file in sorted(files, key=lambda one: _FLUSHED.index(type(one))):
        with suppress(OSError, ValueError):
            file.flush()
    at_last()
    _exit_whatever_happens(1 if getattr(sys, "last_value", None) is not None else 0)


def _exit_whatever_happens(code: int) -> None:
    """Run the exit handlers of C and exit with this code, also if one of them crashes or hangs."""
    libc = ctypes.CDLL(None)  # Without Python's lock, so that the handler below can run in any thread.
    end = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda _number: os._exit(code))
    libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
    for number in (
        signal.SIGABRT,
        signal.SIGSEGV,
        signal.SIGBUS,
        signal.SIGFPE,
        signal.SIGILL,
        signal.SIGALRM,
    ):
        libc.signal(number, ctypes.cast(end, ctypes.c_void_p))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    signal.setitimer(signal.ITIMER_REAL, C_EXIT_SECONDS)
    libc.exit(code)
