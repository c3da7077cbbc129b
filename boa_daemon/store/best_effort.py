"""Store the account of a best effort, so that a restart forgets neither debt nor credit."""

from __future__ import annotations

import json
from dataclasses import asdict

from sqlalchemy import select

from boa_daemon.store.database import Database
from boa_daemon.store.sql import put
from boa_daemon.store.tables import META
from policies.online.best_effort import Account

KEY = "best_effort"


def read_best_effort(database: Database) -> Account | None:
    """Return the account of the best effort in progress; None without one."""
    with database.read() as connection:
        found = connection.scalar(select(META.c.value).where(META.c.key == KEY))
    known = None if found is None else json.loads(found)
    return None if known is None else Account(**known)


def write_best_effort(database: Database, account: Account | None) -> None:
    """Store the account of the best effort in progress, or None."""
    with database.write() as connection:
        known = None if account is None else asdict(account)
        put(connection, META, key=KEY, value=json.dumps(known))
