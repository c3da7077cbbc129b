"""Store samples (`boa_daemon.learning.samples`) and planned figures in SQL."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields

from sqlalchemy import delete, select

from boa_daemon.learning.samples import Sample, SampleHistory
from boa_daemon.store.database import Database
from boa_daemon.store.sql import put
from boa_daemon.store.tables import META, SAMPLES

ARRIVED, FIGURES = "arrivals_sampled_through", "planned_figures"
_NAMES = tuple(field.name for field in fields(Sample))


class SqlSamples:
    """Implements `SampleStore`; a batch is one transaction, or joins an open one."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def read(self) -> SampleHistory:
        """Return all samples."""
        with self._database.read() as connection:
            rows = tuple(
                Sample(**{name: getattr(row, name) for name in _NAMES})
                for row in connection.execute(select(SAMPLES).order_by(SAMPLES.c.at, SAMPLES.c.key))
            )
            known = connection.scalar(select(META.c.value).where(META.c.key == ARRIVED))
        return SampleHistory(rows=rows, arrived_through=0 if known is None else int(json.loads(known)))

    def write(
        self, rows: Iterable[Sample], *, forget: Iterable[str] = (), arrived_through: int | None = None
    ) -> None:
        """Insert or replace rows and delete others, all or nothing."""
        gone = list(forget)
        with self._database.write() as connection:
            for begin in range(0, len(gone), 500):
                connection.execute(delete(SAMPLES).where(SAMPLES.c.key.in_(gone[begin : begin + 500])))
            for row in rows:
                put(connection, SAMPLES, **_values(row))
            if arrived_through is not None:
                put(connection, META, key=ARRIVED, value=json.dumps(arrived_through))


def read_figures(database: Database) -> dict[str, list[float]]:
    """Return the stored figures of the plan by class, as given to `write_figures`."""
    with database.read() as connection:
        known = connection.scalar(select(META.c.value).where(META.c.key == FIGURES))
    return {} if known is None else dict(json.loads(known))


def write_figures(database: Database, figures: Mapping[str, Sequence[float]]) -> None:
    """Store the figures of the plan, so that a restart does not change the plan."""
    with database.write() as connection:
        put(connection, META, key=FIGURES, value=json.dumps({k: list(v) for k, v in figures.items()}))


def _values(row: Sample) -> dict[str, object]:
    return {name: getattr(row, name) for name in _NAMES}
