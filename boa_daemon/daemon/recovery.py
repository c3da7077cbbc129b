"""Rebuild a lost database: jobs from the newest readable backup, instances from the cloud's list.

On PostgreSQL there are no backups by BOA: restore with the server's own tools before `recover`. Unreadable
tables are moved into a schema of their own.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

from sqlalchemy import inspect, text
from sqlalchemy.exc import SQLAlchemyError

from boa_daemon.clock import SystemClock
from boa_daemon.daemon.assembly import RECOVERED, database_url, open_storage, open_world, take_lead
from boa_daemon.daemon.config import Settings
from boa_daemon.daemon.daemon_paths import DaemonPaths, daemon_paths, make_folder
from boa_daemon.daemon.lock import Lock
from boa_daemon.daemon.loop import Daemon
from boa_daemon.errors import InputError
from boa_daemon.store.database_setup import (
    StoreTooNew,
    StoreUnreachable,
    StoreUnusable,
    check_integrity,
    check_reachable,
    open_engine,
    sqlite_url,
)
from boa_daemon.store.storage import Storage
from boa_daemon.store.tables import METADATA

_OURS = frozenset({*METADATA.tables, "alembic_version"})


def recover(settings: Settings) -> dict[str, Any]:
    """Rebuild the database and return what was found; the old one is kept beside it.

    Raises:
        AlreadyRunning: when a daemon uses the state folder.
        LedElsewhere: when a daemon on another machine leads.
        StoreUnreachable: when the database server does not answer.
        StoreTooNew: when a newer version of BOA wrote the database.
        InputError: when the database can be read, or is a SQLite file outside the state folder.
    """
    url = database_url(settings)
    is_file = settings.daemon.database is None
    if not is_file and url.startswith("sqlite"):
        raise InputError(
            f"[daemon] database is {url}: recover handles only the file in the state folder",
            hint="Put a copy of your own in its place, or remove the setting",
        )
    there = daemon_paths(settings)
    make_folder(there.state)
    lock = Lock(there.state)
    lock.take()
    try:
        return _recover(settings, there) if is_file else _recover_server(settings, there, url)
    finally:
        lock.give_back()


def _recover_server(settings: Settings, there: DaemonPaths, url: str) -> dict[str, Any]:
    """Recover on a server; leading keeps daemons on other machines from acting meanwhile."""
    check_reachable(url)
    old = None
    try:
        storage = open_storage(url, lead=take_lead)
    except (StoreTooNew, StoreUnreachable):
        raise
    except StoreUnusable:
        old = _set_aside(url)
        storage = open_storage(url, lead=take_lead)
    if storage.queue.has_had_jobs or storage.store.flag(RECOVERED):
        storage.close()
        raise InputError(
            "the database can be read, and has jobs: there is nothing to recover",
            hint="To start over anyway, drop its tables, or name another in [daemon] database",
        )
    return _filled(settings, there, storage) | {"backup": None, "old": old}


def _set_aside(url: str) -> str:
    """Move BOA's tables into a new schema; return its name."""
    engine, name = open_engine(url), f"boa_unreadable_{int(time.time())}"
    try:
        with engine.begin() as connection:
            found = [table for table in inspect(connection).get_table_names() if table in _OURS]
            connection.execute(text(f"CREATE SCHEMA {name}"))
            for table in found:
                connection.execute(text(f'ALTER TABLE "{table}" SET SCHEMA {name}'))
    except SQLAlchemyError as error:
        said = str(getattr(error, "orig", None) or error).splitlines()[0]
        raise StoreUnusable(f"the tables of the database cannot be moved aside: {said}") from None
    finally:
        engine.dispose()
    return name


def _recover(settings: Settings, there: DaemonPaths) -> dict[str, Any]:
    """Recover the SQLite file in the state folder."""
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
    storage = open_storage(sqlite_url(there.database))
    return _filled(settings, there, storage) | {
        "backup": None if found is None else str(found),
        "old": None if old is None else str(old),
    }


def _filled(settings: Settings, there: DaemonPaths, storage: Storage) -> dict[str, Any]:
    """Add the instances that the cloud lists and the jobs that run; return their numbers."""
    world = open_world(settings, there.state, SystemClock())
    storage.queue.mark_in(there.next_job)
    storage.store.set_flag(RECOVERED, True)
    daemon = Daemon(settings, world, storage)
    try:
        daemon.start()
        nodes = daemon.fleet.nodes()
        return {
            "instances": sum(node.ended_at is None for node in nodes),
            "jobs": len(storage.queue.active),
        }
    finally:
        daemon.close()


def _is_emptied(there: DaemonPaths) -> bool:
    """Whether a readable database is a new, empty one in place of a lost one."""
    storage = open_storage(sqlite_url(there.database))
    try:
        return storage.queue.is_emptied(there.next_job) and not storage.store.flag(RECOVERED)
    finally:
        storage.close()


def _is_sound(path: Path) -> bool:
    """Whether the SQLite file passes its integrity check."""
    engine = open_engine(sqlite_url(path))
    try:
        check_integrity(engine)
    except StoreUnusable:
        return False
    finally:
        engine.dispose()
    return True
