"""Store what is known of the jobs of Slurm that are planned by their class, so none stays held."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import select

from boa_daemon.store.database import Database
from boa_daemon.store.sql import put
from boa_daemon.store.tables import META

KEY = "slurm_widths"


def read_slurm_widths(database: Database) -> Mapping[str, Mapping[str, Any]]:
    """Return what is known of each job of Slurm, by its number."""
    with database.read() as connection:
        found = connection.scalar(select(META.c.value).where(META.c.key == KEY))
    return {} if found is None else dict(json.loads(found))


def write_slurm_widths(database: Database, known: Mapping[str, Mapping[str, Any]]) -> None:
    """Store what is known of each job of Slurm."""
    with database.write() as connection:
        put(connection, META, key=KEY, value=json.dumps(known))
