"""A database with one writer: a lock around every write transaction, which nested writes join."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError


class Database:
    """A database engine with this process as its only writer.

    `when_lost` is called when a write transaction fails, because state in memory is then ahead of the disk.
    `fence` is called first in each write transaction and raises when this process may no longer write.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.when_lost: Callable[[], None] = lambda: None
        self.fence: Callable[[Connection], None] = lambda _connection: None
        self._lock = threading.RLock()
        self._open: Connection | None = None

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Yield a connection in a transaction; a nested `write` of the same thread joins it."""
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
                # A full disk shows at the commit, when the state in memory is already ahead.
                with suppress(SQLAlchemyError, OSError):
                    self.when_lost()
                raise

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep every other thread from writing, without opening a transaction."""
        with self._lock:
            yield

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Yield a connection that reads committed data, without waiting for the writer."""
        with self.engine.connect() as connection:
            yield connection

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()
