"""Opening the database: pragmas, migrations, integrity, backups.

SQLite runs in WAL mode with `synchronous=FULL`: committed data survives a power loss. The daemon is
the only writer; readers never wait for it. A database of another version, and one that `boa recover` may
replace, is only read: nothing is opened for writing before its version is known.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    MetaData,
    String,
    Table,
    create_engine,
    event,
    func,
    inspect,
    select,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.schema import CreateIndex, CreateTable

from boa_daemon.errors import BoaError, InputError
from boa_daemon.inputs.sqlite_urls import path_from_url
from boa_daemon.job.whole_files import whole_file
from boa_daemon.store.database_file import check_beside, has_log, strange_log
from boa_daemon.store.database_troubles import PASSING, explain, trouble_of
from boa_daemon.store.fresh_connections import HUNG_SECONDS, keep_connections_fresh
from boa_daemon.store.session_limits import limit_sessions
from boa_daemon.store.tables import META, METADATA

MIGRATIONS = Path(__file__).parent / "migrations"
BUSY_SECONDS = 0.8
"""Longest wait for a lock of another program on the database. The daemon tries again with the next tick, and
a request is answered within two seconds."""
CONNECT_SECONDS = 2
"""Longest wait for PostgreSQL to accept a connection; libpq knows no shorter one."""
IDLE_SECONDS = 10.0
"""Time after which PostgreSQL ends an idle transaction: shorter than a leader's lease."""
LOST_SECONDS = 8
"""Time after which a connection counts as lost whose server confirms nothing: the leader steps aside then."""
KEPT_BACKUPS = 24
RECOVERED = "is_recovered"
"""Flag of a database that `boa recover` made, which may be empty."""
AHEAD_SECONDS = 60.0
"""By how much a file's time may be ahead of the clock, as on a server of files."""


class StoreUnusable(BoaError):
    """The database cannot be read or written: `boa recover` makes a new one from the cloud and a backup."""


class StoreUnreachable(StoreUnusable):
    """The database cannot be used now, for a reason that passes: a full disk, a lock, a server down."""


class StoreOfOthers(StoreUnusable):
    """Another daemon has filled the database: it is intact, and not this daemon's."""


class StoreWentBack(BoaError):
    """An older copy took the place of the database while the daemon ran."""


class StoreTooNew(StoreUnusable):
    """A newer version of BOA wrote the database: it is intact, but this version cannot use it."""


def parsed_url(url: str) -> URL:
    """Return a database's URL in its parts; ``postgres:`` stands for ``postgresql:``.

    Raises:
        InputError: when it is none; it is not quoted, because it may hold a password.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise InputError(
            "[daemon] database is no URL of a database",
            hint="For example postgresql://boa@host:5432/boa, with %40 for an @ in a password, or "
            "sqlite:////var/lib/boa/boa.sqlite",
            setting=("daemon", "database"),
        ) from None
    if parsed.get_backend_name() == "sqlite" and parsed.database:
        # Versions of SQLAlchemy differ in whether they do this.
        parsed = parsed.set(database=path_from_url(url))
    return parsed.set(drivername="postgresql") if parsed.drivername == "postgres" else parsed


def open_engine(url: str, *, durable: bool = True) -> Engine:
    """Return an engine with the pragmas set; `durable=False` trades safety at power loss for speed.

    Raises:
        InputError: when the URL is of neither SQLite nor PostgreSQL.
    """
    parsed = parsed_url(url)
    backend = parsed.get_backend_name()
    if backend == "postgresql":
        given = parsed.query.get("options", "")
        given_by_url = {key for key in parsed.query if key != "options"}
        patience: dict[str, int | str | None] = {
            "connect_timeout": CONNECT_SECONDS,
            "keepalives_idle": LOST_SECONDS // 2,
            "keepalives_interval": 2,
            "keepalives_count": 2,
            "tcp_user_timeout": LOST_SECONDS * 1000,
        }
        # Without it a role or a database without an encoding gives bytes in place of text.
        patience["client_encoding"] = "utf8"
        # A pooler may give each transaction another session, which has prepared nothing.
        patience["prepare_threshold"] = None
        engine = create_engine(
            parsed.set(drivername="postgresql+psycopg"),
            pool_pre_ping=True,
            pool_timeout=BUSY_SECONDS,
            connect_args={key: value for key, value in patience.items() if key not in given_by_url},
        )
        limit_sessions(
            engine,
            {
                "idle_in_transaction_session_timeout": IDLE_SECONDS,
                "lock_timeout": BUSY_SECONDS,
                "statement_timeout": HUNG_SECONDS,
            },
            options=given if isinstance(given, str) else " ".join(given),
        )
        keep_connections_fresh(engine)
        return engine
    if backend != "sqlite":
        raise InputError(
            f"a database on {backend} is not supported",
            hint="Use sqlite or postgresql",
            setting=("daemon", "database"),
        )
    engine = create_engine(parsed, connect_args={"timeout": BUSY_SECONDS})

    @event.listens_for(engine, "connect")
    def _pragmas(connection: Any, _record: Any) -> None:
        for pragma in ("journal_mode=WAL", f"synchronous={'FULL' if durable else 'OFF'}", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}").close()

    return engine


def check_integrity(engine: Engine) -> None:
    """Check the integrity of a SQLite database; of another database, that it answers.

    Raises:
        StoreUnreachable: when its server does not answer.
        StoreUnusable: when the database is damaged or cannot be read.
    """
    try:
        with engine.connect() as connection:
            if engine.dialect.name != "sqlite":
                connection.execute(text("SELECT 1"))
                return
            said = connection.execute(text("PRAGMA quick_check(1)")).scalar()
    except PASSING as error:
        raise unusable(error, "the database cannot be read") from None
    if said != "ok":
        raise StoreUnusable(f"the database is damaged: {said}")


def unusable(error: BaseException, what: str) -> StoreUnusable:
    """Return an error of the database as one that says whether waiting cures it."""
    kind = trouble_of(error)
    said, remedy = explain(error, kind)
    if kind is None:
        return StoreUnusable(f"{what}: {said}")
    verb = "does not answer" if kind == "server" else "cannot be used now"
    return StoreUnreachable(f"the database {verb}: {said}. {remedy}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """What a database says without being changed: its schema, and whether it holds or held anything.

    `revision` is None for one without tables. `next_job` is the number of its next job, `tick` that of its
    last tick, and `name` its own name, if it has one yet.
    """

    revision: str | None
    next_job: int
    is_recovered: bool
    tick: int = 0
    name: str | None = None

    @classmethod
    def of(cls, revision: str | None, meta: Mapping[str, str]) -> FileFacts:
        """Return the facts from the rows of the table `meta`.

        Raises:
            TypeError, ValueError: when a value is not what BOA writes.
        """
        return cls(
            revision=revision,
            next_job=int(json.loads(meta.get("next_job") or "1")),
            is_recovered=bool(json.loads(meta.get("is_recovered") or "false")),
            tick=int(json.loads(meta.get("tick") or "0")),
            name=json.loads(meta.get("name") or "null"),
        )

    def may_continue(self, earlier: FileFacts) -> bool:
        """Whether a database may have come to say this after it said `earlier`."""
        return (
            (self.revision is not None or earlier.revision is None)
            and earlier.name in (None, self.name)
            and self.tick >= earlier.tick
            and self.next_job >= earlier.next_job
        )


def look_into(path: Path, *, is_checked: bool = True) -> FileFacts:
    """Return the facts of a SQLite file; it is only read, and neither migrated nor repaired.

    Raises:
        StoreUnreachable: when it cannot be read now, also because a file beside it is not its own.
        StoreUnusable: when it is damaged, or no database of BOA.
    """
    try:
        check_beside(path)
    except OSError as error:
        raise unusable(error, "the database cannot be read") from None
    try:
        facts = _facts_in(path, "mode=ro", is_checked=is_checked)
    except StoreUnreachable:
        raise
    except StoreUnusable:
        if has_log(path) and _is_whole_alone(path):
            raise unusable(strange_log(path), "the database cannot be read") from None
        raise
    if has_log(path) and not _continues(path, facts):
        raise unusable(strange_log(path), "the database cannot be read")
    return facts


_ALONE = "mode=ro&immutable=1"
"""A database without its log, as SQLite opens one that nobody may change."""


def _is_whole_alone(path: Path) -> bool:
    """Whether a database is sound and has tables without the log beside it."""
    try:
        return _facts_in(path, _ALONE).revision is not None
    except StoreUnusable:
        return False


def _continues(path: Path, facts: FileFacts) -> bool:
    """Whether the facts of a database with its log may follow those without it."""
    try:
        return facts.may_continue(_facts_in(path, _ALONE, is_checked=False))
    except StoreUnusable:
        return True  # A daemon was killed while it wrote the log into the database: only both are whole.


def _facts_in(path: Path, how: str, *, is_checked: bool = True) -> FileFacts:
    address = f"file:{quote(str(path.absolute()))}?{how}"
    try:
        with closing(sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS)) as file:
            if is_checked and (said := file.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
                raise StoreUnusable(f"the database is damaged: {said}")
            tables = {name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if not tables:
                return FileFacts.of(None, {})
            if not {"alembic_version", "meta"} <= tables:
                raise StoreUnusable("it has tables, and does not say of which version")
            revision = file.execute("SELECT version_num FROM alembic_version").fetchone()
            keys = "'next_job', 'is_recovered', 'tick', 'name'"
            meta = dict(file.execute(f"SELECT key, value FROM meta WHERE key IN ({keys})"))
            return FileFacts.of(None if revision is None else str(revision[0]), meta)
    except (sqlite3.Error, OSError, MemoryError) as error:
        raise unusable(error, "the database cannot be read") from None
    except (TypeError, ValueError) as error:
        raise StoreUnusable(f"the database cannot be read: {error}") from None


def look_into_server(url: str) -> FileFacts:
    """Return the same facts of a database on a server, which is only read.

    Raises:
        StoreUnreachable: when it cannot be read now.
        StoreUnusable: when its tables are not those of BOA, or cannot be read.
    """
    engine = open_engine(url)
    try:
        with engine.connect() as connection:
            tables = set(inspect(connection).get_table_names())
            if not tables & set(METADATA.tables):
                return FileFacts.of(None, {})
            revision = _revision(connection)
            if revision is None or "meta" not in tables:
                raise StoreUnusable("it has tables, and does not say of which version")
            if revision == HEAD and not METADATA.tables.keys() <= tables:
                raise StoreUnusable("some of its tables are missing")
            rows = connection.execute(select(META.c.key, META.c.value))
            meta = {row.key: row.value for row in rows}
            return FileFacts.of(revision, meta)
    except PASSING as error:
        raise unusable(error, "the database cannot be read") from None
    except (TypeError, ValueError) as error:
        raise StoreUnusable(f"the database cannot be read: {error}") from None
    finally:
        engine.dispose()


def check_version(revision: str | None) -> None:
    """Return if this version of BOA can use a database of a schema revision, or bring it up to date.

    Raises:
        StoreTooNew: when a newer version wrote it.
        StoreUnusable: when a version wrote it that was never released.
    """
    if revision is None or revision in KNOWN:
        return
    if revision > HEAD:
        raise StoreTooNew(
            f"a newer boa wrote this database (schema {revision}; this one knows {HEAD}): install that boa, "
            "or restore the backup from before the upgrade. Nothing was changed"
        )
    raise StoreUnusable(
        f"a development version wrote this database (schema {revision}), and releases begin with {KNOWN[0]}"
    )


def check_reachable(url: str) -> None:
    """Return if the database answers, whatever its content.

    Raises:
        StoreUnreachable: when the server does not answer.
    """
    engine = open_engine(url)
    try:
        check_integrity(engine)
    except StoreUnreachable:
        raise
    except StoreUnusable:
        return
    finally:
        engine.dispose()


MIGRATION_LOCK = 0x626F61
KNOWN = ("0004",)
"""The schema revisions of all releases, oldest first: a database at one of them can be used."""
HEAD = KNOWN[-1]
"""The newest schema revision; a database at this revision is not migrated."""


def _revision(connection: Connection) -> str | None:
    """Return the schema revision of a database, or None."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    found = connection.scalar(text("SELECT version_num FROM alembic_version"))
    return None if found is None else str(found)


def migrate(engine: Engine) -> None:
    """Create the tables of a new database, or migrate an older one to the newest revision.

    Raises:
        StoreUnusable: when the migration fails; `StoreTooNew` when a newer BOA wrote the database.
    """
    with engine.connect() as connection:
        found = _revision(connection)
    if found == HEAD:
        return
    check_version(found)
    try:
        with engine.begin() as connection:
            if engine.dialect.name == "postgresql":
                # When a daemon and its standby start together, one creates the tables and the other waits.
                connection.execute(text("SET LOCAL lock_timeout = '60s'"))
                connection.execute(text("SET LOCAL statement_timeout = 0"))
                connection.execute(select(func.pg_advisory_xact_lock(MIGRATION_LOCK)))
            else:
                # Python's driver opens no transaction for tables: a full disk would leave half of them.
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            if not inspect(connection).get_table_names():
                for statement in _tables(engine.dialect.name):
                    connection.exec_driver_sql(statement)
            elif (found := _revision(connection)) is None:
                raise ValueError("it has tables, and does not say of which version")
            elif found != HEAD:
                _bring_up(connection)
    except Exception as error:
        raise unusable(error, "the schema of the database cannot be brought up to date") from error


@cache
def _tables(dialect_name: str) -> tuple[str, ...]:
    """Return the SQL statements that create all tables and mark them as the newest revision."""
    dialect = (sqlite if dialect_name == "sqlite" else postgresql).dialect()
    version = Table("alembic_version", MetaData(), Column("version_num", String(32), primary_key=True))
    tables = (*METADATA.sorted_tables, version)
    made = (str(CreateTable(table).compile(dialect=dialect)) for table in tables)
    indexes = (index for table in tables for index in table.indexes)
    found = (str(CreateIndex(index).compile(dialect=dialect)) for index in indexes)
    return (*made, *found, f"INSERT INTO alembic_version (version_num) VALUES ('{HEAD}')")


def _bring_up(connection: Connection) -> None:
    """Migrate an older database to the newest revision with alembic."""
    from alembic import command  # noqa: PLC0415 - slow to import, and seldom needed
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def backup(engine: Engine, folder: Path, name: str) -> Path | None:
    """Copy a SQLite database in use, and keep the newest copies; return None for other databases."""
    if engine.dialect.name != "sqlite":
        return None
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{name}.sqlite"
    with (
        whole_file(target) as partial,
        _raw(engine) as source,
        closing(sqlite3.connect(partial)) as copy,
    ):
        source.backup(copy)
    for old in [each for each in backups_in(folder) if each != target][KEPT_BACKUPS - 1 :]:
        old.unlink()
    return target


def backups_in(folder: Path) -> list[Path]:
    """Return the backups, newest first.

    One with a time to come was made while the clock was ahead, and so before those that were made since: it
    is older than all others, and must neither hold back nor push out newer ones.
    """
    now = time.time() + AHEAD_SECONDS
    made = {path: path.stat().st_mtime for path in folder.glob("*.sqlite")}
    return sorted(made, key=lambda path: (made[path] <= now, made[path], path.name), reverse=True)


def newest_backup_age(folder: Path) -> float | None:
    """Return the seconds since the newest backup was made; None if there is none of the past."""
    made = [path.stat().st_mtime for path in backups_in(folder)[:1]]
    if not made or made[0] > time.time() + AHEAD_SECONDS:
        return None
    return max(time.time() - made[0], 0.0)


@contextmanager
def _raw(engine: Engine) -> Iterator[sqlite3.Connection]:
    """Yield the driver's own connection."""
    connection = engine.raw_connection()
    try:
        yield cast(sqlite3.Connection, connection.driver_connection)
    finally:
        connection.close()
