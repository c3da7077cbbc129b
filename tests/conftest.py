"""Hypothesis on shared machines: no deadlines; the same examples every time where CI says so.

Where the exhaustive tests are left out, a property is tried with fewer examples (sampling.py).
"""

from __future__ import annotations

import functools
import gc
import logging
import os
import signal
import sys
from collections.abc import Iterator

import botocore.loaders
import botocore.session
import pytest
from hypothesis import HealthCheck, settings
from sampling import EXAMPLES, SAMPLED
from shared_work import dealt, rewrite_asserts_once

# What one process has compiled the others find, also where containers say that nothing is to be kept: the
# suite starts some hundred, and each would compile all of BOA anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


def pytest_configure(config: pytest.Config) -> None:
    """Choose how many examples a property is tried with, where its test does not say; hear Ctrl-C."""
    settings.register_profile(
        "boa",
        deadline=None,
        derandomize="CI" in os.environ,
        suppress_health_check=[HealthCheck.too_slow],
        max_examples=SAMPLED if config.getoption("markexpr") == "not exhaustive" else EXAMPLES,
    )
    settings.load_profile("boa")
    # A shell has what it runs in the background ignore Ctrl-C, and so would every program that a test starts.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # All sessions of botocore share a loader: each would read EC2's description anew, for half a second, and
    # moto asks three for it as it is imported.
    botocore.session.create_loader = functools.cache(botocore.loaders.create_loader)
    rewrite_asserts_once(config)
    # Until all tests are read there is hardly any garbage, and each look for it reads more.
    gc.disable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Deal the long tests to the workers, where there are any."""
    if workers := int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "0")):
        items[:] = dealt(items, workers)


def pytest_collection_finish() -> None:
    """What stays until the end, some million objects, is looked through by no later collection of garbage."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def _mask_of_the_process() -> Iterator[None]:
    """A daemon that is root narrows what its process lets others do; no later test is to find it so."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture(autouse=True)
def _log_of_the_process() -> Iterator[None]:
    """A daemon takes over its process's log, on a stream that is closed when its test is over."""
    log = logging.getLogger("boa")
    before, level, goes_up = list(log.handlers), log.level, log.propagate
    yield
    log.handlers[:] = before
    log.setLevel(level)
    log.propagate = goes_up


@pytest.fixture(autouse=True, scope="session")
def _cache_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test finds what was kept before the suite began, or leaves anything behind."""
    cache = tmp_path_factory.mktemp("cache")
    if "PYTEST_XDIST_WORKER" in os.environ:
        # What one worker has compiled, which takes many seconds, the others find.
        shared = tmp_path_factory.getbasetemp().parent / "kernels"
        shared.mkdir(exist_ok=True)
        (cache / "boa").mkdir()
        (cache / "boa" / "kernels").symlink_to(shared)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(cache))
        yield
