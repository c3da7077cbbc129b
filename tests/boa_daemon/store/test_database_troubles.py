"""What an error of the database means: waiting cures it, or it does not."""

from __future__ import annotations

import errno
import socket
import sqlite3
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from boa_daemon.inputs.sqlite_urls import sqlite_url
from boa_daemon.store.database_setup import (
    StoreTooNew,
    StoreUnreachable,
    StoreUnusable,
    check_integrity,
    check_version,
    look_into,
    migrate,
    open_engine,
    unusable,
)
from boa_daemon.store.database_troubles import explain, trouble_of


def of_sqlite(code: int, words: str = "said") -> OperationalError:
    """Return SQLAlchemy's error around one of SQLite."""
    error = sqlite3.OperationalError(words)
    error.sqlite_errorcode = code
    return OperationalError("UPDATE", {}, error)


def of_server(state: str | None, words: str = "said") -> OperationalError:
    """Return SQLAlchemy's error around one of psycopg."""
    psycopg = pytest.importorskip("psycopg")
    error = psycopg.OperationalError(words) if state is None else psycopg.errors.lookup(state)(words)
    return OperationalError("UPDATE", {}, error)


PASSING = {
    "full": (of_sqlite(sqlite3.SQLITE_FULL), "full"),
    "no space in the wal": (of_sqlite(sqlite3.SQLITE_IOERR | 19 << 8), "disk"),
    "read-only": (of_sqlite(sqlite3.SQLITE_READONLY | 1 << 8), "read-only"),
    "read error": (of_sqlite(sqlite3.SQLITE_IOERR_READ), "disk"),
    "sync error": (of_sqlite(sqlite3.SQLITE_IOERR_FSYNC), "disk"),
    "locked": (of_sqlite(sqlite3.SQLITE_BUSY_SNAPSHOT), "busy"),
    "no memory": (of_sqlite(sqlite3.SQLITE_NOMEM), "memory"),
    "no descriptor": (of_sqlite(sqlite3.SQLITE_CANTOPEN), "place"),
    "old words": (OperationalError("I", {}, sqlite3.OperationalError("database or disk is full")), "full"),
    "ENOSPC": (OSError(errno.ENOSPC, "x"), "full"),
    "EDQUOT": (OSError(errno.EDQUOT, "x"), "full"),
    "EROFS": (OSError(errno.EROFS, "x"), "read-only"),
    "EIO": (OSError(errno.EIO, "x"), "disk"),
    "ESTALE": (OSError(errno.ESTALE, "x"), "disk"),
    "EFBIG": (OSError(errno.EFBIG, "x"), "file size"),
    "EMFILE": (OSError(errno.EMFILE, "x"), "descriptors"),
    "ENFILE": (OSError(errno.ENFILE, "x"), "descriptors"),
    "ENOMEM": (OSError(errno.ENOMEM, "x"), "memory"),
    "MemoryError": (MemoryError(), "memory"),
    "name not known": (socket.gaierror(-3, "Temporary failure in name resolution"), "server"),
    "refused": (ConnectionRefusedError(errno.ECONNREFUSED, "x"), "server"),
    "pool": (PoolTimeout("QueuePool limit"), "busy"),
}
PASSING_ON_A_SERVER = {
    "no connection": (None, "server"),
    "too many connections": ("53300", "server"),
    "its disk is full": ("53100", "full"),
    "out of memory": ("53200", "memory"),
    "starting": ("57P03", "server"),
    "shut down": ("57P01", "server"),
    "crashed": ("57P02", "server"),
    "io error": ("58030", "disk"),
    "lock": ("55P03", "busy"),
    "hot standby": ("25006", "read-only"),
    "deadlock": ("40P01", "busy"),
    "password": ("28P01", "login"),
    "no entry in pg_hba.conf": ("28000", "login"),
    "database renamed": ("3D000", "login"),
    "rights taken away": ("42501", "rights"),
    "schema not found": ("3F000", "tables"),
    "statement timeout": ("57014", "server"),
    "serialization": ("40001", "busy"),
}


@pytest.mark.parametrize(("error", "kind"), PASSING.values(), ids=PASSING)
def test_trouble_that_passes_is_known_and_named(error: Exception, kind: str) -> None:
    """The store's error says that waiting cures it, and never names `boa recover`."""
    assert trouble_of(error) == kind
    found = unusable(error, "it cannot be read")
    assert isinstance(found, StoreUnreachable)
    assert "recover" not in str(found)
    assert all(explain(error, trouble_of(error)))


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ('FATAL:  password authentication failed for user "boa"', "login"),
        ('no pg_hba.conf entry for host "::1", user "boa", database "boa", no encryption', "login"),
        ('FATAL:  database "boa" does not exist', "login"),
        ('root certificate file "/root/.postgresql/root.crt" does not exist', "certificate"),
        ("SSL error: certificate verify failed", "certificate"),
        ('server certificate for "db" does not match host name "10.0.0.1"', "certificate"),
        ("server does not support SSL, but SSL was required", "certificate"),
        ('invalid sslmode value: "yes"', "address"),
        ('FATAL:  unrecognized configuration parameter "nosuch"', "address"),
        ("FATAL:  sorry, too many clients already", "server"),
    ],
)
def test_a_refused_connection_is_known_by_its_words(words: str, kind: str) -> None:
    """A connection that is refused has no SQLSTATE."""
    error = of_server(None, words)
    assert trouble_of(error) == kind
    assert "recover" not in str(unusable(error, "it cannot be read"))


@pytest.mark.parametrize(("state", "kind"), PASSING_ON_A_SERVER.values(), ids=PASSING_ON_A_SERVER)
def test_trouble_of_a_server_that_passes_is_known(state: str | None, kind: str) -> None:
    """By the class of its SQLSTATE."""
    assert trouble_of(of_server(state)) == kind


@pytest.mark.parametrize(
    "error",
    [
        of_sqlite(sqlite3.SQLITE_CORRUPT, "database disk image is malformed"),
        of_sqlite(sqlite3.SQLITE_NOTADB, "file is not a database"),
        of_sqlite(sqlite3.SQLITE_ERROR, "no such table: jobs"),
        ProgrammingError("S", {}, Exception("relation does not exist")),
        ValueError("no"),
    ],
)
def test_damage_and_faults_of_the_program_do_not_pass(error: Exception) -> None:
    """Waiting does not cure them."""
    assert trouble_of(error) is None
    assert not isinstance(unusable(error, "it cannot be read"), StoreUnreachable)


def test_a_database_is_looked_into_without_a_change(tmp_path: Path) -> None:
    """Of another version or damaged: its file and its log stay byte for byte."""
    path = tmp_path / "boa.sqlite"
    engine = open_engine(sqlite_url(path))
    migrate(engine)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0999'")
        connection.exec_driver_sql("INSERT INTO meta VALUES ('next_job', '7')")
        before = {file.name: file.read_bytes() for file in tmp_path.glob("boa.sqlite*")}
    facts = look_into(path)
    assert (facts.revision, facts.next_job, facts.is_recovered) in {("0999", 7, False), ("0004", 1, False)}
    engine.dispose()
    before = {name: path.with_name(name).read_bytes() for name in ("boa.sqlite",)}
    assert look_into(path).next_job == 7
    with pytest.raises(StoreTooNew, match="install that boa"):
        check_version(look_into(path).revision)
    assert {name: path.with_name(name).read_bytes() for name in before} == before


@pytest.mark.parametrize("version", ["0001", "0003"])
def test_a_database_of_a_development_version_is_named(version: str) -> None:
    """It is neither too new nor brought up to date."""
    with pytest.raises(StoreUnusable, match="a development version wrote this database"):
        check_version(version)


def test_garbage_is_damage(tmp_path: Path) -> None:
    """A file that is no database is no passing trouble."""
    path = tmp_path / "boa.sqlite"
    path.write_bytes(b"no database" * 1000)
    with pytest.raises(StoreUnusable) as found:
        look_into(path)
    assert not isinstance(found.value, StoreUnreachable)
    engine = open_engine(sqlite_url(path))
    with pytest.raises(StoreUnusable):
        check_integrity(engine)
    engine.dispose()


def test_a_missing_folder_passes(tmp_path: Path) -> None:
    """Its disk may be mounted a moment later."""
    with pytest.raises(StoreUnreachable, match="mounted"):
        look_into(tmp_path / "away" / "boa.sqlite")
