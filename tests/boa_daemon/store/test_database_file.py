"""Files beside the database that are not its own are not read, and a log that lost its name is saved."""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from boa_daemon.daemon.loop.assembly import open_storage, try_database
from boa_daemon.daemon.loop.recovery import recover
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.inputs.sqlite_urls import sqlite_url
from boa_daemon.store.database_file import check_beside
from boa_daemon.store.database_setup import StoreUnreachable
from boa_daemon.store.database_troubles import trouble_of
from boa_daemon.store.storage import Storage


def other_database(path: Path, *, mode: str, page_bytes: int = 4096, rows: int = 400) -> sqlite3.Connection:
    """Return another program's database."""
    other = sqlite3.connect(path)
    other.execute(f"PRAGMA page_size={page_bytes}")
    other.execute(f"PRAGMA journal_mode={mode}")
    other.execute("CREATE TABLE things (number, name)")
    other.executemany("INSERT INTO things VALUES (?, ?)", [(row, "x" * 200) for row in range(rows)])
    other.commit()
    return other


def journal_of_another(database: Path, page_bytes: int = 4096) -> None:
    """Copy the journal of a change that another program has begun."""
    path = database.with_name("other")
    with closing(other_database(path, mode="DELETE", page_bytes=page_bytes)) as other:
        other.execute("PRAGMA cache_size=2")
        other.execute("UPDATE things SET name = name || 'y'")
        shutil.copy(f"{path}-journal", f"{database}-journal")
        other.rollback()


def log_of_another(database: Path, page_bytes: int = 4096, rows: int = 400) -> None:
    """Copy the log of another program's database."""
    path = database.with_name("other")
    with closing(other_database(path, mode="WAL", page_bytes=page_bytes, rows=rows)):
        shutil.copy(f"{path}-wal", f"{database}-wal")


def log_of_another_daemon(database: Path) -> None:
    """Copy the log of another daemon's database, whose pages look like those of this one."""
    path = database.with_name("theirs")
    theirs = opened(path)
    assert theirs.store.name
    theirs.store.never_below(99)
    shutil.copy(f"{path}-wal", f"{database}-wal")
    theirs.close()


def older_log(database: Path) -> None:
    """Put back a log of an earlier state of the same database."""
    ours = opened(database)
    ours.store.never_below(15)
    shutil.copy(f"{database}-wal", database.with_name("aside"))
    ours.store.never_below(20)
    ours.close()
    database.with_name("aside").rename(f"{database}-wal")


BESIDE: dict[str, Callable[[Path], object]] = {
    "the journal of another database": journal_of_another,
    "a journal with other pages": lambda path: journal_of_another(path, 1024),
    "a text with the name of a journal": lambda path: Path(f"{path}-journal").write_text("notes\n"),
    "bytes with the name of a journal": lambda path: Path(f"{path}-journal").write_bytes(os.urandom(9000)),
    "a folder with the name of a journal": lambda path: Path(f"{path}-journal").mkdir(),
    "a link to nowhere as a journal": lambda path: Path(f"{path}-journal").symlink_to("/nowhere/there"),
    "the log of another database": log_of_another,
    "a log with other pages": lambda path: log_of_another(path, 1024),
    "a log of one row": lambda path: log_of_another(path, rows=1),
    "the log of another daemon": log_of_another_daemon,
    "an older log of the same database": older_log,
    "a pipe with the name of the log": lambda path: os.mkfifo(f"{path}-wal"),
    "a link to nowhere as a log": lambda path: Path(f"{path}-wal").symlink_to("/nowhere/there"),
    "a folder with the name of the log's index": lambda path: Path(f"{path}-shm").mkdir(),
}


def opened(path: Path) -> Storage:
    return open_storage(sqlite_url(path))


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A database with something in it, closed in an orderly way."""
    made = opened(tmp_path / "boa.sqlite")
    assert made.store.name
    made.store.set_flag("is_ours", True)
    made.store.never_below(10)
    made.close()
    return tmp_path / "boa.sqlite"


@pytest.mark.first_set(4)
@pytest.mark.parametrize("put", BESIDE.values(), ids=BESIDE)
def test_a_strange_file_beside_the_database_is_named_and_nothing_is_lost(
    database: Path, put: Callable[[Path], object]
) -> None:
    """The daemon goes on by itself when the file was moved away, and `boa recover` replaces nothing."""
    put(database)
    before = database.read_bytes()
    settings = Settings.model_validate({"daemon": {"state_dir": str(database.parent)}})
    for _ in range(2):
        found, fault, again = try_database(settings)
        assert found is None
        assert again == 1.0
        assert "Move it away" in fault
        assert "goes on by itself" in fault
        assert "recover" not in fault
        named = [
            Path(f"{database}{end}") for end in ("-journal", "-wal", "-shm") if f"{database}{end}" in fault
        ]
        assert len(named) == 1
    with pytest.raises(StoreUnreachable, match="Move it away"):
        recover(settings)
    assert database.read_bytes() == before
    assert os.path.lexists(named[0])
    named[0].rename(database.with_name("moved away"))
    found, fault, _ = try_database(settings)
    assert fault == ""
    assert found is not None
    assert found.store.flag("is_ours")
    found.close()


@pytest.mark.parametrize("content", [b"", bytes(600)], ids=["empty", "zeros"])
def test_a_journal_that_was_ended_is_left_there(database: Path, content: bytes) -> None:
    """Programs in other modes of SQLite leave such files, and SQLite does not read them."""
    Path(f"{database}-journal").write_bytes(content)
    found = opened(database)
    assert found.store.flag("is_ours")
    found.close()
    assert Path(f"{database}-journal").read_bytes() == content


def test_a_change_that_another_program_did_not_end_is_for_people(database: Path) -> None:
    """Whoever turned the log off may have been killed within a change to this very database."""
    with closing(sqlite3.connect(database)) as other:
        other.execute("PRAGMA journal_mode=DELETE")
    Path(f"{database}-journal").write_bytes(os.urandom(600))
    with pytest.raises(OSError, match="quick_check") as refusal:
        check_beside(database)
    assert trouble_of(refusal.value) == "beside"


def test_a_database_of_which_the_first_page_was_begun_is_made(tmp_path: Path) -> None:
    """A daemon that is killed at its very first start leaves a journal of its own."""
    path = tmp_path / "boa.sqlite"
    with closing(sqlite3.connect(path)) as begun:
        begun.execute("PRAGMA journal_mode=WAL")
    Path(f"{path}-journal").write_bytes(os.urandom(600))
    check_beside(path)


WRITES_ON = """
import os, sys
from pathlib import Path
from boa_daemon.daemon.loop.assembly import open_storage
from boa_daemon.inputs.sqlite_urls import sqlite_url
path, harm = Path(sys.argv[1]), sys.argv[2]
found, log, index = open_storage(sqlite_url(path)), Path(f"{path}-wal"), Path(f"{path}-shm")
found.store.set_flag("before", True)
exec(harm)
for number in range(3):
    try:
        found.store.set_flag(f"after {number}", True)
    except OSError as error:
        print(error)
        os.remove(log)
        found.store.set_flag(f"after {number}", True)
os._exit(9)
"""
HARMS = {
    "nothing": "pass",
    "log and index deleted": "log.unlink(); index.unlink()",
    "the log deleted": "log.unlink()",
    "the index deleted": "index.unlink()",
    "the log moved": "log.rename(path.with_name('aside'))",
    "another file in its place": "log.unlink(); log.write_bytes(os.urandom(9999))",
    "an empty file in its place": "log.unlink(); log.touch()",
}


@pytest.mark.first_set(3)
@pytest.mark.parametrize("harm", HARMS.values(), ids=HARMS)
def test_a_log_that_loses_its_name_while_it_is_used_is_saved(database: Path, harm: str) -> None:
    """People delete big files that look like logs; a daemon that is killed later has lost nothing."""
    ended = subprocess.run(
        [sys.executable, "-c", WRITES_ON, str(database), harm],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert ended.returncode == 9, ended.stderr
    assert ("a log of another database" in ended.stdout) == ("urandom" in harm)
    found = opened(database)
    assert [found.store.flag(name) for name in ("is_ours", "before", "after 0", "after 2")] == [True] * 4
    found.close()


def test_a_journal_that_comes_while_the_daemon_runs_is_named(database: Path) -> None:
    """SQLite says of it that another program keeps the database locked."""
    found = opened(database)
    found.store.set_flag("before", True)
    journal_of_another(database)
    with pytest.raises(OSError, match="-journal: a journal"):
        found.store.set_flag("after", True)
    Path(f"{database}-journal").unlink()
    found.store.set_flag("after", True)
    assert found.store.flag("before")
    found.close()


def test_a_write_needs_no_descriptor_besides_those_that_are_open(database: Path) -> None:
    """A daemon whose descriptors have run out records what it does with the connections that it has."""
    found = opened(database)
    found.store.set_flag("before", True)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        found.store.set_flag("after", True)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert found.store.flag("after")
    found.close()
