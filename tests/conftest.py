"""Settings for all tests: hypothesis has no deadlines, and CI always tries the same examples.

Without the exhaustive tests a property is tried with fewer examples (sampling.py), except in CI.
"""

from __future__ import annotations

import faulthandler
import functools
import gc
import logging
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import botocore.loaders
import botocore.session
import pytest
from hypothesis import HealthCheck, settings
from sampling import EXAMPLES, SAMPLED, leave_rows_to_the_exhaustive_set
from shared_work import dealt, read_program_once, rewrite_asserts_once

HANGS_SECONDS, AGAIN_SECONDS = 1500.0, 60.0
"""Time after which a test counts as hung, and how often that time begins anew."""
SETS = ("frameworks", "lab")
"""Markers of tests that need more than the extra `test`."""

# Python keeps compiled files even if a container disables that: the suite starts about a hundred
# processes, and each would compile all of BOA anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


def pytest_configure(config: pytest.Config) -> None:
    """Set the number of examples of a property, restore Ctrl-C, and share caches between workers."""
    is_quick = "not exhaustive" in config.getoption("markexpr") and "CI" not in os.environ
    settings.register_profile(
        "boa",
        deadline=None,
        derandomize="CI" in os.environ,
        suppress_health_check=[HealthCheck.too_slow],
        max_examples=SAMPLED if is_quick else EXAMPLES,
    )
    settings.load_profile("boa")
    # A background job of a shell ignores Ctrl-C, and so would every program that a test starts.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # All botocore sessions share one loader: each would read EC2's description for half a second, and
    # the import of moto makes three sessions.
    botocore.session.create_loader = functools.cache(botocore.loaders.create_loader)
    # Daemons of tests note their state folders here, and not among the files of whoever runs the tests.
    os.environ["XDG_STATE_HOME"] = os.path.join(tempfile.gettempdir(), f"boa-tests-{os.getuid()}")
    rewrite_asserts_once(config)
    read_program_once(config)
    Watchdog.screen = os.dup(2)
    # Collecting tests makes hardly any garbage, and each garbage collection takes longer than the last.
    gc.disable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import files of a set of tests that is left out: they import what the set needs."""
    if not collection_path.name.startswith("test_"):
        return None
    marks = config.getoption("markexpr")
    refused = {name for name in SETS if f"not {name}" in marks}
    wanted = {name for name in SETS if name in marks} - refused
    # `-m lab` runs where only what the laboratory needs is installed.
    left_out = {*SETS} - wanted if wanted else refused
    text = collection_path.read_text(encoding="utf-8") if left_out else ""
    of_file = re.findall(r"^pytestmark = (.*)$", text, re.M)
    return any(f"pytest.mark.{name}" in line for name in left_out for line in of_file) or None


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Before `-m` chooses, shorten tables; then give each worker of pytest-xdist some of the long tests."""
    leave_rows_to_the_exhaustive_set(items)
    yield
    if workers := int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "0")):
        items[:] = dealt(items, workers)


def pytest_collection_finish() -> None:
    """Exclude the collected tests, about a million objects, from later garbage collections."""
    if "moto" in sys.modules:
        from boa_daemon.testing.moto_speed import speed_up

        speed_up()
    gc.freeze()
    gc.enable()


class Watchdog:
    """A test that hangs, even in C with the interpreter's lock in hand, ends with all stacks on the screen.

    pytest's own `faulthandler_timeout` starts a thread for each test and waits for it to end.
    """

    screen = 2
    begun_at = float("-inf")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol() -> None:
    """Give each test at least `HANGS_SECONDS`."""
    if time.monotonic() - Watchdog.begun_at > AGAIN_SECONDS:
        Watchdog.begun_at = time.monotonic()
        faulthandler.dump_traceback_later(HANGS_SECONDS + AGAIN_SECONDS, exit=True, file=Watchdog.screen)


def pytest_unconfigure() -> None:
    """Stop the watchdog."""
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(autouse=True)
def _mask_of_the_process() -> Iterator[None]:
    """Restore the umask, which a daemon that runs as root changes."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture(autouse=True)
def _log_of_the_process() -> Iterator[None]:
    """Restore the logger, whose handlers a daemon replaces by a stream that closes with its test."""
    log = logging.getLogger("boa")
    before, level, goes_up = list(log.handlers), log.level, log.propagate
    yield
    log.handlers[:] = before
    log.setLevel(level)
    log.propagate = goes_up


@pytest.fixture(autouse=True, scope="session")
def _cache_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give the tests an empty cache folder of their own."""
    cache = tmp_path_factory.mktemp("cache")
    if "PYTEST_XDIST_WORKER" in os.environ:
        # Workers share compiled kernels, because compiling takes many seconds.
        shared = tmp_path_factory.getbasetemp().parent / "kernels"
        shared.mkdir(exist_ok=True)
        (cache / "boa").mkdir()
        (cache / "boa" / "kernels").symlink_to(shared)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(cache))
        yield
