"""The schema of a database, as the migrations make it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from shared_work import by_alembic, schema_made_once

from boa_daemon.store.engine import HEAD, migrate, open_engine, sqlite_url


def schema_of(path: Path) -> tuple[list[Any], list[Any]]:
    """Make the schema, and return what is in it."""
    engine = open_engine(sqlite_url(path))
    migrate(engine)
    engine.dispose()
    with closing(sqlite3.connect(path)) as file:
        tables = file.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name").fetchall()
        return tables, file.execute("SELECT version_num FROM alembic_version").fetchall()


def test_the_tables_that_tests_share_are_those_of_the_migrations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Table by table, index by index, with the revision; a file that has it is left as it is."""
    monkeypatch.setattr("alembic.command.upgrade", by_alembic)
    migrated = schema_of(tmp_path / "migrated.sqlite")
    monkeypatch.setattr("alembic.command.upgrade", schema_made_once())

    assert [schema_of(tmp_path / f"{n}.sqlite") for n in (1, 2)] == [migrated] * 2
    assert schema_of(tmp_path / "2.sqlite") == migrated
    assert migrated[1] == [(HEAD,)]
