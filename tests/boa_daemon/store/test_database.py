"""The writer of a database in a file notices when the file is not at its path any more."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import text

from boa_daemon.inputs.sqlite_urls import sqlite_url
from boa_daemon.store.database import Database
from boa_daemon.store.database_setup import open_engine
from boa_daemon.store.database_troubles import trouble_of

LOSSES: dict[str, Callable[[Path], object]] = {
    "the file was moved": lambda state: (state / "boa.sqlite").rename(state.parent / "aside"),
    "the file was deleted": lambda state: (state / "boa.sqlite").unlink(),
    "the folder was moved": lambda state: state.rename(state.parent / "old"),
    "the folder was deleted": shutil.rmtree,
    "the folder is a file": lambda state: (state.rename(state.parent / "old"), state.touch()),
    "a bare folder is in its place": lambda state: (state.rename(state.parent / "old"), state.mkdir()),
}


@pytest.fixture
def database(tmp_path: Path) -> Database:
    state = tmp_path / "state"
    state.mkdir()
    made = Database(open_engine(sqlite_url(state / "boa.sqlite")))
    with made.write() as connection:
        connection.execute(text("CREATE TABLE rows (value INTEGER)"))
    with made.write() as connection:
        connection.execute(text("INSERT INTO rows VALUES (1)"))
    return made


def values(database: Database) -> list[int]:
    with database.read() as connection:
        return list(connection.scalars(text("SELECT value FROM rows")))


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_nothing_is_written_to_a_file_that_is_not_at_its_path(
    database: Database, tmp_path: Path, loss: Callable[[Path], object]
) -> None:
    """No later daemon would find it; the trouble passes when the file is back, and no empty one is made."""
    loss(tmp_path / "state")
    with pytest.raises(FileNotFoundError) as gone, database.write() as connection:
        connection.execute(text("INSERT INTO rows VALUES (2)"))
    assert trouble_of(gone.value) == "place"
    # Readers at the same time open further connections.
    with database.read(), pytest.raises(FileNotFoundError), database.read():
        pass
    assert not (tmp_path / "state" / "boa.sqlite").exists()
    database.close()


def test_a_file_that_comes_back_is_written_again(database: Database, tmp_path: Path) -> None:
    """As after a disk was mounted again: the open connections are still good."""
    state = tmp_path / "state"
    state.rename(tmp_path / "aside")
    with pytest.raises(FileNotFoundError), database.write():
        pass
    (tmp_path / "aside").rename(state)
    with database.write() as connection:
        connection.execute(text("INSERT INTO rows VALUES (3)"))
    assert values(database) == [1, 3]
    database.close()


def test_another_file_in_its_place_is_the_one_in_use(database: Database, tmp_path: Path) -> None:
    """A copy that was renamed over it: `is_ours` is asked about the copy, not the file without a name."""
    state = tmp_path / "state"
    copy = Database(open_engine(sqlite_url(state / "copy.sqlite")))
    with copy.write() as connection:
        connection.execute(text("CREATE TABLE rows (value INTEGER)"))
        connection.execute(text("INSERT INTO rows VALUES (7)"))
    copy.close()
    asked: list[list[int]] = []
    database.is_ours = lambda connection: asked.append(
        list(connection.scalars(text("SELECT value FROM rows")))
    )
    for suffix in ("-wal", "-shm"):
        (state / f"boa.sqlite{suffix}").unlink()
    (state / "copy.sqlite").rename(state / "boa.sqlite")
    with database.write():
        pass
    assert asked == [[7]]
    database.close()
