"""The log of orders: who ordered what, when, and what came of it; and the caps that were lowered by order.

Orders stand beside the decisions of ticks: a job that stops because somebody said so has no other reason.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import delete, select

from boa_daemon.store.database import Database
from boa_daemon.store.sql import put
from boa_daemon.store.tables import DOCUMENTS

ORDER, CAP = "order", "lower cap"
KEPT_SECONDS = 90 * 86_400.0
"""Orders are kept as long as decisions."""
MOST_ORDERS = 10_000
"""Orders that are looked through for those about one job or user."""


class OrderLog:
    """Orders in the database; `lower_caps` are dollars by window, ``day`` or ``month``, in memory."""

    def __init__(self, database: Database) -> None:
        self._database, self._guard, self._last = database, threading.Lock(), 0.0
        self.lower_caps: Mapping[str, float] = read_lower_caps(database)

    def note(self, *, user: str, what: str, target: str, said: str, at: float) -> None:
        """Record an order, and drop orders that are too old."""
        row = {"at": at, "user": user, "what": what, "target": target, "said": said}
        with self._guard:
            # Keys sort by instant; two orders of one instant stay apart.
            self._last = max(at, self._last + 1e-6)
            key = _key(self._last)
        of_orders = DOCUMENTS.c.kind == ORDER
        with self._database.write() as connection:
            put(connection, DOCUMENTS, kind=ORDER, key=key, document=json.dumps(row))
            connection.execute(delete(DOCUMENTS).where(of_orders, DOCUMENTS.c.key < _key(at - KEPT_SECONDS)))

    def newest(self, limit: int) -> list[dict[str, Any]]:
        """Return the newest orders, newest first."""
        query = (
            select(DOCUMENTS.c.document)
            .where(DOCUMENTS.c.kind == ORDER)
            .order_by(DOCUMENTS.c.key.desc())
            .limit(limit)
        )
        with self._database.read() as connection:
            return [json.loads(row.document) for row in connection.execute(query)]

    def lower(self, window: str, usd: float | None, note: Callable[[], None] = lambda: None) -> None:
        """Lower a cap to `usd` dollars, with `note` in one transaction; None means what the settings say."""
        with self._database.write() as connection:
            note()
            if usd is None:
                where = (DOCUMENTS.c.kind == CAP, DOCUMENTS.c.key == window)
                connection.execute(delete(DOCUMENTS).where(*where))
            else:
                put(connection, DOCUMENTS, kind=CAP, key=window, document=json.dumps(usd))
        others = {name: amount for name, amount in self.lower_caps.items() if name != window}
        self.lower_caps = others if usd is None else {**others, window: usd}


def read_lower_caps(database: Database) -> dict[str, float]:
    """Return the caps that were lowered by order, in dollars by window."""
    query = select(DOCUMENTS.c.key, DOCUMENTS.c.document).where(DOCUMENTS.c.kind == CAP)
    with database.read() as connection:
        return {row.key: float(json.loads(row.document)) for row in connection.execute(query)}


def lowest(cap: float | None, ordered: float | None) -> float | None:
    """Return the lower of a cap of the settings and an ordered one; None means no cap."""
    if cap is None or ordered is None:
        return cap if ordered is None else ordered
    return min(cap, ordered)


def _key(at: float) -> str:
    return f"{max(at, 0.0):020.6f}"
