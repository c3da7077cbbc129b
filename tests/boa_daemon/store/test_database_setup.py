"""The schema of a database: created from the tables, or upgraded by migrations."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from alembic import command
from sqlalchemy import text

from boa_daemon.errors import InputError
from boa_daemon.inputs.sqlite_urls import sqlite_url
from boa_daemon.store import database_setup
from boa_daemon.store.database_setup import (
    HEAD,
    KEPT_BACKUPS,
    StoreUnreachable,
    StoreUnusable,
    backup,
    backups_in,
    look_into,
    look_into_server,
    migrate,
    newest_backup_age,
    open_engine,
)


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


@pytest.mark.parametrize("count", [0, 1, 5, 12])
def test_tables_that_could_not_all_be_made_leave_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """A disk that is full meanwhile: the next try makes them all, and nobody is told to recover anything."""
    engine = open_engine(sqlite_url(tmp_path / "boa.sqlite"))
    with monkeypatch.context() as patch:
        statements = (*database_setup._tables("sqlite")[:count], "no room for this one")
        patch.setattr(database_setup, "_tables", lambda _: statements)
        with pytest.raises(StoreUnusable):
            migrate(engine)
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM sqlite_master")) == 0
    migrate(engine)
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT version_num FROM alembic_version")) == HEAD
    engine.dispose()


@pytest.mark.parametrize(
    "url",
    [
        "boa:geheim@db/boa",
        "postgresql://boa:geheim@db:port/boa",
        "host=db user=boa password=geheim",
        "mysql://boa:geheim@db/boa",
    ],
)
def test_an_address_that_is_none_is_refused_without_its_password(url: str) -> None:
    """In one sentence; what cannot be read as an address may still hold a password."""
    with pytest.raises(InputError) as refused:
        open_engine(url)
    assert "geheim" not in str(refused.value)


@pytest.mark.parametrize(
    "words", ["sslmod=require", "connect_timeout=abc", "sslmode=yes", "sslmode=verify-full"]
)
def test_an_option_of_the_server_that_is_wrong_asks_nobody_to_recover(words: str) -> None:
    """What is wrong stands in the settings, or is a certificate: the database itself is sound."""
    with pytest.raises(StoreUnreachable) as refused:
        look_into_server(f"postgres://boa:geheim@127.0.0.1:1/boa?{words}")
    assert "geheim" not in str(refused.value)


HOUR = 3600.0


@pytest.mark.parametrize(
    ("ages", "age"),
    [
        ([], None),
        ([HOUR], HOUR),
        ([HOUR, 9 * HOUR], HOUR),
        # A server of files may be some seconds ahead.
        ([-5.0], 0.0),
        # The clock was a year ahead for an hour, and is right again.
        ([-9000 * HOUR, -9001 * HOUR], None),
        ([-9000 * HOUR, 5 * HOUR], 5 * HOUR),
    ],
)
def test_a_backup_with_a_time_to_come_holds_back_no_other(
    tmp_path: Path, ages: list[float], age: float | None
) -> None:
    """Else there would be no backup until that time."""
    for number, each in enumerate(ages):
        file = tmp_path / f"{number}.sqlite"
        file.touch()
        os.utime(file, (time.time() - each,) * 2)
    found = newest_backup_age(tmp_path)
    assert found == (None if age is None else pytest.approx(age, abs=5.0))


@pytest.mark.parametrize("ahead_hours", [0.0, 1.0, 9000.0])
def test_the_newest_backup_is_kept_and_first_whatever_the_clock_was(
    tmp_path: Path, ahead_hours: float
) -> None:
    """Backups of the time to come must not push out the one that was just made."""
    folder = tmp_path / "backups"
    folder.mkdir()
    for number in range(KEPT_BACKUPS):
        file = folder / f"2099010{1 if ahead_hours else 0}T{number:06d}.sqlite"
        file.touch()
        then = time.time() + ahead_hours * HOUR + number - 100.0
        os.utime(file, (then, then))
    engine = open_engine(sqlite_url(tmp_path / "boa.sqlite"))
    migrate(engine)
    made = backup(engine, folder, "20261128T120000")
    engine.dispose()
    assert made is not None
    found = backups_in(folder)
    assert (found[0], len(found)) == (made, KEPT_BACKUPS)


@pytest.mark.parametrize(
    "name",
    ["a b", "q?x=1", "what?", "h#a", "p%20c", "100%", "%3F", "é ü", "quo'te", 'dou"ble', "a;b&c=d", "日本",
     "co:lon", "back\\slash", "@host", "[br]", "a//b", "new\nline", "~", "$HOME"],
)  # fmt: skip
def test_a_database_is_where_its_path_says(tmp_path: Path, name: str) -> None:
    """Signs of a URL in a folder's name led to a file elsewhere, or to none."""
    folder = tmp_path / name
    folder.mkdir(parents=True)
    before = set(tmp_path.rglob("*"))
    file = folder / "boa.sqlite"
    for _ in range(2):
        engine = open_engine(sqlite_url(file))
        migrate(engine)
        with engine.begin() as connection:
            connection.execute(text("INSERT INTO meta (key, value) VALUES ('a', '7') ON CONFLICT DO NOTHING"))
        engine.dispose()
    assert file.stat().st_size > 0
    assert look_into(file).revision == HEAD
    assert {path.parent for path in set(tmp_path.rglob("*")) - before} == {folder}
