"""For pytest-xdist: what each worker would do is done once, and long tests are spread over workers.

Each of the four workers imports every test file, and pytest needs more time to rewrite a file's `assert`s
than Python to read the file: six seconds of the processor for each worker. In a new clone each would also
compile the program, and Hypothesis would search its sources for constants in each.
"""

from __future__ import annotations

import compileall
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType

import pytest
from _pytest.assertion import rewrite


def rewrite_asserts_once(config: pytest.Config) -> None:
    """Write the rewritten test files to pytest's cache before the workers start.

    The function uses private functions of pytest; if a version has others, each worker rewrites the files
    itself.
    """
    if not config.getoption("numprocesses", None) or hasattr(config, "workerinput"):
        return
    files = [
        file
        for place in (Path(word.partition("::")[0]) for word in config.args)
        for file in ([place] if place.is_file() else [*place.rglob("test_*.py"), *place.rglob("conftest.py")])
    ]
    try:
        missing = [file.resolve() for file in files if rewrite._read_pyc(file, _kept(file)) is None]
        if missing:
            _configs.append(config)
            cores = len(os.sched_getaffinity(0))
            with ProcessPoolExecutor(cores, mp_context=get_context("fork")) as pool:
                list(pool.map(_rewrite, missing, chunksize=8))
    except Exception:
        # The cache only saves time, so every error is ignored.
        return


def read_program_once(config: pytest.Config) -> None:
    """Before the workers of a first run start, compile the program and note the constants in it.

    The constants are examples of Hypothesis. If a version of it has other functions for them, each worker
    searches the program itself.
    """
    if not config.getoption("numprocesses", None) or hasattr(config, "workerinput"):
        return
    try:
        from hypothesis.configuration import storage_directory

        if storage_directory("constants").path.exists():
            return
        files = [file for place in PROGRAM for file in (config.rootpath / place).rglob("*.py")]
        cores = len(os.sched_getaffinity(0))
        with ProcessPoolExecutor(cores, mp_context=get_context("fork")) as pool:
            list(pool.map(_read, files, chunksize=16))
    except Exception:
        # The caches only save time, so every error is ignored.
        return


PROGRAM = ("policies", "boa_daemon")


def _read(file: Path) -> None:
    """Compile a file of the program, and let Hypothesis write its constants to its own cache."""
    from hypothesis.internal.constants_ast import constants_from_module

    compileall.compile_file(file, quiet=2)
    module = ModuleType(file.stem)
    module.__file__ = str(file)
    constants_from_module(module)


_configs: list[pytest.Config] = []
"""The forks find it here: it cannot be sent to them."""


def _kept(file: Path) -> Path:
    """Return the path at which pytest looks for a rewritten file."""
    return rewrite.get_cache_dir(file.resolve()) / f"{file.stem}{rewrite.PYC_TAIL}"


def _rewrite(file: Path) -> None:
    """Rewrite a file and write it to pytest's cache."""
    (config,) = _configs
    found, code = rewrite._rewrite_test(file, config)
    kept = _kept(file)
    kept.parent.mkdir(exist_ok=True)
    rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, found, kept)


LONG = ("integration", "simulation")
"""The folders of tests that start processes, or simulate weeks."""


def is_long(test: pytest.Item) -> bool:
    """Return whether a test takes seconds or minutes: it is in a long folder, or exhaustive."""
    return test.path.parent.name in LONG or test.get_closest_marker("exhaustive") is not None


def dealt(tests: Sequence[pytest.Item], workers: int) -> list[pytest.Item]:
    """Return the tests in an order in which each worker begins with some of the long ones, file by file.

    pytest-xdist first gives each worker the same number of tests in a row; a worker that is done takes half
    of the longest queue. The long tests come first and in all queues, so that short tests are left for the
    end.
    """
    files: dict[Path, list[pytest.Item]] = {}
    for test in filter(is_long, tests):
        files.setdefault(test.path, []).append(test)
    short = (test for test in tests if not is_long(test))
    hands: list[list[pytest.Item]] = [[] for _ in range(workers)]
    for number, own in enumerate(files.values()):
        hands[number % workers] += own
    left = len(tests)
    for number, hand in enumerate(hands):
        share = left // (workers - number)
        hand.extend(islice(short, max(0, share - len(hand))))
        left -= share
    return [*(test for hand in hands for test in hand), *short]
