"""One writer: a lock around every transaction that writes, which other writes of the thread join."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError


class Database:
    """An engine of which this process is the only writer.

    `when_lost` is called where a transaction could not be done: what memory took for written is not on disk.
    `fence` is called first in each transaction that writes, and raises where this process may not any more.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.when_lost: Callable[[], None] = lambda: None
        self.fence: Callable[[Connection], None] = lambda _connection: None
        self._lock = threading.RLock()
        self._open: Connection | None = None

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Lend a connection in a transaction; inside another `write` of the thread it is the same one."""
        with self._lock:
            if self._open is not None:
                yield self._open
                return
            try:
                with self.engine.begin() as connection:
                    self.fence(connection)
                    self._open = connection
                    try:
                        yield connection
                    finally:
                        self._open = None
            except (SQLAlchemyError, OSError):
                # A full disk says so at the commit, when memory has gone ahead already.
                with suppress(SQLAlchemyError, OSError):
                    self.when_lost()
                raise

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep every other thread from writing, without a transaction: what is committed then stays so."""
        with self._lock:
            yield

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Lend a connection that reads what is committed; it waits for nobody."""
        with self.engine.connect() as connection:
            yield connection

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()
