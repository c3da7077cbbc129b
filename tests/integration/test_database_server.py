"""Daemons on a real PostgreSQL server that stops and starts again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from daemon_site import SETTINGS, a_site, wait_for
from postgres_server import PostgresServer, empty_database, postgres_programs
from sqlalchemy import text

from boa_daemon.api.client import Client
from boa_daemon.api.connection import RefusedByDaemon
from boa_daemon.daemon.loop.assembly import open_daemon
from boa_daemon.daemon.loop.recovery import recover
from boa_daemon.daemon.service.service import Service
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.errors import InputError
from boa_daemon.store.database_setup import StoreTooNew, StoreUnreachable, check_reachable, open_engine
from boa_daemon.store.leader import LedElsewhere
from boa_daemon.testing.daemon_in_a_folder import job_content


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as found:
        yield found


HAS_SERVER = postgres_programs() is not None


def on(server: PostgresServer) -> str:
    """Return settings of a daemon on the server, or on SQLite if PostgreSQL is not installed."""
    text = SETTINGS.format(usd=10.0)
    return f'{text}database = "{server.url}"\n' if HAS_SERVER else text


@pytest.mark.exhaustive  # two daemons and a server wait for each other
def test_daemons_that_start_while_the_server_is_down_work_once_it_is_up(server: PostgresServer) -> None:
    """One of them leads, and the other observes or stands by; none observes for ever.

    The case comes from a chaos run: a standby that started while the server was down observed for ever.
    """
    if not HAS_SERVER:
        return
    server.stop()
    with pytest.raises(StoreUnreachable):
        check_reachable(server.url)
    with ExitStack() as stack:
        site, other = (stack.enter_context(a_site(on(server))) for _ in range(2))
        site.process, other.process = site.start(), other.start("--standby")
        wait_for(lambda: "does not answer" in site.get("/status").get("fault", ""), site)
        wait_for(lambda: "standing by: the database does not answer" in other.log, other)
        assert "recover" not in site.log
        server.start()
        pids = {site.process.pid, other.process.pid}
        site.process, other.process, both = None, None, (site.process, other.process)
        try:
            wait_for(
                lambda: any(
                    (one.get("/status").get("leader") or {}).get("pid") in pids for one in (site, other)
                ),
                site,
            )
        finally:
            for process in both:
                process.kill()
                process.wait(30.0)


@pytest.mark.exhaustive  # two daemons one after the other
def test_a_daemon_killed_on_a_server_leads_again_at_its_restart(server: PostgresServer) -> None:
    """Its predecessor's lease is waited out; it does not observe for ever."""
    if not HAS_SERVER:
        return
    empty_database(server.url)
    with a_site(on(server)) as site:
        site.up()
        site.end(signal.SIGKILL)
        site.process = site.start()
        pid = site.process.pid
        wait_for(lambda: (site.get("/status").get("leader") or {}).get("pid") == pid, site)
        wait_for(lambda: not site.get("/status").get("fault", "?"), site)


@pytest.mark.exhaustive  # starts the program
def test_a_running_job_outlives_an_outage_of_the_server_and_a_restart_in_it(server: PostgresServer) -> None:
    """Requests are refused with a sentence within two seconds, and the job is in its first generation."""
    if not HAS_SERVER:
        return
    empty_database(server.url)
    with a_site(on(server)) as site:
        site.up()
        with Client(site.socket) as boa:
            (job,) = boa.submit({**job_content("a"), "run": "sleep 600"})
        wait_for(lambda: site.get(f"/jobs/{job}").get("status") == "running", site)
        wait_for((site.folder / "state" / "last_state").exists, site)
        site.end(signal.SIGKILL)
        server.stop()
        site.process = site.start()
        wait_for(lambda: "does not answer" in site.get("/status").get("fault", ""), site)
        wait_for(lambda: "caps and the leases" in " ".join(site.get("/status").get("notes", [])), site)
        began = time.monotonic()
        with pytest.raises(RefusedByDaemon, match="does not answer"), Client(site.socket) as boa:
            boa.submit(job_content("b"))
        assert time.monotonic() - began < 2.0
        server.start()
        wait_for(lambda: not site.get("/status").get("fault", "?"), site)
        answer = site.get(f"/jobs/{job}")
        assert (answer["status"], answer["generation"]) == ("running", 1)
        with Client(site.socket) as boa:
            boa.cancel(job)
        wait_for(lambda: site.get(f"/jobs/{job}").get("status") == "cancelled", site)


def settings_on(server: PostgresServer, folder: Path) -> Settings:
    """Return settings of a daemon in a folder, on the server."""
    daemon = {"state_dir": str(folder), "database": server.url}
    return Settings.model_validate({"daemon": daemon, "gate": {"enabled": False}})


def rents_one(settings: Settings) -> str:
    """Let a daemon rent a node for a job and close it while the node boots; return the job."""
    daemon = open_daemon(settings)
    try:
        assert daemon.standing.fault == ""
        (job,) = Service(daemon).submit([job_content("a")], user="ann")["jobs"]
        daemon.tick()
        assert len(daemon.fleet.nodes()) == 1
        return str(job)
    finally:
        daemon.close()


def do(url: str, *statements: str) -> None:
    engine = open_engine(url)
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))
    engine.dispose()


LOSSES = {
    "a table is gone": ["DROP TABLE jobs CASCADE"],
    "the version is gone": ["DROP TABLE alembic_version"],
    "emptied": ["DROP SCHEMA public CASCADE", "CREATE SCHEMA public"],
}


@pytest.mark.parametrize("loss", sorted(LOSSES))
def test_recover_makes_a_lost_database_on_a_server_again(
    server: PostgresServer, tmp_path: Path, loss: str
) -> None:
    """`boa recover` finds the instance, continues the job numbers and keeps the old tables."""
    if not HAS_SERVER:
        return
    empty_database(server.url)
    settings = settings_on(server, tmp_path)
    assert rents_one(settings) == "a-1"
    do(server.url, *LOSSES[loss])
    daemon = open_daemon(settings)
    assert "boa recover" in daemon.standing.fault
    daemon.close()
    found = recover(settings)
    assert (found["instances"], found["jobs"], found["backup"]) == (1, 0, None)
    if loss == "emptied":
        assert found["old"] is None
    else:
        kept = "jobs" if loss == "the version is gone" else "instances"
        do(server.url, f"SELECT * FROM {found['old']}.{kept}", f"DROP SCHEMA {found['old']} CASCADE")
    assert rents_one(settings) == "a-2", "engines keep jobs by their numbers"
    with pytest.raises(InputError, match="nothing to recover"):
        recover(settings)


def test_recover_refuses_a_led_a_newer_and_an_unreachable_database(
    server: PostgresServer, tmp_path: Path
) -> None:
    """Each of the three refusals has its own error."""
    if not HAS_SERVER:
        return
    empty_database(server.url)
    leader = open_daemon(settings_on(server, tmp_path / "there"))
    here = settings_on(server, tmp_path / "here")
    with pytest.raises(LedElsewhere):
        recover(here)
    leader.close()
    do(server.url, "UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(StoreTooNew):
        recover(here)
    server.stop()
    try:
        with pytest.raises(StoreUnreachable):
            recover(here)
    finally:
        server.start()


def test_boa_recover_takes_an_empty_database_into_use(server: PostgresServer, tmp_path: Path) -> None:
    """`boa recover --json` on a new control node reports no instances, no jobs and no backup."""
    if not HAS_SERVER:
        return
    empty_database(server.url)
    (tmp_path / "boa.toml").write_text(f'[daemon]\nstate_dir = "state"\ndatabase = "{server.url}"\n')
    done = subprocess.run(
        [sys.executable, "-m", "boa_daemon", "recover", "--json"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"backup": None, "instances": 0, "jobs": 0, "old": None}


@pytest.mark.exhaustive  # starts the program
def test_a_reload_and_a_stop_while_the_server_is_down_pass(server: PostgresServer) -> None:
    """SIGHUP and SIGTERM are handled between ticks, where an error of the database would end the daemon."""
    if not HAS_SERVER:
        return
    empty_database(server.url)
    with a_site(on(server)) as site:
        site.up()
        server.stop()
        assert site.process is not None
        site.process.send_signal(signal.SIGHUP)
        wait_for(lambda: "could not be asked for anew" in site.log, site)
        server.start()
        wait_for(lambda: not site.get("/status").get("fault", "?"), site)
        server.stop()
        assert site.end(signal.SIGTERM) == 0
        assert "Traceback" not in site.log
        server.start()
