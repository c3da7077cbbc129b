"""Connections to PostgreSQL whose session is of no use any more, on a real server."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from postgres_server import PostgresServer, postgres_programs
from sqlalchemy import Engine, text
from sqlalchemy.exc import SQLAlchemyError

from boa_daemon.inputs.sqlite_urls import sqlite_url
from boa_daemon.store import database as module
from boa_daemon.store.database import Database
from boa_daemon.store.database_setup import open_engine
from boa_daemon.store.database_troubles import trouble_of

HAS_SERVER = postgres_programs() is not None


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as found:
        if HAS_SERVER:
            admin = open_engine(found.url)
            with admin.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                for line in ("CREATE ROLE site LOGIN", "CREATE DATABASE site OWNER site"):
                    connection.execute(text(line))
            admin.dispose()
        yield found


@pytest.fixture
def engine(server: PostgresServer) -> Iterator[Engine | None]:
    """An engine of a role that has no special rights."""
    if not HAS_SERVER:
        yield None
        return
    found = open_engine(server.url.replace("boa@/postgres", "site@/site"))
    with found.begin() as connection:
        connection.execute(text("CREATE TABLE IF NOT EXISTS jobs (id text)"))
    yield found
    found.dispose()


def order(server: PostgresServer, *lines: str) -> None:
    """Give orders as the administrator of the server."""
    admin = open_engine(server.url)
    with admin.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for line in lines:
            connection.execute(text(line))
    admin.dispose()


KICK = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'site'"
CHANGES = {
    "read-only, as before a failover": ("SET default_transaction_read_only = on", "read-only"),
    "another schema": ("SET search_path = 'nowhere'", None),
}


@pytest.mark.parametrize(("change", "kind"), CHANGES.values(), ids=CHANGES)
def test_a_session_that_began_in_a_bad_time_does_not_outlive_it(
    server: PostgresServer, engine: Engine | None, change: str, kind: str | None
) -> None:
    """The role is as before again, and nobody ended its sessions: the next connection is a new one."""
    if engine is None:
        return
    # The work of a statement that is always slower than a millisecond.
    work = text("INSERT INTO jobs SELECT max(n::text) FROM generate_series(1, 30000) AS n")
    order(server, f"ALTER ROLE site {change}", KICK)
    with pytest.raises(SQLAlchemyError) as refused, engine.begin() as connection:
        connection.execute(work)
    assert trouble_of(refused.value) == kind
    order(server, "ALTER ROLE site RESET ALL")
    with engine.begin() as connection:
        connection.execute(work)


def test_text_is_text_whatever_encoding_the_role_asks_for(
    server: PostgresServer, engine: Engine | None
) -> None:
    """A daemon took its own host's name for another's and left."""
    if engine is None:
        return
    order(server, "ALTER ROLE site SET client_encoding = 'SQL_ASCII'", KICK)
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT 'Zürich'::text")) == "Zürich"
    order(server, "ALTER ROLE site RESET ALL")


def test_a_statement_without_an_answer_is_given_up(
    server: PostgresServer, engine: Engine | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A suspended server keeps its sockets open: the tick, as all its clients, would wait for ever."""
    if engine is None:
        return
    database = Database(engine)
    with database.read() as connection:
        backend = int(connection.scalar(text("SELECT pg_backend_pid()")))
    assert database.hang_up() == 0
    errors: list[BaseException] = []

    def ask() -> None:
        try:
            with database.read() as connection:
                connection.execute(text("SELECT 1"))
        except SQLAlchemyError as error:
            errors.append(error)

    os.kill(backend, signal.SIGSTOP)
    try:
        asking = threading.Thread(target=ask)
        asking.start()
        time.sleep(0.3)
        assert database.hang_up() == 0
        monkeypatch.setattr(module, "HUNG_SECONDS", 0.1)
        assert database.hang_up() == 1
        asking.join(10.0)
        # The look at the pooled connection got no answer, so that a new one was opened: that is no error.
        assert not asking.is_alive()
        assert not errors
    finally:
        os.kill(backend, signal.SIGCONT)


def test_a_database_in_a_file_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no sockets."""
    database = Database(open_engine(sqlite_url(tmp_path / "boa.sqlite")))
    monkeypatch.setattr(module, "HUNG_SECONDS", -1.0)
    with database.read():
        assert database.hang_up() == 0
    database.close()
