"""What a release left behind is read by this version, and one version back changes nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from postgres_server import PostgresServer, postgres_programs
from release_fixture import RELEASES, answers_of, keepers_of, put_back, put_back_on_a_server
from sqlalchemy import text

from boa_daemon.api.app import create_app
from boa_daemon.api.authentication import Authenticator
from boa_daemon.api.client import Client
from boa_daemon.api.server import ApiServer, unix_socket
from boa_daemon.daemon.loop.assembly import open_daemon
from boa_daemon.daemon.loop.loop import Daemon
from boa_daemon.daemon.loop.recovery import recover
from boa_daemon.daemon.service.replay import replay
from boa_daemon.daemon.service.service import Service
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.daemon.settings.setting_layers import load_settings
from boa_daemon.inputs.sqlite_urls import sqlite_url
from boa_daemon.job.checkpoint import newest_checkpoint
from boa_daemon.job.processes import is_alive, kill_all_carrying
from boa_daemon.store.database_setup import HEAD, StoreTooNew, open_engine
from boa_daemon.testing import ManualClock

VERSIONS = sorted(folder.name for folder in RELEASES.iterdir() if folder.is_dir())
ON = ["sqlite", "postgresql"] if postgres_programs() is not None else ["sqlite"]


def test_this_release_is_among_those_that_are_kept() -> None:
    """A release without its fixture could not be proven readable later."""
    assert "0.1.0" in VERSIONS


@contextmanager
def an_old_keeper(release: Path, folder: Path) -> Iterator[Callable[[], bool]]:
    """Run the job that ran, by the release's own keeper; yield whether that keeper lives."""
    unit = folder / "state" / "jobs" / "runs-2" / "g1" / "n0"
    for name in ("keeper.json", "keeper.lock"):
        (unit / name).unlink(missing_ok=True)
    code = keepers_of(release, folder / "old")
    environment = {
        **os.environ,
        "PYTHONPATH": str(code),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    document = json.loads((unit / "unit.json").read_text())
    document["environment"]["PYTHONPATH"] = str(code)
    (unit / "unit.json").write_text(json.dumps(document))
    keeper = subprocess.Popen(
        [sys.executable, "-m", "boa_daemon.job.keeper", str(unit)], env=environment, cwd=folder
    )
    try:
        until = time.monotonic() + 60.0
        while not (unit / "keeper.json").exists():
            assert time.monotonic() < until
            time.sleep(0.1)
        kept = json.loads((unit / "keeper.json").read_text())
        yield lambda: is_alive(int(kept["pid"]), int(kept["ticks"]))
    finally:
        kill_all_carrying(f"BOA_CHECKPOINT_DIR={folder}/state/jobs/runs-2/checkpoint")
        with suppress(subprocess.TimeoutExpired):
            keeper.wait(20.0)


@pytest.fixture(params=[(version, on) for version in VERSIONS for on in ON], ids="-".join)
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Path, Path, Settings]]:
    """Yield a release, a folder with what it left, and the settings in that folder."""
    version, on = request.param
    release, folder = RELEASES / version, tmp_path / "site"
    folder.mkdir()
    put_back(release, folder)
    settings = load_settings(folder / "boa.toml").settings
    if on == "sqlite":
        yield release, folder, settings
        return
    with PostgresServer() as server:
        put_back_on_a_server(release, folder, server.url)
        for suffix in ("", "-wal", "-shm"):
            Path(f"{folder}/state/boa.sqlite{suffix}").unlink(missing_ok=True)
        daemon = settings.daemon.model_copy(update={"database": server.url})
        yield release, folder, settings.model_copy(update={"daemon": daemon})


def opened(release: Path, settings: Settings) -> tuple[Daemon, ManualClock]:
    """Return this version's daemon, a moment after the release was killed."""
    clock = ManualClock(answers_of(release)["/status"]["now"] + 5.0)
    return open_daemon(settings, clock=clock), clock


def keys_of(document: Any) -> Any:
    """Return the keys of an answer, and of the first of each of its lists."""
    if isinstance(document, Mapping):
        return {key: keys_of(value) for key, value in document.items()}
    return [keys_of(document[0])] if isinstance(document, list) and document else None


def lacks(before: Any, now: Any, where: str = "") -> list[str]:
    """Return the keys of an earlier answer that the present one does not have."""
    if isinstance(before, dict):
        if not isinstance(now, dict):
            return [] if now is None else [where]
        return [
            gap
            for key in before
            for gap in (lacks(before[key], now[key], f"{where}.{key}") if key in now else [f"{where}.{key}"])
        ]
    if isinstance(before, list) and isinstance(now, list):
        return lacks(before[0], now[0], f"{where}[]")
    return []


BY_CHOICE = (".boots.", ".finishes.", ".dates.", ".books.", ".best_effort.", ".waiting.")
"""Parts of answers whose keys are names of things."""


def test_the_fleet_of_a_release_goes_on(old: tuple[Path, Path, Settings]) -> None:
    """The running job keeps its process and generation, and its keeper obeys; the others are as they were."""
    release, folder, settings = old
    before = answers_of(release)
    with an_old_keeper(release, folder) as lives:
        daemon, clock = opened(release, settings)
        try:
            assert daemon.standing.fault == ""
            for _ in range(5):
                assert daemon.tick() is not None, daemon.standing.fault
                clock.instant += 1.0
            service = Service(daemon)
            jobs = {job["id"]: job for job in service.jobs(limit=100)["jobs"]}
            assert {name: job["status"] for name, job in jobs.items()} == {
                "done-1": "finished", "runs-2": "running", "waits-3": "queued", "gone-4": "cancelled",
            }  # fmt: skip
            assert (jobs["runs-2"]["generation"], lives()) == (1, True)
            assert daemon.standing.reattached == (1, 1)
            said = {job["id"]: job for job in before["/jobs"]["jobs"]}
            # The server's copy is of a run of its own, with the same jobs.
            is_same = settings.daemon.database is None
            assert jobs["done-1"]["usd"] == said["done-1"]["usd"] if is_same else jobs["done-1"]["usd"] > 0.0
            assert (
                service.status()["books"]["day"]["spent_usd"]
                >= before["/status"]["books"]["day"]["spent_usd"]
            )
            assert service.decisions(limit=1000)["decisions"]
            (newest,) = service.decisions(limit=1, acting=True)["decisions"]
            assert replay(service.decision(newest["tick"])).decision is not None
            checkpoint, wrong = newest_checkpoint(folder / "state" / "jobs" / "runs-2" / "checkpoint")
            assert checkpoint is not None
            assert wrong == ""
            service.cancel("runs-2", user="root", is_admin=True)
            until = time.monotonic() + 90.0
            while service.job("runs-2", may_read=lambda _user: True)["status"] != "cancelled":
                assert time.monotonic() < until
                daemon.tick()
                time.sleep(0.2)
                clock.instant += 1.0
            assert service.submit(
                [{"name": "new", "class": "default", "run": "true", "max_gpus": 1, "workdir": str(folder)}],
                user="ann",
            )["jobs"] == ["new-5"]
        finally:
            daemon.close()


def test_the_answers_of_a_release_have_no_key_that_is_gone(
    old: tuple[Path, Path, Settings], tmp_path: Path
) -> None:
    """Programs that read them go on."""
    release, _, settings = old
    daemon, clock = opened(release, settings)
    server = ApiServer(
        create_app(Service(daemon), Authenticator(settings.api)), [unix_socket(tmp_path / "boa.sock")]
    )
    server.start()
    try:
        daemon.tick()
        clock.instant += 1.0
        gaps: list[str] = []
        with Client(tmp_path / "boa.sock") as client:
            for path, before in answers_of(release).items():
                found = lacks(keys_of(before), keys_of(client.get(path)), path)
                gaps += [gap for gap in found if not any(part in gap for part in BY_CHOICE)]
        assert gaps == []
    finally:
        server.stop()
        daemon.close()


def test_a_newer_database_is_refused_and_not_touched(old: tuple[Path, Path, Settings]) -> None:
    """The sentence says what to do; the daemon, `recover` and a look leave every byte."""
    release, folder, settings = old
    url = settings.daemon.database or sqlite_url(folder / "state" / "boa.sqlite")
    engine = open_engine(url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        connection.execute(text("ALTER TABLE jobs ADD COLUMN of_tomorrow TEXT"))
    engine.dispose()

    def content() -> Any:
        if settings.daemon.database is None:
            return (folder / "state" / "boa.sqlite").read_bytes()
        engine = open_engine(url)
        with engine.connect() as connection:
            rows = [
                connection.execute(text(f"SELECT * FROM {name} ORDER BY 1")).all()
                for name in ("jobs", "meta", "intents", "leader", "alembic_version")
            ]
        engine.dispose()
        return rows

    before = content()
    with an_old_keeper(release, folder) as lives:
        daemon, _ = opened(release, settings)
        try:
            assert daemon.storage is None
            assert "install that boa" in daemon.standing.fault
            assert HEAD in daemon.standing.fault
            for _ in range(3):
                daemon.tick()
            assert lives()
        finally:
            daemon.close()
        with pytest.raises(StoreTooNew, match="install that boa"):
            recover(settings)
    assert content() == before
