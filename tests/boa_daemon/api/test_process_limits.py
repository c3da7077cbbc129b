"""Limits of the system: each that is too small for the daemon ends it with one sentence, or it runs."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from boa_daemon.api import process_limits
from boa_daemon.api.process_limits import OutOfResources, check_threads, shortage_of

KIB, MIB = 1 << 10, 1 << 20
TOO_SMALL = {
    "ulimit -v 700000": (resource.RLIMIT_AS, 700_000 * KIB, "address space", "ulimit -v"),
    "ulimit -v 400000": (resource.RLIMIT_AS, 400_000 * KIB, "address space", "ulimit -v"),
    "ulimit -v 200000": (resource.RLIMIT_AS, 200_000 * KIB, "address space", "ulimit -v"),
    "ulimit -d 100000": (resource.RLIMIT_DATA, 100_000 * KIB, "data", "ulimit -d"),
    "ulimit -d 350000": (resource.RLIMIT_DATA, 350_000 * KIB, "data", "ulimit -d"),
    "ulimit -n 20": (resource.RLIMIT_NOFILE, 20, "open files", "ulimit -n"),
    "ulimit -n 64": (resource.RLIMIT_NOFILE, 64, "open files", "ulimit -n"),
    "ulimit -f 0": (resource.RLIMIT_FSIZE, 0, "size of files", "ulimit -f"),
    "ulimit -f 100": (resource.RLIMIT_FSIZE, 100 * KIB, "size of files", "ulimit -f"),
    "ulimit -s 128": (resource.RLIMIT_STACK, 128 * KIB, "stack", "ulimit -s"),
    "ulimit -t 5": (resource.RLIMIT_CPU, 5, "processor time", "ulimit -t"),
}


@pytest.mark.parametrize("how", TOO_SMALL)
def test_the_daemon_ends_with_one_sentence_under_a_limit_that_is_too_small(how: str, tmp_path: Path) -> None:
    """Exit code 1, and the sentence names the limit, its value and how to raise it."""
    number, value, *said = TOO_SMALL[how]
    done = subprocess.run(
        [sys.executable, "-m", "boa_daemon", "daemon", "--state-dir", str(tmp_path / "state")],
        preexec_fn=lambda: resource.setrlimit(number, (value, value)),
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60.0,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("OutOfResources: the ")
    assert all(word in done.stderr for word in said), done.stderr
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("how", TOO_SMALL)
def test_other_verbs_do_not_need_what_the_daemon_needs(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits are the daemon's alone: help of the daemon is printed under each."""
    from boa_daemon import __main__ as start

    number, value, *_ = TOO_SMALL[how]
    monkeypatch.setattr(resource, "getrlimit", lambda asked: (value, value) if asked == number else (-1, -1))
    monkeypatch.setattr(sys, "argv", ["boa", "daemon", "--help"])
    monkeypatch.setattr("boa_daemon.cli.main", lambda: None)
    start.main()
    with pytest.raises(OutOfResources):
        process_limits.check_limits()


SHORTAGES: dict[str, tuple[BaseException, str]] = {
    "memory": (MemoryError(), "no memory is left"),
    "a library": (
        ImportError("/usr/lib/x.so: failed to map segment from shared object"),
        "no memory is left",
    ),
    "a fork": (OSError(errno.ENOMEM, "Cannot allocate memory"), "no memory is left"),
    "threads": (RuntimeError("can't start new thread"), "no thread can be started"),
    "open files": (OSError(errno.EMFILE, "Too many open files"), "no file descriptors are left"),
}


@pytest.mark.parametrize("which", SHORTAGES)
def test_what_is_short_is_said(which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where another error hides it, as one of a clean-up; the exit code is 1, without a traceback."""
    from boa_daemon import __main__ as start

    error, said = SHORTAGES[which]
    assert said in shortage_of(error)

    def fails() -> None:
        try:
            raise error
        finally:
            raise RuntimeError("not running")

    monkeypatch.setattr(sys, "argv", ["boa", "status"])
    monkeypatch.setattr("boa_daemon.cli.main", fails)
    with pytest.raises(SystemExit) as ended:
        start.main()
    assert str(ended.value).startswith(f"OutOfResources: {said}")


def test_an_error_of_the_program_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no shortage."""
    from boa_daemon import __main__ as start

    def fails() -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr(sys, "argv", ["boa", "status"])
    monkeypatch.setattr("boa_daemon.cli.main", fails)
    with pytest.raises(RuntimeError, match="a fault"):
        start.main()


def test_threads_are_tried_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit on processes counts all of a user's, so only a try says whether there is room."""
    check_threads()
    calls = iter(range(99))

    def start(_thread: object) -> None:
        if next(calls) == 3:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Thread.start", start)
    monkeypatch.setattr("threading.Thread.join", lambda *_: None)
    with pytest.raises(OutOfResources, match=r"no thread can be started.*ulimit -u"):
        check_threads()


def test_a_thread_without_memory_for_its_stack_is_no_lack_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where memory is limited, the sentence names that limit and not 96,365 processes."""
    limits = {resource.RLIMIT_AS: (900 * MIB, resource.RLIM_INFINITY)}
    free = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda number: limits.get(number, free))
    said = shortage_of(RuntimeError("can't start new thread"))
    assert "for want of memory" in said
    assert "the address space is limited to 900 MiB (ulimit -v, LimitAS)" in said


def test_jobs_do_not_inherit_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is set for the import alone, and what a user sets stays."""
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    process_limits.import_numpy_with_one_thread()
    assert "OPENBLAS_NUM_THREADS" not in os.environ
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "3")
    process_limits.import_numpy_with_one_thread()
    assert os.environ["OPENBLAS_NUM_THREADS"] == "3"
