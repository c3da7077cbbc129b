"""Daemons on a real PostgreSQL server that goes and comes back."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from daemon_site import SETTINGS, a_site, wait_for
from postgres_server import PostgresServer, postgres_programs

from boa_daemon.store.engine import StoreUnreachable, reach


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as found:
        yield found


HAS_SERVER = postgres_programs() is not None


def on(server: PostgresServer) -> str:
    """Return settings of a daemon on the server; on SQLite where there is none."""
    text = SETTINGS.format(usd=10.0)
    return f'{text}database = "{server.url}"\n' if HAS_SERVER else text


def test_a_server_that_does_not_answer_is_waited_for_and_is_no_lost_database(
    server: PostgresServer,
) -> None:
    """The server is down when daemons start: one only observes and ends once it is back, a standby leads.

    Found by a storm: a standby that started in that second observed for ever, and nobody stood by any more.
    """
    if not HAS_SERVER:
        return
    server.stop()
    with pytest.raises(StoreUnreachable):
        reach(server.url)
    with ExitStack() as stack:
        site, other = (stack.enter_context(a_site(on(server))) for _ in range(2))
        site.process, other.process = site.start(), other.start("--standby")
        wait_for(lambda: "does not answer" in site.get("/status").get("fault", ""), site)
        wait_for(lambda: "standing by: the database does not answer" in other.log, other)
        server.start()
        assert site.process.wait(30.0) == 1
        assert "answers again" in site.log
        wait_for(lambda: (other.get("/status").get("leader") or {}).get("pid") == other.process.pid, other)
        assert other.end(signal.SIGTERM) == 0
