"""One writer: a lock around every transaction that writes, which other writes of the thread join."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine


class Database:
    """An engine of which this process is the only writer."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._lock = threading.RLock()
        self._open: Connection | None = None

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Lend a connection in a transaction; inside another `write` of the thread it is the same one."""
        with self._lock:
            if self._open is not None:
                yield self._open
                return
            with self.engine.begin() as connection:
                self._open = connection
                try:
                    yield connection
                finally:
                    self._open = None

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
