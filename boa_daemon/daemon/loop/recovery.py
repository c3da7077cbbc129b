"""Rebuild a lost database: jobs from the newest readable backup, instances from the cloud's list.

On PostgreSQL there are no backups by BOA: restore with the server's own tools before `recover`. Unreadable
tables are moved into a schema of their own.

What may be replaced is only read; a database whose file is sound is opened as a daemon opens it, to see
whether its rows are sound too. A database that cannot be used for a reason that passes is not replaced.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from sqlalchemy import inspect, text
from sqlalchemy.exc import SQLAlchemyError

from boa_daemon.clock import SystemClock
from boa_daemon.daemon.loop.assembly import database_url, open_storage, open_world, take_lead
from boa_daemon.daemon.loop.last_state import LastStateFile
from boa_daemon.daemon.loop.lock import Lock
from boa_daemon.daemon.loop.loop import Daemon
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.daemon.settings.daemon_paths import DaemonPaths, StateFile, daemon_paths, make_folder
from boa_daemon.errors import InputError
from boa_daemon.inputs.sqlite_urls import sqlite_url
from boa_daemon.store.database_setup import (
    HEAD,
    RECOVERED,
    StoreTooNew,
    StoreUnreachable,
    StoreUnusable,
    backups_in,
    check_version,
    look_into,
    look_into_server,
    open_engine,
    unusable,
)
from boa_daemon.store.documents import Documents
from boa_daemon.store.queue import numbered_jobs
from boa_daemon.store.storage import Storage
from boa_daemon.store.tables import METADATA
from boa_daemon.tick.facts.ports import PersistableRunner

_OURS = frozenset({*METADATA.tables, "alembic_version"})


def recover(settings: Settings) -> dict[str, Any]:
    """Rebuild the database and return what was found; the old one is kept beside it.

    Raises:
        AlreadyRunning: when a daemon uses the state folder.
        LedElsewhere: when a daemon on another machine leads.
        StoreUnreachable: when the database cannot be used now, and waiting cures that.
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
    old = None
    try:
        facts = look_into_server(url)
        check_version(facts.revision)
        if facts.next_job > 1 or facts.is_recovered:
            raise InputError(
                "the database can be read, and has jobs: there is nothing to recover",
                hint="To start over anyway, drop its tables, or name another in [daemon] database",
            )
        storage = open_storage(url, lead=take_lead)
    except (StoreTooNew, StoreUnreachable):
        raise
    except StoreUnusable:
        old = _set_aside(url)
        storage = open_storage(url, lead=take_lead)
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
        raise unusable(error, "the tables of the database cannot be moved aside") from None
    finally:
        engine.dispose()
    return name


def _recover(settings: Settings, there: DaemonPaths) -> dict[str, Any]:
    """Recover the SQLite file in the state folder: the new one is whole before the old one is moved."""
    if there.database.exists() and not _may_be_replaced(there):
        raise InputError(f"{there.database} can be read: there is nothing to recover")
    copies = backups_in(there.backups)
    fresh = there.state / StateFile.recovering
    try:
        found = _copied(copies, fresh)
        old = None
        if there.database.exists():
            old = there.state / f"{StateFile.unreadable}-{int(time.time())}"
            there.database.rename(old)
        for suffix in ("-wal", "-shm"):
            # What is not in the main file yet is of use only beside it.
            with suppress(FileNotFoundError):
                Path(f"{there.database}{suffix}").rename(f"{old or there.state / StateFile.lost}{suffix}")
        fresh.rename(there.database)
    except OSError as error:
        raise unusable(error, "the new database cannot be made") from None
    finally:
        _remove(fresh)
    storage = open_storage(sqlite_url(there.database))
    return _filled(settings, there, storage) | {
        "backup": None if found is None else str(found),
        "old": None if old is None else str(old),
    }


def _copied(copies: Iterable[Path], fresh: Path) -> Path | None:
    """Make a database from the first backup that a daemon can open; empty, and None, if there is none."""
    for copy in (*filter(_is_usable, copies), None):
        _remove(fresh)
        if copy is not None:
            shutil.copyfile(copy, fresh)
        try:
            open_storage(sqlite_url(fresh)).close()
        except StoreUnreachable:
            raise
        except StoreUnusable:
            if copy is None:
                raise
            continue
        return copy
    return None


def _remove(path: Path) -> None:
    """Delete a SQLite file with the files beside it."""
    for suffix in ("", "-wal", "-shm"):
        with suppress(OSError):
            Path(f"{path}{suffix}").unlink(missing_ok=True)


def _filled(settings: Settings, there: DaemonPaths, storage: Storage) -> dict[str, Any]:
    """Add the instances that the cloud lists and the jobs that run; return their numbers."""
    world = open_world(settings, there.state, SystemClock())
    storage.queue.mark_in(there.next_job)
    storage.store.set_flag(RECOVERED, True)
    if isinstance(world.runner, PersistableRunner):
        documents = Documents(storage.store.database, f"engine {settings.engine.name}")
        world.runner.remember_in(documents.read, documents.write)
    # What the lost database had settled is charged now. The start numbers later ticks above those of the
    # nodes, so a later daemon would take the file of the last tick for an old one.
    daemon = Daemon(settings, world, storage, last_state_file=LastStateFile(there.last_state))
    try:
        daemon.start()
        nodes = daemon.fleet.nodes()
        return {
            "instances": sum(node.ended_at is None for node in nodes),
            "jobs": len(storage.queue.active),
        }
    finally:
        daemon.close()


def _may_be_replaced(there: DaemonPaths) -> bool:
    """Whether the database or a row is damaged, never was released, or is empty in place of a lost one.

    It is only read; one of a version that this one can use is opened, as the daemon does, to see its rows.

    Raises:
        StoreUnreachable: when it cannot be read now, and waiting cures that.
        StoreTooNew: when a newer version of BOA wrote it.
    """
    try:
        facts = look_into(there.database)
        check_version(facts.revision)
        if facts.revision == HEAD:
            open_storage(sqlite_url(there.database)).close()
    except (StoreUnreachable, StoreTooNew):
        raise
    except StoreUnusable:
        return True
    had_jobs = numbered_jobs(there.next_job) > 0
    return had_jobs and facts.next_job <= 1 and not facts.is_recovered


def _is_usable(path: Path) -> bool:
    """Whether a backup is sound, and of a version that this one can bring up to date."""
    try:
        check_version(look_into(path).revision)
    except StoreUnusable:
        return False
    return True
