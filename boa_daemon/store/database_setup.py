"""Opening the database: pragmas, migrations, integrity, backups.

SQLite runs in WAL mode with `synchronous=FULL`: committed data survives a power loss. The daemon is
the only writer; readers never wait for it.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, cast

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
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError
from sqlalchemy.schema import CreateIndex, CreateTable

from boa_daemon.errors import BoaError, InputError
from boa_daemon.store.tables import METADATA

MIGRATIONS = Path(__file__).parent / "migrations"
BUSY_SECONDS = 30.0
IDLE_SECONDS = 10.0
"""Time after which PostgreSQL ends an idle transaction: shorter than a leader's lease."""
KEPT_BACKUPS = 24


class StoreUnusable(BoaError):
    """The database cannot be read or written: `boa recover` makes a new one from the cloud and a backup."""


class StoreUnreachable(StoreUnusable):
    """The database server does not answer; the data may be intact."""


class StoreTooNew(StoreUnusable):
    """A newer version of BOA wrote the database: it is intact, but this version cannot use it."""


def sqlite_url(path: Path) -> str:
    """Return the URL of a SQLite file."""
    return f"sqlite:///{path}"


def open_engine(url: str, *, durable: bool = True) -> Engine:
    """Return an engine with the pragmas set; `durable=False` trades safety at power loss for speed.

    Raises:
        InputError: when the URL is of neither SQLite nor PostgreSQL.
    """
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise InputError(
            f"{url!r} is not a database URL", hint="For example sqlite:////var/lib/boa/boa.sqlite"
        ) from None
    backend = parsed.get_backend_name()
    if backend == "postgresql":
        # A process that is suspended, or a machine that vanishes, within a transaction keeps its locks until
        # the server ends the transaction. Nobody could take over before.
        given = parsed.query.get("options", "")
        options = given if isinstance(given, str) else " ".join(given)
        limit = f"{options} -c idle_in_transaction_session_timeout={IDLE_SECONDS * 1000:.0f}"
        return create_engine(
            parsed.set(drivername="postgresql+psycopg"), pool_pre_ping=True, connect_args={"options": limit}
        )
    if backend != "sqlite":
        raise InputError(f"a database on {backend} is not supported", hint="Use sqlite or postgresql")
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
    except DBAPIError as error:
        if is_unreachable(error, engine):
            raise StoreUnreachable(f"the database does not answer: {error.orig}") from None
        raise StoreUnusable(f"the database cannot be read: {error.orig}") from None
    if said != "ok":
        raise StoreUnusable(f"the database is damaged: {said}")


def is_unreachable(error: Exception, engine: Engine) -> bool:
    """Whether an error means that the database server is down, starting, or cannot be reached."""
    return engine.dialect.name != "sqlite" and isinstance(error, OperationalError)


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
HEAD = "0004"
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
    if found is not None and found > HEAD:
        raise StoreTooNew(
            f"a newer boa wrote this database (schema {found}; this one knows {HEAD}): install that boa"
        )
    try:
        with engine.begin() as connection:
            if engine.dialect.name == "postgresql":
                # When a daemon and its standby start together, one creates the tables and the other waits.
                connection.execute(select(func.pg_advisory_xact_lock(MIGRATION_LOCK)))
            if not inspect(connection).get_table_names():
                for statement in _tables(engine.dialect.name):
                    connection.exec_driver_sql(statement)
            elif (found := _revision(connection)) is None:
                raise ValueError("it has tables, and does not say of which version")
            elif found != HEAD:
                _bring_up(connection)
    except Exception as error:
        if is_unreachable(error, engine):
            raise StoreUnreachable(f"the database does not answer: {error}") from error
        raise StoreUnusable(f"the schema of the database cannot be brought up to date: {error}") from error


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
    target, partial = folder / f"{name}.sqlite", folder / f".{name}.part"
    with _raw(engine) as source, closing(sqlite3.connect(partial)) as copy:
        source.backup(copy)
    partial.replace(target)
    for old in sorted(folder.glob("*.sqlite"))[:-KEPT_BACKUPS]:
        old.unlink()
    return target


def newest_backup_age(folder: Path) -> float | None:
    """Return the seconds since the newest backup was made; None if there is none."""
    made = [path.stat().st_mtime for path in folder.glob("*.sqlite")]
    return max(time.time() - max(made), 0.0) if made else None


@contextmanager
def _raw(engine: Engine) -> Iterator[sqlite3.Connection]:
    """Yield the driver's own connection."""
    connection = engine.raw_connection()
    try:
        yield cast(sqlite3.Connection, connection.driver_connection)
    finally:
        connection.close()
