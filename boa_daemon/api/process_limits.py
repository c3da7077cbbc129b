"""Limits that the system sets on this process: those too small for the daemon are said at once.

Without this a limit shows as a crash within a library, as ticks that fail for ever, or as nothing at all.
Standard library only, and asked before anything large is imported.
"""

from __future__ import annotations

import errno
import os
import resource
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from boa_daemon.errors import BoaError

MIB = 1 << 20
THREADS = 16
"""Threads that the daemon has at work when many ask it at once."""


class OutOfResources(BoaError):
    """The system gives this process too little: memory, threads, open files or another limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessLimit:
    """A limit of the system, in its unit: the least with which the daemon runs, and how people set it."""

    number: int
    what: str
    unit: str
    least: int
    keys: str


MEMORY = (
    ProcessLimit(
        number=resource.RLIMIT_AS,
        what="address space",
        unit="MiB",
        least=850 * MIB,
        keys="ulimit -v, LimitAS",
    ),
    ProcessLimit(
        number=resource.RLIMIT_DATA, what="data", unit="MiB", least=512 * MIB, keys="ulimit -d, LimitDATA"
    ),
)
LIMITS = (
    *MEMORY,
    ProcessLimit(
        number=resource.RLIMIT_STACK, what="stack", unit="KiB", least=256 << 10, keys="ulimit -s, LimitSTACK"
    ),
    ProcessLimit(
        number=resource.RLIMIT_NOFILE, what="number of open files", unit="", least=128,
        keys="ulimit -n, LimitNOFILE",
    ),
    ProcessLimit(
        number=resource.RLIMIT_FSIZE, what="size of files", unit="MiB", least=64 * MIB,
        keys="ulimit -f, LimitFSIZE",
    ),
    ProcessLimit(
        number=resource.RLIMIT_CPU, what="processor time", unit="s", least=600, keys="ulimit -t, LimitCPU"
    ),
)  # fmt: skip
"""The least of each is what a daemon without jobs was measured to need, rounded up."""
_PER_UNIT = {"MiB": MIB, "KiB": 1 << 10}


def check_limits() -> None:
    """Refuse to start under limits with which the daemon would fail later.

    Raises:
        OutOfResources: naming the limit, its value and the least that is needed.
    """
    for limit in LIMITS:
        soft, hard = resource.getrlimit(limit.number)
        # The number of open files is raised to what the system allows.
        given = hard if limit.number == resource.RLIMIT_NOFILE else soft
        if given != resource.RLIM_INFINITY and given < limit.least:
            raise OutOfResources(
                f"the {limit.what} of this process is limited to {_said(given, limit)}, and the daemon "
                f"needs at least {_said(limit.least, limit)}. Raise it ({limit.keys})"
            )


def check_threads() -> None:
    """Start as many threads as a busy daemon has, and end them.

    Raises:
        OutOfResources: when they cannot be started.
    """
    done = threading.Event()
    started: list[threading.Thread] = []
    try:
        for _ in range(THREADS):
            thread = threading.Thread(target=done.wait, daemon=True)
            thread.start()
            started.append(thread)
    except RuntimeError as error:
        raise OutOfResources(shortage_of(error) or str(error)) from None
    finally:
        done.set()
        for thread in started:
            thread.join()


def import_numpy_with_one_thread() -> None:
    """Import numpy so that its BLAS starts no threads; jobs do not inherit that.

    The daemon's matrices are small. Where no thread can be started, BLAS would end the process by a signal.
    """
    name = "OPENBLAS_NUM_THREADS"
    given = os.environ.get(name)
    os.environ.setdefault(name, "1")
    try:
        import numpy  # noqa: F401, PLC0415
    finally:
        if given is None:
            del os.environ[name]


def memory_limits() -> list[str]:
    """Return the limits on the memory of this process, in words."""
    return [
        f"the {each.what} is limited to {_said(soft, each)} ({each.keys})"
        for each in MEMORY
        if (soft := resource.getrlimit(each.number)[0]) != resource.RLIM_INFINITY
    ]


def shortage_of(error: BaseException) -> str:
    """Return what this process lacks, and what to try, if an error comes from that; else an empty text."""
    for one in _chain(error):
        said = str(one)
        if isinstance(one, MemoryError) or "failed to map segment" in said or _has(one, errno.ENOMEM):
            limits = memory_limits()
            return f"no memory is left: {'; '.join(limits) or 'the machine or its control group is full'}"
        if "can't start new thread" in said:
            if limits := memory_limits():
                # The kernel's answer does not say which of the two it is; a thread needs 8 MiB of addresses.
                return f"no thread can be started, for want of memory or of threads: {'; '.join(limits)}"
            soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
            count = "" if soft == resource.RLIM_INFINITY else f" to {soft}"
            return (
                "no thread can be started: the processes and threads of this user or service are "
                f"limited{count}. Raise the limit (ulimit -u, TasksMax, or --pids-limit of a container)"
            )
        if _has(one, errno.EMFILE):
            return "no file descriptors are left. Raise the limit of open files (ulimit -n, LimitNOFILE)"
    return ""


def _has(error: BaseException, number: int) -> bool:
    return isinstance(error, OSError) and error.errno == number


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and those that led to it."""
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        yield found
        found = found.__cause__ or found.__context__


def _said(value: int, limit: ProcessLimit) -> str:
    """Return a value in the limit's unit."""
    per = _PER_UNIT.get(limit.unit, 1)
    return (
        f"{value / per:,.4g} {limit.unit}".rstrip()
        if value % per
        else f"{value // per:,} {limit.unit}".rstrip()
    )
