"""The account of a best effort on disk, so that a restart neither forgives a debt nor forgets a credit."""

from __future__ import annotations

import json

from sqlalchemy import select

from boa_daemon.shortfall import Kept
from boa_daemon.store.database import Database
from boa_daemon.store.sql import put
from boa_daemon.store.tables import META
from policies.best_effort import Account

KEY = "best_effort"


def read_best_effort(database: Database) -> Kept | None:
    """Return the best effort that was going on; None where there was none."""
    with database.read() as connection:
        found = connection.scalar(select(META.c.value).where(META.c.key == KEY))
    known = None if found is None else json.loads(found)
    if known is None:
        return None
    account = Account(opened_at=float(known["opened_at"]), spent_before=float(known["spent_before"]))
    return Kept(budget=float(known["budget"]), account=account)


def write_best_effort(database: Database, kept: Kept | None) -> None:
    """Write down the best effort that is going on, or that there is none."""
    known = None
    if kept is not None:
        account = kept.account
        known = {
            "budget": kept.budget,
            "opened_at": account.opened_at,
            "spent_before": account.spent_before,
        }
    with database.write() as connection:
        put(connection, META, key=KEY, value=json.dumps(known))
