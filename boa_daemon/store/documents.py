"""Documents that parts of the daemon store in the database, such as an engine's knowledge of its jobs."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import delete, select

from boa_daemon.store.database import Database
from boa_daemon.store.sql import put
from boa_daemon.store.tables import DOCUMENTS


class Documents:
    """Texts of one kind by key; only changes are written."""

    def __init__(self, database: Database, kind: str) -> None:
        self._database, self._kind = database, kind
        self._last: dict[str, str] = {}

    def read(self) -> Mapping[str, str]:
        """Return all documents of this kind by key."""
        query = select(DOCUMENTS.c.key, DOCUMENTS.c.document).where(DOCUMENTS.c.kind == self._kind)
        with self._database.read() as connection:
            self._last = {row.key: row.document for row in connection.execute(query)}
        return dict(self._last)

    def write(self, documents: Mapping[str, str]) -> None:
        """Replace all documents of this kind by `documents`."""
        changed = {key: text for key, text in documents.items() if self._last.get(key) != text}
        gone = [key for key in self._last if key not in documents]
        if not changed and not gone:
            return
        with self._database.write() as connection:
            for key, text in changed.items():
                put(connection, DOCUMENTS, kind=self._kind, key=key, document=text)
            for key in gone:
                connection.execute(
                    delete(DOCUMENTS).where(DOCUMENTS.c.kind == self._kind, DOCUMENTS.c.key == key)
                )
        self._last = dict(documents)
