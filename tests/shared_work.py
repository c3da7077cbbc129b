"""What each worker of pytest-xdist would do for itself is done once; the long tests are dealt to all.

The four workers import every test file, and pytest spends more on rewriting the `assert`s of one than Python
on reading it: six seconds of the processor for each worker.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

import pytest
from _pytest.assertion import rewrite


def rewrite_asserts_once(config: pytest.Config) -> None:
    """Keep the rewritten test files where the workers look for them, before there are any.

    The functions are pytest's own affair: where a version has others, each worker does all of it.
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
        # Whatever it is, no test depends on it.
        return


_configs: list[pytest.Config] = []
"""The forks find it here: it cannot be sent to them."""


def _kept(file: Path) -> Path:
    """Return where pytest looks for a rewritten file."""
    return rewrite.get_cache_dir(file.resolve()) / f"{file.stem}{rewrite.PYC_TAIL}"


def _rewrite(file: Path) -> None:
    """Rewrite a file and keep it."""
    (config,) = _configs
    found, code = rewrite._rewrite_test(file, config)
    kept = _kept(file)
    kept.parent.mkdir(exist_ok=True)
    rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, found, kept)


LONG = ("integration", "simulation")
"""The folders of tests that start processes, or simulate weeks."""


def is_long(test: pytest.Item) -> bool:
    """Whether a test is of those that take seconds or minutes: of a long folder, or exhaustive."""
    return test.path.parent.name in LONG or test.get_closest_marker("exhaustive") is not None


def dealt(tests: Sequence[pytest.Item], workers: int) -> list[pytest.Item]:
    """Return tests in the order in which each worker begins with some of the long ones, file by file.

    pytest-xdist gives each worker as many tests in a row, and whoever is done takes half of the longest list:
    so that the short ones are left for the end, the long ones come first, and not all in one list.
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
