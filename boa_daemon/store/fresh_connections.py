"""Connections to PostgreSQL that are of no use any more are given up, so that the next one is new.

A session keeps what held when it began: it stays read-only, or without rights, after its server or its role
was changed. And a server that was suspended, or whose network swallows everything, lets a session wait for
ever: its socket stays open.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from sqlalchemy import Engine, event

HUNG_SECONDS = 20.0
"""After which a statement that got no answer is given up; the longest of ours takes a second."""
_OF_ITS_SESSION = ("25006", "3F", "42P01", "42501", "0A000", "53", "57", "28")
"""Beginnings of SQLSTATEs that a new session may not meet: read-only, rights, tables that are not found."""
_ACTIVE = 1
"""The transaction status of libpq while a statement is being answered."""
_OPEN: WeakKeyDictionary[Engine, WeakSet[Any]] = WeakKeyDictionary()


def keep_connections_fresh(engine: Engine) -> None:
    """Make an engine of PostgreSQL drop all connections at an error that a new one may not have."""
    opened: WeakSet[Any] = WeakSet()
    _OPEN[engine] = opened

    @event.listens_for(engine, "connect")
    def _opened(connection: Any, _record: Any) -> None:
        opened.add(connection)

    @event.listens_for(engine, "handle_error")
    def _failed(context: Any) -> None:
        state = getattr(context.original_exception, "sqlstate", None) or ""
        if state.startswith(_OF_ITS_SESSION):
            context.is_disconnect = True


def hang_up(engine: Engine) -> int:
    """End the statements that are being answered, in every thread, by closing their sockets; return how many.

    Their threads get an error of a lost connection. Nothing is done with SQLite.
    """
    count = 0
    for connection in list(_OPEN.get(engine, ())):
        with suppress(Exception):  # It may be closed meanwhile.
            if int(connection.pgconn.transaction_status) == _ACTIVE:
                with socket.socket(fileno=os.dup(connection.pgconn.socket)) as channel:
                    channel.shutdown(socket.SHUT_RDWR)
                count += 1
    return count
