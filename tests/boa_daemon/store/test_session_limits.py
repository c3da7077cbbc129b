"""Limits of transactions on PostgreSQL, with and without a pooler of connections in between."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from postgres_server import postgres_programs
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from boa_daemon.store.database_setup import open_engine

pytestmark = pytest.mark.skipif(postgres_programs() is None, reason="PostgreSQL is not installed")
REFUSED = b"SFATAL\0C08P01\0Munsupported startup parameter: options\0\0"


class Pooler:
    """Stands between clients and a server like PgBouncer: refuses, or ignores, what a session asks for."""

    def __init__(self, folder: Path, server: Path, *, refuses: bool) -> None:
        self._server, self._refuses = server, refuses
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / ".s.PGSQL.5432"))
        self._listener.listen()
        self._threads = [threading.Thread(target=self._serve, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        """Wait until all clients have left."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(5.0)

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._threads.append(threading.Thread(target=self._talk, args=(client,), daemon=True))
                self._threads[-1].start()

    def _talk(self, client: socket.socket) -> None:
        size = struct.unpack("!i", client.recv(4, socket.MSG_WAITALL))[0]
        said = client.recv(size - 4, socket.MSG_WAITALL)
        words = said[4:].split(b"\0")
        pairs = dict(zip(words[::2], words[1::2], strict=False))
        if self._refuses and b"options" in pairs:
            client.sendall(b"E" + struct.pack("!i", len(REFUSED) + 4) + REFUSED)
            client.close()
            return
        kept = b"".join(key + b"\0" + pairs[key] + b"\0" for key in pairs if key not in (b"", b"options"))
        body = said[:4] + kept + b"\0"
        with client, socket.socket(socket.AF_UNIX) as upstream:
            upstream.connect(str(self._server / ".s.PGSQL.5432"))
            upstream.sendall(struct.pack("!i", len(body) + 4) + body)
            answers = threading.Thread(target=_copy, args=(upstream, client), daemon=True)
            answers.start()
            _copy(client, upstream)
            answers.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for one in (source, target):
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


@pytest.fixture(params=["direct", "refuses", "ignores"])
def url(request: pytest.FixtureRequest, postgres: str, tmp_path: Path) -> Iterator[str]:
    """Yield the address of the server, or of a pooler before it."""
    if request.param == "direct":
        yield postgres
        return
    pooler = Pooler(tmp_path, Path(postgres.partition("host=")[2]), refuses=request.param == "refuses")
    yield f"postgresql://boa@/postgres?host={tmp_path}"
    pooler.close()


def test_every_transaction_has_its_limits_and_prepares_nothing(url: str) -> None:
    """Behind a pooler, too: another session of the server would not know what an earlier one was told."""
    engine = open_engine(url)
    try:
        for _ in range(8):
            with engine.begin() as connection:
                found = [
                    connection.scalar(text(f"SHOW {name}"))
                    for name in ("lock_timeout", "idle_in_transaction_session_timeout", "statement_timeout")
                ]
                assert found == ["800ms", "10s", "20s"]
                assert connection.scalar(text("SELECT count(*) FROM pg_prepared_statements")) == 0
    finally:
        engine.dispose()


def test_a_short_time_limit_of_the_role_is_not_the_daemons(url: str, postgres: str) -> None:
    """Administrators limit statements of all roles; the daemon's are short, and its own limit is longer."""
    admin = open_engine(postgres)
    with admin.begin() as connection:
        connection.execute(text("ALTER ROLE boa SET statement_timeout = '250ms'"))
    engine = open_engine(url)
    try:
        with engine.begin() as connection:
            connection.execute(text("SELECT pg_sleep(0.4)"))
    finally:
        engine.dispose()
        with admin.begin() as connection:
            connection.execute(text("ALTER ROLE boa RESET statement_timeout"))
        admin.dispose()


def test_options_of_the_user_are_not_dropped_silently(postgres: str, tmp_path: Path) -> None:
    """A schema that the pooler does not let through: an error, not the tables of another schema."""
    pooler = Pooler(tmp_path, Path(postgres.partition("host=")[2]), refuses=True)
    engine = open_engine(f"postgresql://boa@/postgres?host={tmp_path}&options=-c%20search_path%3Dother")
    try:
        with pytest.raises(OperationalError, match="startup parameter"), engine.connect():
            pass
    finally:
        engine.dispose()
        pooler.close()
