"""Books made again: jobs from the newest backup that can be read, instances from the list of the cloud."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

from boa_daemon.clock import SystemClock
from boa_daemon.daemon.assembly import (
    RECOVERED,
    Places,
    make_folder,
    open_books,
    open_world,
    places,
)
from boa_daemon.daemon.config import Settings
from boa_daemon.daemon.lock import Lock
from boa_daemon.daemon.loop import Daemon
from boa_daemon.errors import InputError
from boa_daemon.store.engine import StoreUnusable, check, open_engine, sqlite_url


def recover(settings: Settings) -> dict[str, Any]:
    """Make the database again and return what was found; the old one is kept beside it.

    Raises:
        AlreadyRunning: when a daemon runs.
        InputError: when the database can be read, or is not a SQLite file.
    """
    if settings.daemon.database is not None:
        raise InputError("recover makes SQLite files; restore a PostgreSQL database with its own tools")
    there = places(settings)
    make_folder(there.state)
    lock = Lock(there.state)
    lock.take()
    try:
        return _recover(settings, there)
    finally:
        lock.give_back()


def _recover(settings: Settings, there: Places) -> dict[str, Any]:
    """Do it."""
    if there.database.exists() and _is_sound(there.database) and not _is_emptied(there):
        raise InputError(f"{there.database} can be read: there is nothing to recover")
    old = None
    if there.database.exists():
        old = there.database.with_suffix(f".unreadable-{int(time.time())}")
        there.database.rename(old)
    for suffix in ("-wal", "-shm"):
        Path(f"{there.database}{suffix}").unlink(missing_ok=True)
    copies = sorted(there.backups.glob("*.sqlite"), reverse=True)
    found = next((copy for copy in copies if _is_sound(copy)), None)
    if found is not None:
        shutil.copyfile(found, there.database)
    world = open_world(settings, there.state, SystemClock())
    books = open_books(sqlite_url(there.database))
    books.queue.mark_in(there.next_job)
    books.store.set_flag(RECOVERED, True)
    daemon = Daemon(settings, world, books)
    try:
        daemon.start()
        nodes = daemon.fleet.nodes()
        queue = daemon.books.queue if daemon.books is not None else None
        return {
            "instances": sum(node.ended_at is None for node in nodes),
            "jobs": 0 if queue is None else len(queue.active),
            "backup": None if found is None else str(found),
            "old": None if old is None else str(old),
        }
    finally:
        daemon.close()


def _is_emptied(there: Places) -> bool:
    """Whether a database that can be read is a new one in place of another."""
    books = open_books(sqlite_url(there.database))
    try:
        return books.queue.is_emptied(there.next_job) and not books.store.flag(RECOVERED)
    finally:
        books.close()


def _is_sound(path: Path) -> bool:
    """Whether a database can be read."""
    engine = open_engine(sqlite_url(path))
    try:
        check(engine)
    except StoreUnusable:
        return False
    finally:
        engine.dispose()
    return True
