"""A PostgreSQL server for one test, on a Unix socket, run by a user that is not root."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from sqlalchemy import text

from boa_daemon.store.database_setup import open_engine


def postgres_programs() -> Path | None:
    """Return the folder of PostgreSQL's server programs, or None if it is not installed."""
    for name in ("initdb", "pg_ctl"):
        found = shutil.which(name)
        if found is not None:
            return Path(found).parent
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in folders if (folder / "initdb").exists()), None)


class PostgresServer:
    """A PostgreSQL server; `url` is empty if PostgreSQL is not installed."""

    def __init__(self) -> None:
        self._programs = postgres_programs()
        self._folder = Path(tempfile.mkdtemp(prefix="boa-pg-", dir="/tmp"))
        self._prefix: list[str] = []
        self.url = "" if self._programs is None else f"postgresql://boa@/postgres?host={self._folder}"

    def __enter__(self) -> PostgresServer:
        if self._programs is not None:
            if os.getuid() == 0:
                shutil.chown(self._folder, "nobody")
                self._prefix = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
            self._run("initdb", "-D", f"{self._folder}/data", "-U", "boa", "-A", "trust", "--no-sync")
            self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._programs is not None and (self._folder / "data" / "postmaster.pid").exists():
            self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        options = f"-k {self._folder} -c listen_addresses='' -c fsync=off"
        data, log = f"{self._folder}/data", f"{self._folder}/log"
        self._run("pg_ctl", "-D", data, "-l", log, "-w", "-o", options, "start")

    def stop(self) -> None:
        """Stop the server immediately, as a loss of power does."""
        self._run("pg_ctl", "-D", f"{self._folder}/data", "-m", "immediate", "stop")

    def _run(self, name: str, *words: str) -> None:
        """Run one of the server's programs."""
        assert self._programs is not None
        command = [*self._prefix, str(self._programs / name), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self._folder)
        assert done.returncode == 0, done.stdout + done.stderr


def empty_database(url: str) -> None:
    """Drop everything in a database."""
    engine = open_engine(url)
    with engine.begin() as connection:
        connection.execute(text("DROP SCHEMA public CASCADE"))
        connection.execute(text("CREATE SCHEMA public"))
    engine.dispose()
