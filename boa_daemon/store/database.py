"""A database with one writer: a lock around every write transaction, which nested writes join."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass

from sqlalchemy import Connection, Engine

from boa_daemon.errors import BoaError
from boa_daemon.store.database_file import DatabaseFile
from boa_daemon.store.database_troubles import PASSING
from boa_daemon.store.fresh_connections import HUNG_SECONDS, hang_up

DEADLINE: ContextVar[float | None] = ContextVar("DEADLINE", default=None)
"""Monotonic time until which this context waits for the writer's lock; None waits for ever."""
ROWS_PER_SECOND = 500.0
"""As on a slow or crowded machine; an idle one writes twenty times as many."""


@dataclass(slots=True)
class Allowance:
    """The seconds that a request may take besides, because it writes much."""

    seconds: float = 0.0


ALLOWANCE: ContextVar[Allowance | None] = ContextVar("ALLOWANCE", default=None)
"""Of this context's request, if it is one; who waits for its answer holds it too."""


def allow_for_rows(count: int) -> None:
    """Say that the request of this context is about to write that many rows, which takes its time."""
    allowance = ALLOWANCE.get()
    if allowance is not None:
        allowance.seconds += count / ROWS_PER_SECOND


class DatabaseBusy(BoaError):
    """Another transaction takes too long; nothing was stored."""


@contextmanager
def held_in_time(lock: threading.Lock | threading.RLock, busy: str) -> Iterator[None]:
    """Hold a lock, which is waited for until the caller's `DEADLINE`.

    Raises:
        DatabaseBusy: with the sentence `busy`, when the deadline passes first.
    """
    until = DEADLINE.get()
    seconds = -1.0 if until is None else max(until - time.monotonic(), 0.0)
    if not lock.acquire(timeout=seconds):
        raise DatabaseBusy(busy)
    try:
        yield
    finally:
        lock.release()


class Database:
    """A database engine with this process as its only writer.

    `when_lost` is called when a write transaction fails, because state in memory is then ahead of the disk.
    `fence` and `is_ours` are called first in each write transaction and raise when this process may no longer
    write, and when another database has taken the place of its own. A file is looked for at its path before:
    an open file outlives its name, and what is written to it after its disk was unmounted or its folder was
    deleted or moved is found by no later daemon. The same is true of its log.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.when_lost: Callable[[], None] = lambda: None
        self.fence: Callable[[Connection], None] = lambda _connection: None
        self.is_ours: Callable[[Connection], None] = lambda _connection: None
        self._lock = threading.RLock()
        self._file = DatabaseFile(engine)
        self._open: Connection | None = None
        self._busy_since: dict[int, float] = {}

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Yield a connection in a transaction; a nested `write` of the same thread joins it.

        Raises:
            DatabaseBusy: when the caller's `DEADLINE` passes first.
            FileNotFoundError: when the database's file is not at its path.
            StrangeFile: when a file beside it is not its own.
        """
        with self.alone():
            if self._open is not None:
                yield self._open
                return
            try:
                self._file.check()
                with self._timed(), self.engine.begin() as connection:
                    self.fence(connection)
                    self.is_ours(connection)
                    self._open = connection
                    try:
                        yield connection
                    finally:
                        self._open = None
                self._file.note()
            except PASSING:
                # A full disk shows at the commit, when the state in memory is already ahead.
                with suppress(*PASSING):
                    self.when_lost()
                raise

    def alone(self) -> AbstractContextManager[None]:
        """Keep every other thread from writing, without opening a transaction.

        Raises:
            DatabaseBusy: when the caller's `DEADLINE` passes first.
        """
        return held_in_time(
            self._lock, "the database is busy with another transaction, and nothing was stored: try again"
        )

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Yield a connection that reads committed data, without waiting for the writer."""
        with self._timed(), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """Note since when this thread uses the database."""
        name = threading.get_ident()
        before = self._busy_since.setdefault(name, time.monotonic())
        try:
            yield
        finally:
            if self._busy_since.get(name) == before:
                self._busy_since.pop(name, None)

    @property
    def busy_seconds(self) -> float:
        """For how long the slowest of the present transactions has run."""
        began = min(list(self._busy_since.values()), default=None)
        return 0.0 if began is None else time.monotonic() - began

    def hang_up(self) -> int:
        """End statements that have waited too long for the server's answer; return how many."""
        return hang_up(self.engine) if self.busy_seconds > HUNG_SECONDS else 0

    def close(self) -> None:
        """Close all connections."""
        self._file.close()
        self.engine.dispose()
