"""Who acts for a database: one daemon at a time, with an epoch that fences off the one before.

On PostgreSQL the leader holds a row for `LEASE_SECONDS` of the server's own clock and renews it; whoever
finds it expired takes it with the next epoch. Every transaction that writes looks whether the epoch is still
its own, and a new leader waits for those on their way: what an old one had not committed, it never will.
Between renewals the leader trusts its own measure of the time that passed, and stops acting before the row
expires.

On SQLite the leader holds a lock on a file beside the database, which the kernel gives back however the
process ends; the epoch is counted all the same.
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

from sqlalchemy import Connection, Engine, func, insert, select, update
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from boa_daemon.errors import BoaError
from boa_daemon.store.tables import LEADER

LEASE_SECONDS, MARGIN_SECONDS = 15.0, 4.0
"""So long a leader is not heard of before another one takes over; it stops acting so much earlier."""
RENEW_SECONDS = 3.0
KEY = "daemon"


class LedElsewhere(BoaError):
    """Another daemon acts for this database: this one only observes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """Who acts, and since when by the database's clock."""

    epoch: int
    host: str
    pid: int
    since: float

    @property
    def sentence(self) -> str:
        """Who it is, for people."""
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(self.since))
        return f"process {self.pid} on {self.host} (epoch {self.epoch}, since {since} UTC)"


class Leadership:
    """One process's claim to act. Not for several threads at once, but for `check`."""

    def __init__(
        self,
        engine: Engine,
        *,
        lease_seconds: float = LEASE_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine, self._lease, self._monotonic = engine, lease_seconds, monotonic
        self._me = secrets.token_hex(8)
        self._file: TextIO | None = None
        self._until = 0.0
        self.leader: Leader | None = None

    @property
    def is_of_a_file(self) -> bool:
        """Whether the database is a file of this machine."""
        return self._engine.dialect.name == "sqlite"

    def take(self) -> Leader | None:
        """Become the leader; return who is it where that is another."""
        if self.is_of_a_file and not self._lock_file():
            with self._engine.connect() as connection:
                row = connection.execute(select(LEADER)).first()
            return _leader(row) if row is not None else Leader(epoch=0, host="?", pid=0, since=0.0)
        asked_at = self._monotonic()
        with self._engine.begin() as connection:
            row = self._row(connection)
            now = self._now(connection)
            if not self.is_of_a_file and row.expires_at > now and row.holder != self._me:
                return _leader(row)
            values = {"holder": self._me, "epoch": row.epoch + 1, "host": socket.gethostname()}
            values |= {"pid": os.getpid(), "since": now, "expires_at": now + self._lease}
            connection.execute(update(LEADER).where(LEADER.c.key == KEY).values(**values))
        self.leader = Leader(epoch=int(values["epoch"]), host=str(values["host"]), pid=os.getpid(), since=now)
        self._until = asked_at + self._lease - min(MARGIN_SECONDS, self._lease / 3.0)
        return None

    def renew(self) -> None:
        """Stay the leader for another while.

        Raises:
            LedElsewhere: when another one took over.
            SQLAlchemyError: when the database does not answer; `check` fails once that lasts too long.
        """
        if self.leader is None or self.is_of_a_file:
            return
        asked_at = self._monotonic()
        with self._engine.begin() as connection:
            row = self._row(connection)
            if row.holder != self._me or row.epoch != self.leader.epoch:
                raise self._lost(row)
            expires = self._now(connection) + self._lease
            connection.execute(update(LEADER).where(LEADER.c.key == KEY).values(expires_at=expires))
        self._until = asked_at + self._lease - min(MARGIN_SECONDS, self._lease / 3.0)

    def check(self) -> None:
        """Return if this process may act now; asks nobody.

        Raises:
            LedElsewhere: when it is not the leader, or could not say so for too long.
        """
        if self.leader is None:
            raise LedElsewhere("this daemon does not lead")
        if not self.is_of_a_file and self._monotonic() > self._until:
            raise LedElsewhere(
                "the database did not confirm for too long that this daemon leads; another may by now"
            )

    def fence(self, connection: Connection) -> None:
        """Let a transaction go on if the epoch is still ours; a new leader waits for its end.

        Raises:
            LedElsewhere: when it is not.
        """
        if self.leader is None or self.is_of_a_file:
            return
        query = select(LEADER).where(LEADER.c.key == KEY).with_for_update(read=True)
        row = connection.execute(query).one()
        if row.epoch != self.leader.epoch:
            raise self._lost(row)

    def give_up(self) -> None:
        """Let the next one in at once."""
        if self._file is not None:
            self._file.close()
            self._file = None
        if self.leader is not None and not self.is_of_a_file:
            mine = (LEADER.c.key == KEY) & (LEADER.c.holder == self._me)
            with suppress(SQLAlchemyError), self._engine.begin() as connection:
                connection.execute(update(LEADER).where(mine).values(expires_at=0.0))
        self.leader = None

    def _lost(self, row: Any) -> LedElsewhere:
        """Return what is said where another one leads; from now on this process does not."""
        self.leader = None
        return LedElsewhere(f"another daemon leads this cluster: {_leader(row).sentence}")

    def _row(self, connection: Connection) -> Any:
        """Return the row of the leader, locked; it is made where there is none."""
        query = select(LEADER).where(LEADER.c.key == KEY).with_for_update()
        row = connection.execute(query).first()
        if row is None:
            with suppress(IntegrityError), connection.begin_nested():
                nobody = {"holder": "", "epoch": 0, "host": "", "pid": 0, "since": 0.0, "expires_at": 0.0}
                connection.execute(insert(LEADER).values(key=KEY, **nobody))
            row = connection.execute(query).one()
        return row

    def _now(self, connection: Connection) -> float:
        """Return the time by the database's clock, the same for all who ask; a file has this machine's."""
        if self.is_of_a_file:
            return time.time()
        return float(connection.scalar(select(func.extract("epoch", func.clock_timestamp()))) or 0.0)

    def _lock_file(self) -> bool:
        """Take the lock of a database in a file; return whether it is ours."""
        name = self._engine.url.database
        if self._file is not None or not name or name == ":memory:":
            return True
        file = Path(f"{name}.leader").open("a+", encoding="utf-8")  # noqa: SIM115 - the lock lasts as long
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            return False
        self._file = file
        return True


def _leader(row: Any) -> Leader:
    """Return a row as a leader."""
    return Leader(epoch=int(row.epoch), host=str(row.host), pid=int(row.pid), since=float(row.since))
