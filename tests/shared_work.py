"""What each worker of pytest-xdist would do for itself, or each test anew, is done once.

The four workers import every test file, and pytest spends more on rewriting the `assert`s of one than Python
on reading it: six seconds of the processor for each worker. And each test with a daemon in a folder of its
own would have alembic make the same tables.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
from _pytest.assertion import rewrite
from alembic.command import upgrade as by_alembic
from alembic.config import Config
from sqlalchemy import inspect


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


def schema_made_once() -> Callable[[Config, str], None]:
    """Return alembic's `upgrade`, which makes the tables of an empty file as it made them the first time."""
    made: list[str] = []

    def upgrade(config: Config, revision: str) -> None:
        connection = config.attributes["connection"]
        is_empty = connection.dialect.name == "sqlite" and not inspect(connection).get_table_names()
        if not is_empty or revision != "head":
            by_alembic(config, revision)
        elif made:
            for statement in made:
                connection.exec_driver_sql(statement)
        else:
            by_alembic(config, revision)
            made.extend(_statements(connection.connection.driver_connection))

    return upgrade


def _statements(connection: sqlite3.Connection) -> Iterator[str]:
    """Yield what makes a database like this one."""
    for line in connection.iterdump():
        if not line.startswith(("BEGIN", "COMMIT")):
            yield line
