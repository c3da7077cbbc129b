"""Fixtures: a store in memory, on SQLite, or on a PostgreSQL server that the tests start."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from postgres_server import PostgresServer, empty_database, postgres_programs

from boa_daemon.inputs.sqlite_urls import sqlite_url
from boa_daemon.store.database import Database
from boa_daemon.store.database_setup import migrate, open_engine
from boa_daemon.store.memory import MemoryStore
from boa_daemon.store.sql import SqlStore
from boa_daemon.tick.facts.ports import Store


@pytest.fixture(scope="session")
def postgres() -> Iterator[str | None]:
    """Yield the URL of a server, or None where PostgreSQL is not installed."""
    if postgres_programs() is None:
        yield None
        return
    with PostgresServer() as server:
        yield server.url


KINDS = ["memory", "sqlite", *(["postgresql"] if postgres_programs() else [])]
"""PostgreSQL where a server is installed; `test_store_sql` compiles its SQL everywhere."""


@pytest.fixture(params=KINDS)
def new_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Store]]:
    """Yield a function that opens the store; each call opens the same store."""
    opened: list[Database] = []
    memory = MemoryStore()
    url = sqlite_url(tmp_path / "boa.sqlite")
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres")
        empty_database(url)

    def open_it() -> Store:
        if request.param == "memory":
            return memory
        engine = open_engine(url)
        migrate(engine)
        database = Database(engine)
        opened.append(database)
        return SqlStore(database)

    yield open_it
    for database in opened:
        database.close()
