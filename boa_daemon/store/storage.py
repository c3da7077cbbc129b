"""The daemon's storage: the job queue, the store of ticks, and the leadership."""

from __future__ import annotations

from dataclasses import dataclass, field

from boa_daemon.store.decisions import DaemonStore
from boa_daemon.store.leader import Leadership
from boa_daemon.store.order_log import OrderLog
from boa_daemon.store.queue import JobQueue


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """The submitted jobs, and everything else that a tick reads and records.

    `leadership` is this process's claim to act for the database; None when the storage was opened without
    one.
    """

    store: DaemonStore
    queue: JobQueue
    leadership: Leadership | None = None
    orders: OrderLog = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "orders", OrderLog(self.store.database))

    def check_leads(self) -> None:
        """Return if this process may act for the database.

        Raises:
            LedElsewhere: when another process leads, or may lead by now.
        """
        if self.leadership is not None:
            self.leadership.check()

    @property
    def is_deposed(self) -> bool:
        """Whether another process took over the leadership."""
        return self.leadership is not None and self.leadership.leader is None

    def close(self) -> None:
        """Give up the leadership and close the database."""
        if self.leadership is not None:
            self.leadership.give_up()
        self.store.database.close()
