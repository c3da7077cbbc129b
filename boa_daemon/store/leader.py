"""Leadership: one daemon at a time acts for a database, and an epoch fences off its predecessor.

On PostgreSQL the leader holds a row for `LEASE_SECONDS` of the server's clock and renews it. Another process
that finds the row expired takes it with the next epoch. Every write transaction checks that the epoch is
still its own, and a new leader waits for open transactions: what the old leader has not committed by then, it
never will. Between renewals the leader measures the time itself, and stops acting before the row expires.

On SQLite the leader holds a lock on a file beside the database, which the kernel releases however the process
ends. The epoch is counted there as well.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from sqlalchemy import Connection, Engine, func, insert, select, text, update
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from boa_daemon.errors import BoaError
from boa_daemon.store.database_troubles import explain, trouble_of
from boa_daemon.store.tables import LEADER

LEASE_SECONDS, MARGIN_SECONDS = 15.0, 4.0
"""Silence of a leader after which another takes over; how much earlier the leader stops acting."""
RENEW_SECONDS = 3.0
KEY = "daemon"


def awake_or_not() -> float:
    """Return seconds that go on while the machine is suspended, as a lease does; `time.monotonic` rests."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class LedElsewhere(BoaError):
    """Another daemon leads on this database; this one only observes."""


class LeadInDoubt(LedElsewhere):
    """The database has not confirmed for too long that this daemon leads; another may by now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """The leading process, and since when by the database's clock."""

    epoch: int
    host: str
    pid: int
    since: float

    @property
    def sentence(self) -> str:
        """The leader in words."""
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(self.since))
        return f"process {self.pid} on {self.host} (epoch {self.epoch}, since {since} UTC)"


class Leadership:
    """One process's leadership; not thread-safe except for `check`."""

    def __init__(
        self,
        engine: Engine,
        *,
        lease_seconds: float = LEASE_SECONDS,
        monotonic: Callable[[], float] = awake_or_not,
    ) -> None:
        self._engine, self._lease, self._monotonic = engine, lease_seconds, monotonic
        self._me = secrets.token_hex(8)
        self._file: TextIO | None = None
        self._until, self._doubt = 0.0, ""
        self.leader: Leader | None = None
        self.expires_at = 0.0
        """When the lease of another leader, whom `take` found, ends by the database's clock."""

    @property
    def is_of_a_file(self) -> bool:
        """Whether the database is a SQLite file."""
        return self._engine.dialect.name == "sqlite"

    def take(self) -> Leader | None:
        """Become the leader and return None; if another process leads, return it.

        Raises:
            SQLAlchemyError: when the database cannot be written; this process leads nothing then.
            OSError: when the lock of a SQLite file cannot be taken for another reason than a leader.
        """
        try:
            return self._take()
        except BaseException:
            # The next attempt, with another object, must find the file's lock free.
            self.give_up()
            raise

    def _take(self) -> Leader | None:
        if self.is_of_a_file and not self._lock_file():
            with self._engine.connect() as connection:
                row = connection.execute(select(LEADER)).first()
            return _leader(row) if row is not None else Leader(epoch=0, host="?", pid=0, since=0.0)
        asked_at = self._monotonic()
        with self._engine.begin() as connection:
            row = self._row(connection)
            now = self._now(connection)
            if not self.is_of_a_file and row.expires_at > now and row.holder != self._me:
                self.expires_at = float(row.expires_at)
                return _leader(row)
            values = {"holder": self._me, "epoch": row.epoch + 1, "host": socket.gethostname()}
            values |= {"pid": os.getpid(), "since": now, "expires_at": now + self._lease}
            connection.execute(update(LEADER).where(LEADER.c.key == KEY).values(**values))
        self.leader = Leader(epoch=int(values["epoch"]), host=str(values["host"]), pid=os.getpid(), since=now)
        self._until = asked_at + self._lease - min(MARGIN_SECONDS, self._lease / 3.0)
        return None

    def renew(self) -> None:
        """Renew the lease.

        Raises:
            LedElsewhere: when another process took over.
            SQLAlchemyError: when the database does not answer; `check` fails once that lasts too long.
        """
        if self.leader is None or self.is_of_a_file:
            return
        try:
            self._renew(self.leader)
        except SQLAlchemyError as error:
            self._doubt = explain(error, trouble_of(error))[0]
            raise
        self._doubt = ""

    def _renew(self, leader: Leader) -> None:
        asked_at = self._monotonic()
        with self._engine.begin() as connection:
            row = self._row(connection)
            if row.holder != self._me or row.epoch != leader.epoch:
                raise self._lost(row)
            expires = self._now(connection) + self._lease
            connection.execute(update(LEADER).where(LEADER.c.key == KEY).values(expires_at=expires))
        self._until = asked_at + self._lease - min(MARGIN_SECONDS, self._lease / 3.0)

    def check(self) -> None:
        """Return if this process may act now, without asking the database.

        Raises:
            LedElsewhere: when it does not lead.
            LeadInDoubt: when its last renewal is too long ago.
        """
        if self.leader is None:
            raise LedElsewhere("this daemon does not lead")
        if not self.is_of_a_file and self._monotonic() > self._until:
            raise LeadInDoubt(
                "the database did not confirm for too long that this daemon leads; another may by now"
                + (f": {self._doubt}" if self._doubt else "")
            )

    def fence(self, connection: Connection) -> None:
        """Allow a transaction to continue if this process still leads; a new leader waits for its end.

        Raises:
            LedElsewhere: when another process leads.
        """
        if self.leader is None or self.is_of_a_file:
            return
        query = select(LEADER).where(LEADER.c.key == KEY).with_for_update(read=True)
        row = connection.execute(query).one()
        if row.epoch != self.leader.epoch:
            raise self._lost(row)

    def give_up(self) -> None:
        """End the leadership, so that another process can lead at once."""
        if self._file is not None:
            self._file.close()
            self._file = None
        if self.leader is not None and not self.is_of_a_file:
            mine = (LEADER.c.key == KEY) & (LEADER.c.holder == self._me)
            with suppress(SQLAlchemyError), self._engine.begin() as connection:
                connection.execute(update(LEADER).where(mine).values(expires_at=0.0))
        self.leader = None

    def _lost(self, row: Any) -> LedElsewhere:
        """Record that this process no longer leads, and return the error."""
        self.leader = None
        return LedElsewhere(f"another daemon leads this cluster: {_leader(row).sentence}")

    def _row(self, connection: Connection) -> Any:
        """Return the leader's row, locked; create it if missing."""
        query = select(LEADER).where(LEADER.c.key == KEY).with_for_update()
        if not self.is_of_a_file:
            # Longer than other statements wait: until the server has ended a suspended leader's transaction.
            connection.execute(text("SET LOCAL lock_timeout = '12s'"))
        row = connection.execute(query).first()
        if row is None:
            with suppress(IntegrityError), connection.begin_nested():
                nobody = {"holder": "", "epoch": 0, "host": "", "pid": 0, "since": 0.0, "expires_at": 0.0}
                connection.execute(insert(LEADER).values(key=KEY, **nobody))
            row = connection.execute(query).one()
        return row

    def _now(self, connection: Connection) -> float:
        """Return the time by the server's clock, which all processes share; for a file, by this machine's."""
        if self.is_of_a_file:
            return time.time()
        return float(connection.scalar(select(func.extract("epoch", func.clock_timestamp()))) or 0.0)

    def _lock_file(self) -> bool:
        """Take the lock of a SQLite file; return whether this process has it."""
        name = self._engine.url.database
        if self._file is not None or not name or name == ":memory:":
            return True
        # By whatever link the database is named, its lock is beside the file itself.
        file = Path(f"{os.path.realpath(name)}.leader").open("a+", encoding="utf-8")  # noqa: SIM115 - the lock lasts as long
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return False
        except OSError:
            # The file system cannot lock, or not now: that is no sign of another leader.
            file.close()
            raise
        self._file = file
        return True


def _leader(row: Any) -> Leader:
    return Leader(epoch=int(row.epoch), host=str(row.host), pid=int(row.pid), since=float(row.since))
