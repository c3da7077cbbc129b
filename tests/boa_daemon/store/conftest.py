"""Every store that there is: in memory, on SQLite, on a PostgreSQL server of the test's own."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from boa_daemon.store.database import Database
from boa_daemon.store.engine import migrate, open_engine, sqlite_url
from boa_daemon.store.memory import MemoryStore
from boa_daemon.store.sql import SqlStore
from boa_daemon.tick.ports import Store


def postgres_programs() -> Path | None:
    """Return the folder of the programs of a PostgreSQL server, None where there is none."""
    for name in ("initdb", "pg_ctl"):
        found = shutil.which(name)
        if found is not None:
            return Path(found).parent
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in folders if (folder / "initdb").exists()), None)


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str | None]:
    """Start a server on a Unix socket, as a user that is not root; None where there is no server."""
    programs = postgres_programs()
    if programs is None:
        yield None
        return
    folder = Path("/tmp") / f"boa-pg-{os.getpid()}"
    folder.mkdir(mode=0o700)
    prefix: list[str] = []
    if os.getuid() == 0:
        shutil.chown(folder, "nobody")
        prefix = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
    data = folder / "data"
    log = (folder / "log").as_posix()

    def run(*words: str) -> None:
        done = subprocess.run([*prefix, *words], capture_output=True, text=True, check=False, cwd=folder)
        assert done.returncode == 0, done.stdout + done.stderr

    try:
        run(str(programs / "initdb"), "-D", str(data), "-U", "boa", "-A", "trust", "--no-sync")
        options = f"-k {folder} -c listen_addresses='' -c fsync=off"
        run(str(programs / "pg_ctl"), "-D", str(data), "-l", log, "-w", "-o", options, "start")
        yield f"postgresql://boa@/postgres?host={folder}"
        run(str(programs / "pg_ctl"), "-D", str(data), "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


KINDS = ["memory", "sqlite", *(["postgresql"] if postgres_programs() else [])]
"""PostgreSQL where a server is installed; `test_store_sql` compiles its SQL everywhere."""


@pytest.fixture(params=KINDS)
def new_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Store]]:
    """Return a function that opens the store; opened again it is the same store."""
    opened: list[Database] = []
    memory = MemoryStore()
    url = sqlite_url(tmp_path / "boa.sqlite")
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres")
        from sqlalchemy import text

        engine = open_engine(url)
        with engine.begin() as connection:
            connection.execute(text("DROP SCHEMA public CASCADE"))
            connection.execute(text("CREATE SCHEMA public"))
        engine.dispose()

    def open_it() -> Store:
        if request.param == "memory":
            return memory
        engine = open_engine(url)
        migrate(engine)
        database = Database(engine)
        opened.append(database)
        return SqlStore(database)

    yield open_it
    for database in opened:
        database.close()
