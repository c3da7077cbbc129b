"""Limits on how long transactions of PostgreSQL wait, also through a pooler of connections.

A process that is suspended, or a machine that vanishes, within a transaction keeps its locks until the server
ends the transaction: nobody could take over before. A session gets its limits when it begins. A pooler such
as PgBouncer refuses or ignores them there, and may give each transaction another session of the server; then
each transaction sets its limits itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Engine, event

_REFUSAL = "unsupported startup parameter"


def limit_sessions(engine: Engine, seconds: Mapping[str, float], *, options: str = "") -> None:
    """Limit every session of an engine of PostgreSQL, by the server's names of the limits.

    `options` are those that the user gives each session: without them nothing is opened.
    """
    words = " ".join(f"-c {name}={limit * 1000:.0f}" for name, limit in seconds.items())
    statements = "; ".join(f"SET LOCAL {name} = {limit * 1000:.0f}" for name, limit in seconds.items())
    first, wanted = next((name, limit) for name, limit in seconds.items())
    is_pooled = False

    @event.listens_for(engine, "do_connect")
    def _connect(dialect: Any, _record: Any, arguments: Any, keywords: dict[str, Any]) -> Any:
        if not is_pooled:
            try:
                return dialect.connect(*arguments, **{**keywords, "options": f"{options} {words}".strip()})
            except dialect.loaded_dbapi.OperationalError as error:
                if _REFUSAL not in str(error):
                    raise
        return dialect.connect(*arguments, **{**keywords, **({"options": options} if options else {})})

    @event.listens_for(engine, "connect")
    def _ask(connection: Any, _record: Any) -> None:
        nonlocal is_pooled
        if is_pooled:
            return
        # The role's own limit may be shorter than this question.
        connection.execute("SET LOCAL statement_timeout = 2000")
        query = "SELECT setting FROM pg_settings WHERE name = %s"
        is_pooled = float(connection.execute(query, (first,)).fetchone()[0]) != wanted * 1000
        connection.rollback()

    @event.listens_for(engine, "begin")
    def _begun(connection: Connection) -> None:
        if is_pooled:
            connection.exec_driver_sql(statements)
