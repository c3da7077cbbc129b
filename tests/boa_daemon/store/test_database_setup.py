"""The schema of a database: created from the tables, or upgraded by migrations."""

from __future__ import annotations

from pathlib import Path

import pytest
from alembic import command
from sqlalchemy import text

from boa_daemon.store import database_setup
from boa_daemon.store.database_setup import HEAD, StoreUnusable, migrate, open_engine, sqlite_url


def test_a_new_database_has_the_newest_revision_and_an_older_one_is_upgraded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alembic runs only for an older revision, and data are kept."""
    asked: list[str] = []
    monkeypatch.setattr(command, "upgrade", lambda config, target: asked.append(target))
    engine = open_engine(sqlite_url(tmp_path / "boa.sqlite"))
    migrate(engine)
    with engine.begin() as connection:
        assert connection.scalar(text("SELECT version_num FROM alembic_version")) == HEAD
        connection.execute(text("INSERT INTO meta (key, value) VALUES ('tick', '7')"))
    migrate(engine)
    assert asked == []
    monkeypatch.setattr(database_setup, "KNOWN", ("0000", HEAD))
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '0000'"))
    migrate(engine)
    assert asked == ["head"]
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT value FROM meta WHERE key = 'tick'")) == "7"
    engine.dispose()


def test_tables_without_a_revision_are_refused_and_left_unchanged(tmp_path: Path) -> None:
    """No table is created beside them."""
    engine = open_engine(sqlite_url(tmp_path / "boa.sqlite"))
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE jobs (id TEXT)"))
    with pytest.raises(StoreUnusable, match="does not say of which version"):
        migrate(engine)
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM sqlite_master WHERE type = 'table'")) == 1
    engine.dispose()
