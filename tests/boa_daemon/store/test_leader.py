"""One daemon leads a database: by a lock on SQLite, by a row with an epoch on PostgreSQL."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from postgres_server import empty_database
from sqlalchemy import Engine, select, text
from sqlalchemy.exc import DBAPIError

from boa_daemon.daemon.loop.assembly import AGAIN_SECONDS, open_daemon, try_database
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.inputs.sqlite_urls import sqlite_url
from boa_daemon.store import database_setup as store_engine
from boa_daemon.store.database import Database
from boa_daemon.store.database_setup import migrate, open_engine
from boa_daemon.store.documents import Documents
from boa_daemon.store.leader import MARGIN_SECONDS, Leadership, LeadInDoubt, LedElsewhere
from boa_daemon.store.sql import put
from boa_daemon.store.tables import META

HAS_SERVER = shutil.which("initdb") or list(Path("/usr/lib/postgresql").glob("*/bin/initdb"))


@pytest.fixture(params=["sqlite", *(["postgresql"] if HAS_SERVER else [])])
def open_it(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Engine]]:
    """Yield a function that opens the database like another process."""
    url = sqlite_url(tmp_path / "boa.sqlite")
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres")
        empty_database(url)
    opened: list[Engine] = []

    def another() -> Engine:
        engine = open_engine(url)
        migrate(engine)
        opened.append(engine)
        return engine

    yield another
    for engine in opened:
        engine.dispose()


def test_a_second_daemon_is_refused_until_the_leader_gives_up(open_it: Callable[[], Engine]) -> None:
    """The refusal names the leading process, and the next leader has epoch 2."""
    first, second = Leadership(open_it()), Leadership(open_it())
    assert first.take() is None
    other = second.take()
    assert other is not None
    assert other.sentence.startswith("process ")
    with pytest.raises(LedElsewhere):
        second.check()
    first.check()
    first.renew()
    first.give_up()
    assert second.take() is None
    assert second.leader is not None
    assert second.leader.epoch == 2
    second.give_up()


@pytest.mark.parametrize("way", ["a link to the file", "a link to its folder", "a relative path", "dots"])
def test_a_database_has_one_leader_by_whatever_path_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Two daemons by two names of one file would both act."""
    file = tmp_path / "data" / "boa.sqlite"
    file.parent.mkdir()
    monkeypatch.chdir(tmp_path)
    first = open_engine(sqlite_url(file))
    migrate(first)
    names = {
        "a link to the file": tmp_path / "link.sqlite",
        "a link to its folder": tmp_path / "link" / "boa.sqlite",
        "a relative path": Path("data/boa.sqlite"),
        "dots": tmp_path / "data" / ".." / "data" / "boa.sqlite",
    }
    (tmp_path / "link.sqlite").symlink_to(file)
    (tmp_path / "link").symlink_to(file.parent)
    second = open_engine(sqlite_url(names[way]))
    one, other = Leadership(first), Leadership(second)
    try:
        assert one.take() is None
        assert other.take() is not None
    finally:
        for each, engine in ((one, first), (other, second)):
            each.give_up()
            engine.dispose()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EIO])
def test_a_disk_that_cannot_lock_is_no_other_leader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The database cannot be used now; nobody is said to lead on it."""
    settings = Settings.model_validate({"daemon": {"state_dir": str(tmp_path)}})

    def refuse(*_words: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    storage, why, again = try_database(settings)
    assert storage is None
    assert os.strerror(number) in why
    assert again == AGAIN_SECONDS


def test_a_silent_leader_is_replaced_and_its_later_writes_are_refused(postgres: str | None) -> None:
    """The old leader stops acting before its row expires."""
    if postgres is None:
        return
    empty_database(postgres)
    now = [0.0]
    engines = [open_engine(postgres), open_engine(postgres)]
    migrate(engines[0])
    old = Leadership(engines[0], lease_seconds=1.0, monotonic=lambda: now[0])
    new = Leadership(engines[1], lease_seconds=1.0)
    database = Database(engines[0])
    database.fence = old.fence
    assert old.take() is None
    with database.write() as connection:
        put(connection, META, key="a", value="1")
    now[0] = 0.9
    with pytest.raises(LedElsewhere, match="did not confirm"):
        old.check()
    waited = threading.Event()
    for _ in range(50):
        if new.take() is None:
            break
        waited.wait(0.1)
    new.check()
    with pytest.raises(LedElsewhere, match="another daemon leads"), database.write() as connection:
        put(connection, META, key="a", value="2")
    with pytest.raises(LedElsewhere, match="not lead any more"), database.write() as connection:
        put(connection, META, key="a", value="3")
    with engines[1].connect() as connection:
        assert connection.scalar(select(META.c.value).where(META.c.key == "a")) == "1"
    with pytest.raises(LedElsewhere):
        old.check()
    for engine in engines:
        engine.dispose()


def test_a_new_leader_waits_for_a_running_write_of_the_old_one(postgres: str | None) -> None:
    """A transaction is committed before the takeover or not at all."""
    if postgres is None:
        return
    empty_database(postgres)
    engines = [open_engine(postgres), open_engine(postgres)]
    migrate(engines[0])
    old, new = Leadership(engines[0], lease_seconds=0.2), Leadership(engines[1])
    assert old.take() is None
    database = Database(engines[0])
    database.fence = old.fence
    took = threading.Event()

    def take() -> None:
        while new.take() is not None:
            threading.Event().wait(0.05)
        took.set()

    with database.write() as connection:
        thread = threading.Thread(target=take)
        thread.start()
        assert not took.wait(0.8)
        connection.execute(text("SELECT 1"))
    thread.join(120.0)
    assert took.is_set()
    for engine in engines:
        engine.dispose()


def test_a_leader_suspended_during_a_write_does_not_block_its_successor(
    postgres: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server ends the idle transaction, and its writes are rolled back.

    Without this timeout, a standby could not take over for a minute.
    """
    if postgres is None:
        return
    empty_database(postgres)
    standby = open_engine(postgres)
    migrate(standby)
    # Only the engine opened below gets this timeout: on a busy machine, the standby may pause longer.
    monkeypatch.setattr(store_engine, "IDLE_SECONDS", 1.0)
    engines = [open_engine(postgres), standby]
    first, second = (Leadership(engine, lease_seconds=0.1) for engine in engines)
    database = Database(engines[0])
    database.fence = first.fence
    assert first.take() is None

    def is_stopped_in_it() -> None:
        with database.write() as connection:
            put(connection, META, key="k", value="1")
            until = time.monotonic() + 120.0
            while second.take() is not None:
                assert time.monotonic() < until
                time.sleep(0.05)
            put(connection, META, key="k", value="2")

    with pytest.raises(DBAPIError, match="idle-in-transaction"):
        is_stopped_in_it()
    with engines[1].connect() as connection:
        assert connection.scalar(select(META.c.value).where(META.c.key == "k")) is None
    for engine in engines:
        engine.dispose()


def test_a_write_of_documents_replaces_the_earlier_ones_of_its_kind(open_it: Callable[[], Engine]) -> None:
    """Another process reads them, and other kinds are empty."""
    documents = Documents(Database(open_it()), "engine ssm")
    documents.write({"a": "1", "b": "2"})
    documents.write({"b": "3"})
    assert Documents(Database(open_it()), "engine ssm").read() == {"b": "3"}
    assert Documents(Database(open_it()), "engine ray").read() == {}


def test_a_second_daemon_on_the_same_database_does_not_act(tmp_path: Path) -> None:
    """The second daemon has no storage and makes no tick, and its fault names the leader."""
    url = sqlite_url(tmp_path / "boa.sqlite")

    def a_daemon(name: str) -> Settings:
        return Settings.model_validate({"daemon": {"state_dir": str(tmp_path / name), "database": url}})

    first = open_daemon(a_daemon("one"))
    second = open_daemon(a_daemon("two"))
    assert first.storage is not None
    assert second.storage is None
    assert "this cluster is led by process" in second.standing.fault
    assert second.tick() is None
    second.close()
    first.close()
    third = open_daemon(a_daemon("three"))
    assert third.storage is not None
    third.close()


def test_eight_daemons_can_create_the_tables_at_the_same_time(postgres: str | None) -> None:
    """None of them fails."""
    if postgres is None:
        return
    empty_database(postgres)
    failed: list[Exception] = []

    def start() -> None:
        engine = open_engine(postgres)
        try:
            migrate(engine)
        except Exception as error:
            failed.append(error)
        finally:
            engine.dispose()

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


@pytest.mark.skipif(not HAS_SERVER, reason="PostgreSQL is not installed")
def test_a_leader_stops_acting_before_its_lease_is_over(postgres: str | None) -> None:
    """Its orders must have arrived when another may lead; a renewal counts from when it was asked for."""
    assert postgres is not None
    empty_database(postgres)
    engine = open_engine(postgres)
    migrate(engine)
    now = [100.0]
    leader = Leadership(engine, lease_seconds=30.0, monotonic=lambda: now[0])
    assert leader.take() is None
    for began in (100.0, 115.0):
        now[0] = began
        leader.renew()
        now[0] = began + 30.0 - MARGIN_SECONDS
        leader.check()
        now[0] = began + 30.0 - MARGIN_SECONDS + 0.1
        with pytest.raises(LeadInDoubt):
            leader.check()
    leader.give_up()
    engine.dispose()


@pytest.mark.skipif(not HAS_SERVER, reason="PostgreSQL is not installed")
def test_a_short_lease_has_a_margin_of_a_third(postgres: str | None) -> None:
    """A margin longer than the lease would let nobody act."""
    assert postgres is not None
    empty_database(postgres)
    engine = open_engine(postgres)
    migrate(engine)
    now = [100.0]
    leader = Leadership(engine, lease_seconds=3.0, monotonic=lambda: now[0])
    assert leader.take() is None
    for at, acts in ((102.0, True), (102.1, False)):
        now[0] = at
        if acts:
            leader.check()
        else:
            with pytest.raises(LeadInDoubt):
                leader.check()
    leader.give_up()
    engine.dispose()


@pytest.mark.skipif(not HAS_SERVER, reason="PostgreSQL is not installed")
def test_a_leader_in_doubt_says_why_its_database_does_not_confirm_it(postgres: str | None) -> None:
    """Read-only for maintenance: the cause stays in the fault when the lease is over, until it has passed."""
    assert postgres is not None
    empty_database(postgres)
    engine = open_engine(postgres)
    migrate(engine)
    now = [100.0]
    leader = Leadership(engine, lease_seconds=30.0, monotonic=lambda: now[0])
    assert leader.take() is None
    now[0] = 200.0
    order = "ALTER DATABASE postgres {} default_transaction_read_only"
    with engine.begin() as connection:
        connection.execute(text(order.format("SET") + " = on"))
    try:
        engine.dispose()
        with pytest.raises(DBAPIError):
            leader.renew()
        with pytest.raises(LeadInDoubt, match="read-only"):
            leader.check()
    finally:
        with engine.begin() as connection:
            connection.execute(text("SET TRANSACTION READ WRITE"))
            connection.execute(text(order.format("RESET")))
    engine.dispose()
    leader.renew()
    leader.check()
    leader.give_up()
    engine.dispose()
